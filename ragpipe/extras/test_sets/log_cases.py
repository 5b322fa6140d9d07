"""The second reading of a log: the records that were drawn, put together by sample and checked completely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragpipe.core.digest import canonical_json
from ragpipe.data.dataset import Dataset
from ragpipe.data.faults import Faults, named_fields
from ragpipe.data.native_form import content_id, flat_id, output_of, sample_of
from ragpipe.extras.test_sets.english import word_set
from ragpipe.extras.test_sets.log_scan import LogScan, Samples, SkippedFaults, askable_cases, hash64, question_text
from ragpipe.extras.test_sets.personal_data import find_personal_data

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
            name, text = (str(output.get("method") or "default"), output.get("repeat") or 1), canonical_json(output)
            if name not in self.outputs or text < self.outputs[name][0]:
                self.outputs[name] = (text, output)


class LogCases:
    """The drawn samples, `candidates`, as cases of the native form."""

    def __init__(self, dataset: Dataset, scan: LogScan, samples: Samples, candidates: Sequence[int], faults: Faults):
        self._dataset, self._samples, self._faults = dataset, samples, faults
        self._ids: dict[str, str] = {}
        self._drawn = {(int(samples.keys[place]), int(samples.ids[place])): DrawnSample() for place in candidates}
        positions = np.frombuffer(scan.positions, np.uint64)
        wanted = {int(position) for place in candidates for position in positions[samples.rows_of(place)]}
        repeated = SkippedFaults(faults.title)  # the first reading has reported them
        for record, outputs in askable_cases(dataset, repeated, LogScan(), wanted):
            key = hash64(question_text(record.fields)), hash64(flat_id(record.fields))
            if (drawn := self._drawn.get(key)) is not None:
                drawn.add(record.fields, outputs, record.where)
        dataset.check_whole_reading(Faults(faults.title))

    def case_of(self, candidate: int, chunk_text: list[str] | None) -> Record | None:
        """The case of a candidate; None, and faults, where the sample or one of its outputs is wrong."""
        drawn = self._drawn[int(self._samples.keys[candidate]), int(self._samples.ids[candidate])]
        assert drawn.fields is not None, "a candidate comes from a row of the first reading"
        before = self._fault_count()
        if (sample := sample_of(drawn.fields[1], drawn.where, self._faults)) is None:
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


UNTOUCHED = word_set(
    "method version role marker doc_id chunk_id rel_path doc_type policy relevant_docs relevant_chunks gains required_support_groups "
    "recency_conflict_rule folder_mode selected_folders recorded behavior"
)
"""Fields that name methods and documents, and labels: a placeholder in them would break what refers to them."""


class Placeholders:
    """The placeholders of one case: `<EMAIL>` for the first address, `<EMAIL_2>` for the second, and so on.

    `counts` are the replaced places by kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def replaced(self, text: str) -> str:
        """The text with a placeholder for everything that is found in it."""
        pieces, end = [], 0
        for place in find_personal_data(text):
            pieces += [text[end : place.start], self._name_of(place.kind, place.identity)]
            end = place.end
            self.counts[place.kind] += 1
        return "".join([*pieces, text[end:]]) if pieces else text

    def _name_of(self, kind: str, identity: str) -> str:
        if (kind, identity) not in self._names:
            self._numbers[kind] += 1
            number = self._numbers[kind]
            self._names[kind, identity] = f"<{kind}>" if number == 1 else f"<{kind}_{number}>"
        return self._names[kind, identity]


def without_personal_data(case: Mapping[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    """A case of the native form with placeholders in all its texts, and the number of replaced places by kind.

    Names of methods and documents, ids of chunks and labels stay (`UNTOUCHED`). An id of the case that holds personal data
    becomes the hash of what the case asks.
    """
    placeholders = Placeholders()
    ordered = {name: case[name] for name in ("history", "question") if name in case}  # numbered as they are read
    ordered |= {name: value for name, value in case.items() if name not in ("id", *ordered)}
    stripped = _stripped(ordered, placeholders)
    counts, case_id = Counter(placeholders.counts), case["id"]
    if find_personal_data(case_id):
        counts["ID"] += 1
        case_id = content_id(stripped)
    return {"id": case_id, **{name: stripped[name] for name in case if name != "id"}}, counts


def _stripped(value: Any, placeholders: Placeholders, *, is_chunk: bool = False) -> Any:
    if isinstance(value, str):
        return placeholders.replaced(value)
    if isinstance(value, Mapping):
        return {
            name: item
            if name in UNTOUCHED or (is_chunk and name == "id")
            else _stripped(item, placeholders, is_chunk=name in ("chunks", "contexts"))
            for name, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_stripped(item, placeholders, is_chunk=is_chunk) for item in value]
    return value


def without_meta(case: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """A case without these names below `meta` (dotted for inner ones), and those of them that it had."""
    meta, dropped = case.get("meta"), []
    for name in names:
        if isinstance(meta, Mapping) and (rest := _without(meta, name.split("."))) is not None:
            meta = rest
            dropped.append(name)
    return ({**case, "meta": meta} if dropped else dict(case)), dropped


def _without(mapping: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
    """The mapping without the key at a path, None where it is not there."""
    if path[0] not in mapping:
        return None
    if len(path) == 1:
        return {name: item for name, item in mapping.items() if name != path[0]}
    inner = mapping[path[0]]
    rest = _without(inner, path[1:]) if isinstance(inner, Mapping) else None
    return None if rest is None else {**mapping, path[0]: rest}
