"""The plain-text forms of answers: a verdict in a word, a grade on a line.

Nothing is guessed: what could mean either of two things means neither. Digits and words are ASCII, as the prompts ask.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, cast

YesOrNo = Literal["YES", "NO"]

OPPOSITE: dict[str, YesOrNo] = {"YES": "NO", "NO": "YES"}
_MARKUP = re.compile("</?[A-Za-z]{1,12}>|[*_`#>\"'\u2018\u2019\u201c\u201d]")
_LABEL = re.compile(
    r"\A\W*(?:(?:my|the|final|overall)\s+)*(?:answer|verdict|judge?ment|decision|result|conclusion)\s*[:=]", re.I
)
_WORD = re.compile(r"[^\W_]+")
_CLAUSE_END = re.compile("[.!?:;,/|=()\u2013\u2014]|\\s-\\s")
_TAKEN_BACK = re.compile(
    r"\b(?:BUT|ACTUALLY|RATHER|INSTEAD|OTHERWISE|ELSE|SO|THUS|HENCE|THEREFORE|FINALLY|(?:ANSWER|VERDICT) (?:IS|TO)|SHOULD BE|CHANGED? TO)"
    r"[ ,:]+(YES|NO)\b(?=\W*\Z|\s*[.!,;])"
)
"""A verdict that ends a sentence of its own after another one was given."""
_NUMBER_SIGN = re.compile(r"\W*NO\.?\s*[0-9]")  # number, as in `No. 3`
_AFTER_NO = frozenset((
    "BECAUSE", "SINCE", "AS", "IT", "THIS", "THAT", "THESE", "THOSE", "THE", "THERE", "THEY", "NEITHER", "NOR",
    "NONE", "NOT", "I", "WE", "ITS", "BUT", "THOUGH", "ALTHOUGH",
))  # fmt: skip
"""Words before which a NO without a comma is still a verdict; in `no doubt` and `no claim is unsupported` it is none."""

_GRADE = re.compile(
    r"(?P<label>(?:(?:final|overall)\s+)?(?:score|grade|rating)\s*[:=]\s*)?(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"(?P<scale>\s*(?:/|out\s+of)\s*5(?:\.0+)?)?(?P<stop>\s*\.)?",
    re.I,
)
_GRADE_MARKUP = re.compile(r"(?<!\d)[*_`#]+|[*_`#]+(?!\d)")
_STATED_GRADE = re.compile(
    r"\b(?:the|my|final|overall|correct|revised)\s+(?:score|grade|rating)\s+(?:is|should\s+be|must\s+be|becomes)\s*:?\s*[*`]*"
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![0-9]|[.,:-][0-9]|\s*(?:/|of|out\s+of)\s*(?!5\b)[0-9])",
    re.I,
)
_CLASS = re.compile(r"\W*([^\W_]\w*)")
_CLASS_ALONE = re.compile(r"\W*([^\W_]\w*)\W*")


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
    if verdict is None:
        return None
    opposite = OPPOSITE[verdict]
    opposed = any(_verdict_of_line(line) == opposite for line in lines[1:])
    taken_back = any(opposite in _TAKEN_BACK.findall(line) for line in lines)
    return None if opposed or taken_back else verdict


def _verdict_of_line(line: str) -> YesOrNo | None:
    """The verdict with which a line in capitals begins, None where there is none or the line takes it back."""
    if _NUMBER_SIGN.match(line):
        return None
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
    grade = _GRADE.fullmatch(_GRADE_MARKUP.sub("", line).strip())
    if not grade or (grade["stop"] and not grade["label"] and not grade["scale"]):
        return None
    return float(grade["number"])


def other_grades(text: str, grade: float) -> list[float]:
    """Grades in a text that differ from `grade`: on lines of their own (`Score: 3`), and plainly stated (`the score should
    be 3`). Numbers that a sentence only mentions (`3 of the 4 facts`, `a 5 would need a source`) are none."""
    if not text:
        return []
    lines = (read_grade(line) for line in text.splitlines())
    stated = (float(number) for number in _STATED_GRADE.findall(text))
    return [number for number in (*lines, *stated) if number is not None and number != grade]


def stated_words(text: str, words: Sequence[str]) -> list[str]:
    """Those of the words that a line of the text gives as its verdict: alone (`WRONG`), or after a label (`Verdict: WRONG,
    since ...`). Small letters count as capitals."""
    if not text.strip():
        return []
    by_capitals = {_MARKUP.sub("", word).upper(): word for word in words}
    verdicts = []
    for raw in _MARKUP.sub("", text).upper().splitlines():
        line = _LABEL.sub("", raw, count=1)
        stated = _CLASS.match(line) if line != raw else _CLASS_ALONE.fullmatch(line)
        if stated and stated[1] in by_capitals:
            verdicts.append(by_capitals[stated[1]])
    return verdicts


_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
"""What shows nothing and has the category of a letter, a mark or a sign: fillers, joiners, variation selectors, the empty
Braille cell."""
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: it is empty, or blanks, controls, marks without a width and fillers are all it has."""
    if text[:1].isascii() and text[:1].isalnum():  # so almost every text begins
        return False
    return all(unicodedata.category(sign) in _UNSEEN for sign in _FILLERS.sub("", text))
