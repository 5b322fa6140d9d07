"""Patterns of the user's own, by the regex library: unlike `re` it can be stopped.

`^(\\w+\\s?)*$` on 25 characters takes `re` more than a second, and each further character doubles it.
"""

from __future__ import annotations

from collections.abc import Callable

TIME_LIMIT_S = 1.0


def compile_user_pattern(pattern: str) -> Callable[[str], list[str]]:
    """The function that cuts a text at every match; it raises TimeoutError after a second. Raises ValueError for a bad pattern."""
    import regex  # type: ignore[import-untyped, unused-ignore]

    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None

    def pieces(text: str) -> list[str]:
        return [piece for piece in compiled.split(text, timeout=TIME_LIMIT_S) if piece and not piece.isspace()]

    return pieces
