"""The command that goes on with a run: that of the last start, with the words that it needs besides."""

from __future__ import annotations

from collections.abc import Sequence


def with_words(argv: Sequence[str], more: Sequence[str]) -> list[str]:
    """The words of a command line with further ones, each in the place of an older one for the same key."""
    keys = {word.partition("=")[0] for word in more}
    kept = [word for word in argv if word in more or word.partition("=")[0] not in keys]
    return [*kept, *(word for word in more if word not in argv)]
