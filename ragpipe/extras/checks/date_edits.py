"""A date of the answer that the chunks support becomes one that the case does not know."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from ragpipe.extras.checks.case_text import CaseText, free_matches, has_phrase
from ragpipe.extras.checks.mutant import Donors, Edit, edited_answer
from ragpipe.judging.heuristic.lexicon import MONTHS
from ragpipe.schema.sample import Case

_MONTH = "|".join(name.capitalize() for name in MONTHS if name)
_DATE = re.compile(
    r"(?<![\w.,:/-])(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2})"
    rf"|(?P<dated>(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?(?:{_MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?,?\s+\d{{4}})"
    rf"|(?P<day>(?:{_MONTH})\s+\d{{1,2}}|\d{{1,2}}\s+(?:{_MONTH}))"
    r"|(?<=\bin )(?P<year>\d{4})|(?<=\bsince )(?P<year2>\d{4})|(?<=\bof )(?P<year3>\d{4})|(?<=\()(?P<year4>\d{4}(?=[),;–-]))"
    r")(?![\w/-])(?!\.\d)"
)
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d{2}(?!\d)")
_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 7, -7, 11, -11)


def change_date(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one date of its answer changed: its year, or its day where it has no year. None where the chunks have no
    date of the answer.

    ISO dates, dates with an English month, and years after `in`, `since`, `of` or a bracket. The year is changed by up to 11;
    neither the new year nor the new day stands anywhere in the case.
    """
    candidates = []
    for match in free_matches(_DATE, text.answer):
        written = match[0]
        if _is_in(text, written) and (other := next(_changed(written, text), None)):
            candidates.append((match.span(), written, other))
    if not candidates:
        return None
    span, written, other = rng.choice(candidates)
    return edited_answer(case, span, other, in_reference=has_phrase(text.references, written))


def _is_in(text: CaseText, written: str) -> bool:
    """Whether the chunks have the date as it is written, or at least its year."""
    year = _YEAR.search(written)
    return text.says_of(written) or (year is not None and year[0] in text.contexts)


def _changed(written: str, text: CaseText) -> Iterator[str]:
    """Other dates in the same form, the first one preferred."""
    if year := _YEAR.search(written):
        for shift in _SHIFTS:
            other = str(int(year[0]) + shift)
            if other not in text.known:
                yield written[: year.start()] + other + written[year.end() :]
        return
    day = re.search(r"\d{1,2}", written)
    if day is None or not re.search(_MONTH, written):
        return
    for shift in range(9, 28):
        other = str((int(day[0]) + shift) % 28 + 1)
        if not re.search(rf"(?<!\d)0?{other}(?!\d)", text.known):
            yield written[: day.start()] + other + written[day.end() :]
