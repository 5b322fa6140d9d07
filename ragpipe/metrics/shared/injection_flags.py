"""Signs of prompt injection: an answer that addresses the judge instead of the user. Recorded as flags; no value changes."""

from __future__ import annotations

import re

_VERDICT = re.compile(
    r"""\{[^{}]{0,2000}["'](?:verdicts?|scores?|grade|rating|supported|supported_claims|unsupported_claims|claims"""
    r"""|passed|faithfulness|completeness|groundedness|relevance|relevant|accurate|cited|use|violated|declines|acknowledged)["']\s*:""",
    re.I,
)
_TAG = re.compile(r"</?[0-9a-f]{12}>|\[\[(?:system|user)\]\]|<\|(?:im_start|im_end|system|endoftext)\|>", re.I)


def answer_flags(answer: str) -> list[str]:
    """`verdict_like_json` when the answer holds JSON with a judge's keys, `forged_tags` when it imitates the fences."""
    flags = []
    if _VERDICT.search(answer):
        flags.append("verdict_like_json")
    if _TAG.search(answer):
        flags.append("forged_tags")
    return flags


def one_line(text: str, limit: int = 300) -> str:
    """A reply as one line of at most `limit` characters, for the reason of a score."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"
