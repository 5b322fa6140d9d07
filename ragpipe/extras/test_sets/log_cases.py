"""The second reading of a log: the records that were drawn, put together by sample and checked completely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragpipe.core.digest import canonical_json
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.fault_list import Faults, named_fields
from ragpipe.datasets.native_form import flat_id, output_of, sample_of
from ragpipe.extras.test_sets.log_scan import LogScan, SkippedFaults, is_askable
from ragpipe.extras.test_sets.question_draw import DrawPlan, Samples
from ragpipe.extras.test_sets.question_key import hash64, question_text

Record = dict[str, Any]


@dataclass
class DrawnSample:
    """What the log holds of one sample. Of several lines with the same method and repeat, and of several descriptions of the
    sample, the first by its JSON text is taken: it is the same whatever the order of the lines."""

    where: str = ""
    fields: tuple[str, Record] | None = None
    outputs: dict[tuple[str, Any], tuple[str, Record]] = field(default_factory=dict)

    def add(self, fields: Record, outputs: list[Record], where: str) -> None:
        """Add what a record says of the sample."""
        text = canonical_json(fields)
        if self.fields is None or text < self.fields[0]:
            self.fields, self.where = (text, fields), where
        for output in outputs:
            name = (str(output.get("method") or "default"), output.get("repeat") or 1)
            output_text = canonical_json(output)
            if name not in self.outputs or output_text < self.outputs[name][0]:
                self.outputs[name] = (output_text, output)


class LogCases:
    """The candidates of a plan as cases of the native form."""

    def __init__(self, dataset: Dataset, scan: LogScan, samples: Samples, plan: DrawPlan, faults: Faults):
        self._dataset, self._samples, self._faults = dataset, samples, faults
        self._ids: dict[str, str] = {}
        candidates = [int(sample) for stratum in plan.strata for sample in stratum.candidates]
        self._drawn = {(int(samples.keys[place]), int(samples.ids[place])): DrawnSample() for place in candidates}
        positions = np.frombuffer(scan.positions, np.uint64)
        wanted = {int(position) for place in candidates for position in positions[samples.rows_of(place)]}
        repeated = SkippedFaults(faults.title)  # the first reading has reported them
        for fields, outputs, where in self._wanted(wanted, repeated):
            drawn = self._drawn.get((hash64(question_text(fields)), hash64(flat_id(fields))))
            if drawn is not None:
                drawn.add(fields, outputs, where)
        dataset.check_whole_reading(Faults(faults.title))

    def _wanted(self, positions: set[int], faults: Faults) -> Iterator[tuple[Record, list[Record], str]]:
        """Fields, outputs and place of the cases at these positions that pass the filter."""
        passes = self._dataset.passes
        for record in self._dataset.flat_records(faults, positions):
            outputs = [output for output in record.outputs if passes({**record.fields, **output}, record.where, faults)]
            is_in = bool(outputs) or (not record.outputs and passes(record.fields, record.where, faults))
            if is_in and is_askable(record.fields, record.where, faults):
                yield record.fields, outputs, record.where

    def case_of(self, candidate: int, chunk_text: list[str] | None) -> Record | None:
        """The case of a candidate; None, and faults, where the sample or one of its outputs is wrong."""
        drawn = self._drawn[int(self._samples.keys[candidate]), int(self._samples.ids[candidate])]
        assert drawn.fields is not None, "a candidate comes from a row of the first reading"
        before = self._fault_count()
        sample = sample_of(drawn.fields[1], drawn.where, self._faults)
        if sample is None:
            return None
        outputs = [
            output_of(output, sample.id, chunk_text, drawn.where, self._faults)
            for _, (_, output) in sorted(drawn.outputs.items(), key=lambda pair: (pair[0][0], str(pair[0][1])))
        ]
        if self._fault_count() != before:
            return None
        if (place := self._ids.setdefault(sample.id, drawn.where)) != drawn.where:
            where, fix = named_fields(drawn.where, {"id": sample.id}), "map an id that names one question, or none"
            self._faults.add(where, "id", "the id of two questions", f"that of the one at {place}", fix)
            return None
        case = sample.model_dump(mode="json", exclude_defaults=True)
        records = [
            {"method": output.method, **output.model_dump(mode="json", exclude_defaults=True, exclude={"sample_id"})}
            for output in outputs
            if output is not None
        ]
        return with_outputs(case, records)

    def _fault_count(self) -> int:
        faults = self._faults
        return faults.counts.total() if isinstance(faults, SkippedFaults) else len(faults.problems)


def with_outputs(case: Mapping[str, Any], outputs: list[Record]) -> Record:
    """A case of the native form with its outputs: one beside the sample's fields, several in a list."""
    if len(outputs) == 1:
        return {**case, **outputs[0]}
    return {**case, "outputs": outputs} if outputs else dict(case)


def without_outputs(case: Mapping[str, Any], sample_fields: frozenset[str]) -> Record:
    """The question alone, for a live system to answer."""
    return {name: value for name, value in case.items() if name in sample_fields}
