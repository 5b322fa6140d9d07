"""The plain-text forms of answers: a verdict in a word, a grade on a line.

Nothing is guessed: what could mean either of two things means neither. Digits and words are ASCII, as the prompts ask.
"""

from __future__ import annotations

import re
from typing import Literal, cast

YesOrNo = Literal["YES", "NO"]

OPPOSITE: dict[str, YesOrNo] = {"YES": "NO", "NO": "YES"}
_MARKUP = re.compile("[*_`#>\"'\u2018\u2019\u201c\u201d]")
_LABEL = re.compile(
    r"\A\W*(?:(?:my|the|final|overall)\s+)*(?:answer|verdict|judge?ment|decision|result|conclusion)\s*[:=]", re.I
)
_WORD = re.compile(r"[^\W_]+")
_CLAUSE_END = re.compile("[.!?:;,/|=()\u2013\u2014]|\\s-\\s")
_AFTER_NO = frozenset(
    {
        "BECAUSE",
        "SINCE",
        "AS",
        "IT",
        "THIS",
        "THAT",
        "THESE",
        "THOSE",
        "THE",
        "THERE",
        "THEY",
        "NEITHER",
        "NOR",
        "NONE",
        "NOT",
        "I",
        "WE",
        "ITS",
        "BUT",
        "THOUGH",
        "ALTHOUGH",
    }
)
"""Words before which a NO without a comma is still a verdict; in `no doubt` and `no claim is unsupported` it is none."""

_GRADE = re.compile(
    r"(?P<label>(?:(?:final|overall)\s+)?(?:score|grade|rating)\s*[:=]\s*)?(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"(?P<scale>\s*(?:/|out\s+of)\s*5(?:\.0+)?)?(?P<stop>\s*\.)?",
    re.I,
)


def read_verdict(text: str) -> YesOrNo | None:
    """YES or NO by the first word, after markup and a label (`Answer:`, `**Verdict:**`); None when the text says neither.

    Where another word comes first, a verdict counts that is alone on its line while the text says YES or NO nowhere
    else. None, too: both words in one clause or side by side (`YES/NO`, `yes and no`), the opposite verdict later (`YES`
    and `NO` on two lines, `No problem! YES`), and a NO that belongs to the next word (`No doubt ...`).
    """
    lines = [line for raw in _MARKUP.sub("", text).upper().splitlines() if _WORD.search(line := _LABEL.sub("", raw, 1))]
    if not lines:
        return None
    if _WORD.findall(lines[0])[0] not in OPPOSITE:
        words = [word for line in lines for word in _WORD.findall(line) if word in OPPOSITE]
        alone = len(words) == 1 and any(_WORD.findall(line) == words for line in lines)
        return cast(YesOrNo, words[0]) if alone else None
    verdict = _verdict_of_line(lines[0])
    opposed = verdict is not None and any(_verdict_of_line(line) == OPPOSITE[verdict] for line in lines[1:])
    return None if opposed else verdict


def _verdict_of_line(line: str) -> YesOrNo | None:
    """The verdict with which a line in capitals begins, None where there is none or the line takes it back."""
    first, *later = [words for part in _CLAUSE_END.split(line) if (words := _WORD.findall(part))]
    if first[0] not in OPPOSITE:
        return None
    verdict = cast(YesOrNo, first[0])
    opposite = OPPOSITE[verdict]
    if opposite in first or [opposite] in later:
        return None
    return None if verdict == "NO" and len(first) > 1 and first[1] not in _AFTER_NO else verdict


def read_grade(line: str) -> float | None:
    """The grade on a line that holds nothing else: `4`, `4.5`, `Score: 4`, `**4**`, `4/5`, `4 out of 5`; None otherwise.

    `4.` alone is the number of a list or the beginning of 4.5; a full stop may follow a label or a scale.
    """
    grade = _GRADE.fullmatch(re.sub(r"[*_`#]", "", line).strip())
    if not grade or (grade["stop"] and not grade["label"] and not grade["scale"]):
        return None
    return float(grade["number"])


def other_grades(text: str, grade: float) -> list[float]:
    """Grades on lines of their own that differ from `grade`."""
    grades = (read_grade(line) for line in text.splitlines())
    return [number for number in grades if number is not None and number != grade]
