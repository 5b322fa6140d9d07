"""A number of the answer that the chunks support becomes one that the case does not know."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from decimal import Decimal

from ragpipe.extras.checks.case_text import CaseText, free_matches, is_month, numbers_in
from ragpipe.extras.checks.mutant import Donors, Edit, edited_answer
from ragpipe.judging.heuristic.numbers import normalize_digits
from ragpipe.schema.sample import Case

_NUMBER = re.compile(
    r"(?<![\w.,:/#–-])"  # no part of a word, a version, a time, a date, a range or an identifier
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)"
    r"(?=\s?%|[\s)!?;,.:…]|$)"
    r"(?![.,:]\d)"
)
_LABEL = re.compile(
    r"(?:(?<=\w\s)[A-Z]\w*|\b(?i:id|no|number|step|chapter|section|page|version|line|table|figure|passages?|contexts?|documents?"
    r"|sources?|chunks?|part|room|form|level|option|item|point|question|rule|type|grade|phase|class|stage|tier|group)|[§#№])\.?\s*\Z"
)
"""What stands before a number that names something: `Room 102`, `passage 2`."""
_YEARS = range(1500, 2100)
_FACTORS = ("2", "1.5", "3", "0.5", "4", "2.5", "5", "7", "0.25", "9")
_LONGEST = 15  # digits: a longer number is an identifier


def change_number(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one number of its answer changed by half or more; None where no number of the answer is in the chunks.

    Years and days of a month are dates, not numbers. Digits, grouping, decimals and unit stay as they are written; a
    percentage up to 100 stays one. The new number stands nowhere in the case.
    """
    candidates = []
    for match in free_matches(_NUMBER, text.answer):
        digits = match["digits"]
        if not _is_quantity(match, text.answer) or normalize_digits(digits) not in text.context_numbers:
            continue
        is_share = re.match(r"\s?(?:%|percent\b|per cent\b)", text.answer[match.end() :]) is not None
        if (other := next(_changed(digits, text, is_share), None)) is not None:
            candidates.append((match.span("digits"), digits, other))
    if not candidates:
        return None
    span, digits, other = rng.choice(candidates)
    in_reference = normalize_digits(digits) in numbers_in(text.references)
    return edited_answer(case, span, other, in_reference=in_reference)


def _is_quantity(match: re.Match[str], answer: str) -> bool:
    """Whether the number counts or measures something: no year, no day of a month, no identifier, no part of an address
    or of a name (`Room 102`, `Passage 2`)."""
    digits = match["digits"]
    if len(digits) > _LONGEST or (digits.startswith("0") and digits.isdigit()):
        return False
    if digits.isdigit() and int(digits) in _YEARS and len(digits) == 4:
        return False
    lead = answer[max(0, match.start() - 40) : match.start()]
    before = re.search(r"([^\W\d_]+)\.?\s*\Z", lead)
    after = re.match(r",?\s*([^\W\d_]+)", answer[match.end() :])
    if (before and is_month(before[1])) or (after and is_month(after[1])):
        return False
    is_labelled = _LABEL.search(lead)
    names_more = re.match(r"\s\d|\s?(?:B\.?C|A\.?D|C\.?E)\b", answer[match.end() :])  # `720 9th Street`, `316 BC`
    return is_labelled is None and names_more is None


def _changed(digits: str, text: CaseText, is_share: bool) -> Iterator[str]:
    """Other numbers in the same form that the case does not know, the first one preferred."""
    grouped = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits) is not None
    comma = not grouped and "," in digits
    plain = digits.replace(",", "" if grouped else ".")
    decimals = len(plain.partition(".")[2])
    value = Decimal(plain)
    for factor in _FACTORS:
        number = (value * Decimal(factor) + (Decimal(factor) if not value else 0)).quantize(
            Decimal(1).scaleb(-decimals)
        )
        if not number or number == value or (is_share and value <= 100 < number):
            continue
        written = f"{number:,f}" if grouped else f"{number:f}"
        written = written.replace(".", ",") if comma else written
        if normalize_digits(written) not in text.known_numbers:
            yield written
