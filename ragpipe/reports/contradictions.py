"""The claims of some cases that their contexts contradict, read from the details of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.reports.case_views import parse_json_cell
from ragpipe.reports.score_details import ContradictedClaim, contradicted_claims
from ragpipe.schema.sample import CaseKey
from ragpipe.store.run.run_folder import IterationFolder
from ragpipe.store.run.run_tables import rows_of_cases


@dataclass(frozen=True)
class CaseContradiction:
    """A contradicted claim, the row of its case in `records.parquet`, and the score in whose details it is."""

    record: Mapping[str, Any]
    score: str
    claim: ContradictedClaim


def read_contradictions(iteration: IterationFolder, records: Sequence[Mapping[str, Any]]) -> list[CaseContradiction]:
    """The contradicted claims of these cases, case by case and score by score. Raises DataError."""
    cases = {CaseKey.of(record): record for record in records}
    scores = rows_of_cases(iteration.scores, cases, (*CaseKey._fields, "score_name", "details")) if cases else {}
    return [
        CaseContradiction(cases[case], score["score_name"], claim)
        for case, rows in scores.items()
        for score in rows
        for claim in contradicted_claims(parse_json_cell(score["details"], dict))
    ]
