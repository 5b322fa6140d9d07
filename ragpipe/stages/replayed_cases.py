"""Cases that the plan of a run has measured already: all of their questions had a stored reply.

The plan replays the metrics over the stored replies, because what a metric asks next depends on what it was told. What came of
it is what the run itself would find, so the run takes it from here. Memory is bounded: beyond it, cases are replayed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.schema.sample import Case, CaseKey
from ragpipe.stages.measured_cases import MeasuredCases
from ragpipe.stages.table_rows import Measurement, PackedInputs, packed_inputs

KEPT_BYTES = 64 << 20
"""Bytes of measurements, questions and replies that are kept: some 25,000 calls with five contexts each."""
_ROW_BYTES = 2 << 10  # beside the compressed texts: the cells of a question and its share of the scores, as measured


@dataclass(frozen=True, slots=True)
class ReplayedCase:
    """The measurements of one case by the metrics that ask, in their order, without their calls; and the rows of these."""

    measured: list[Measurement]
    asked: PackedInputs


class ReplayedCases:
    """The cases by key. `keep_messages` says whether the run keeps messages and replies in `judge_inputs.parquet`."""

    def __init__(self, *, keep_messages: bool, limit: int = KEPT_BYTES):
        self._keep_messages, self._left = keep_messages, limit
        self._cases: dict[CaseKey, ReplayedCase] = {}

    def add(self, case: CaseKey, measured: Sequence[Measurement]) -> None:
        """Keep a case, unless one of its judgements failed (the run may ask again) or the room is used up."""
        if self._left <= 0 or any(score.status == "error" for m in measured for score in m.scores):
            return
        asked = packed_inputs(case, measured, keep_messages=self._keep_messages)
        for measurement in measured:
            measurement.free()
        self._left -= len(asked.texts) + len(asked.cells) * _ROW_BYTES
        self._cases[case] = ReplayedCase(list(measured), asked)

    def take(self, case: CaseKey) -> ReplayedCase | None:
        """The case, which is not kept any longer; None where it was not measured by the plan."""
        return self._cases.pop(case, None)


@dataclass(frozen=True, slots=True)
class KnownMeasurements:
    """What a run need not measure: cases that its plan has measured, and by iteration the measurements of an earlier run."""

    replayed: ReplayedCases
    earlier: Mapping[int, MeasuredCases] = field(default_factory=dict)

    def holding(self, case: Case) -> dict[str, Measurement]:
        """The measurements of an earlier run that hold for a case, by metric."""
        earlier = self.earlier.get(case.iteration)
        return earlier.of(case) if earlier is not None else {}

    def close(self) -> None:
        """Close the tables of the earlier run."""
        for measured in self.earlier.values():
            measured.close()
