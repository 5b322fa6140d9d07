"""When two questions of a log are the same: their normalised text, and its hash."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

_ENDS = " \t.,;:!?…。！？、·-–—*\"'“”„‘’«»()[]¿¡"
"""Signs that are taken off both ends of a text."""


def normalised_text(text: str) -> str:
    """The text in Unicode form NFKC, without case, with single blanks, and without signs and quotation marks at its ends.

    A text of such signs alone stays as it is, without case and with single blanks.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    line = " ".join(text.casefold().split())
    return line.strip(_ENDS) or line


def question_text(fields: Mapping[str, Any]) -> str:
    """What is asked, normalised: the turns of the history and the question, one line each.

    `fields` are those of a sample: `question` a text, `history` a list of turns or absent.
    """
    question = normalised_text(fields["question"])
    history = fields.get("history")
    if not history:
        return question
    turns = [f"{turn['role']}: {normalised_text(turn['text'])}" for turn in history]
    return "\n".join([*turns, question])


def hash64(text: str) -> int:
    """The first 64 bits of BLAKE2b of a text: among a million texts, two have the same with a chance of 3 in 100 million."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
