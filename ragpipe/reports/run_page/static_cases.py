"""The worst cases as they stand in the HTML itself: what a page shows without its script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ragpipe.pages.page_address import page_address
from ragpipe.reports.case_views import shorten_for_page
from ragpipe.reports.run_page.case_rows import FAILED, PASSED
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.store.run.run_tables import rows_at

WORST = 20
_TEXT_MAX = 1000
_VERDICTS = {FAILED: "fail", PASSED: "pass"}


@dataclass(frozen=True)
class StaticCase:
    """A case in short. `scores` are name, value and verdict of its headline scores."""

    name: str
    link: str
    question: str
    answer: str
    scores: Sequence[tuple[str, str, str]]


def static_cases(cases: RunCases) -> Iterator[StaticCase]:
    """The `WORST` lowest cases by the main score. Raises DataError."""
    rows, worst = cases.rows, cases.worst(WORST)
    at = {number: int(rows.places[number]) for number in worst}
    records = rows_at(cases.iteration.records, list(at.values()), ("question", "answer")) if worst else {}
    for place in worst:
        scores = [
            (name, f"{rows.values[name][place]:.4g}", _VERDICTS.get(int(rows.verdicts[name][place]), ""))
            for name in rows.headline or rows.scores
            if np.isfinite(rows.values[name][place])
        ]
        record, name = records[at[place]], rows.names[place]
        question, answer = (shorten_for_page(record[column] or "", _TEXT_MAX) for column in ("question", "answer"))
        yield StaticCase(name, page_address(case=name), question, answer, scores)
