"""Periods of time as documents write them: years, halves, quarters and months."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Unit = Literal["year", "half", "quarter", "month"]
PER_YEAR: dict[Unit, int] = {"year": 1, "half": 2, "quarter": 4, "month": 12}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS: tuple[tuple[Unit, str, re.Pattern[str]], ...] = (
    ("quarter", "Q{part} {year}", re.compile(rf"Q(?P<part>[1-4])[ /-]{_YEAR}")),
    ("quarter", "{year} Q{part}", re.compile(rf"{_YEAR}[ /-]?Q(?P<part>[1-4])")),
    ("half", "H{part} {year}", re.compile(rf"H(?P<part>[12])[ /-]{_YEAR}")),
    ("month", "{month} {year}", re.compile(rf"(?P<month>{'|'.join(MONTHS)}) {_YEAR}")),
    ("month", "{year}-{part:02}", re.compile(rf"{_YEAR}-(?P<part>0[1-9]|1[0-2])")),
    ("year", "{year}", re.compile(_YEAR)),
)


@dataclass(frozen=True, slots=True)
class Period:
    """A period by its unit and its number, counted from the year 0; `form` is how the document writes it."""

    unit: Unit
    number: int
    form: str

    def later(self, steps: int) -> Period:
        """The period that begins `steps` periods later."""
        return Period(self.unit, self.number + steps, self.form)

    def __str__(self) -> str:
        year, part = divmod(self.number, PER_YEAR[self.unit])
        return self.form.format(year=year, part=part + 1, month=MONTHS[part] if self.unit == "month" else "")


def read_period(text: str) -> Period | None:
    """The period that the whole text names (`Q1 2026`, `2026-Q1`, `H1 2026`, `March 2026`, `2026-03`, `2026`); None for any other."""
    for unit, form, pattern in _FORMS:
        if match := pattern.fullmatch(text.strip()):
            parts = match.groupdict()
            part = MONTHS.index(parts["month"]) if "month" in parts else int(parts.get("part") or 1) - 1
            return Period(unit, int(parts["year"]) * PER_YEAR[unit] + part, form)
    return None
