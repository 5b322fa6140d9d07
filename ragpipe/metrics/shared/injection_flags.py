"""Signs of prompt injection: an answer that addresses the judge instead of the user. Recorded as flags; no value changes."""

from __future__ import annotations

from ragpipe.patterns.hostile_text import suspicious_signs


def answer_flags(answer: str) -> list[str]:
    """The signs that the answer addresses the judge, such as `verdict_like_json` and `forged_tags`: see `suspicious_signs`."""
    return list(suspicious_signs(answer))


def one_line(text: str, limit: int = 300) -> str:
    """A reply as one line of at most `limit` characters, for the reason of a score."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"
