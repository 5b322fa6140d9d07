"""What a case can be grouped and chosen by: the columns of `records.parquet` that describe it, its tags, its `meta`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.score.case_blocks import CaseBlock

TEXT, WHOLE, REAL, FLAG, TEXTS = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.string())
Whole = NDArray[np.int64]

CASE = (
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant that gave the output"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("iteration", WHOLE, "repetition of the judging, from 1"),
    ("question", TEXT, "the question"),
    ("answer", TEXT, "the answer; null = not recorded"),
    ("category", TEXT, "for breakdowns"),
    ("subcategory", TEXT, "for breakdowns"),
    ("difficulty", TEXT, "for breakdowns"),
    ("question_type", TEXT, "for breakdowns"),
    ("vault", TEXT, "for breakdowns"),
    ("version", TEXT, "version of the method (its system prompt's, a release); null = not recorded"),
    ("answerable", FLAG, "whether the corpus holds the answer"),
    ("tags", TEXTS, "for breakdowns"),
    ("doc_types", TEXTS, "the different types of the retrieved documents, in rank order"),
    ("meta", TEXT, "JSON object: whatever else the data set says"),
    ("abstained", FLAG, "the system's own word that it did not answer"),
    ("system_error", TEXT, "why the system gave no answer"),
    ("retrieves", FLAG, "false: the method retrieves nothing by design (closed book)"),
    ("timings", TEXT, "JSON object: milliseconds by stage of the system"),
    ("usage", TEXT, "JSON object: the system's own token counts and cost_usd"),
    (
        "judge_duration_ms",
        REAL,
        "milliseconds that the judge took for the case: the sum over its calls; null = none was measured",
    ),
    ("citations", TEXT, "JSON list of {marker, chunk_id, text}; null = not recorded"),
    ("n_chunks", WHOLE, "retrieved chunks; null = not recorded"),
    ("n_citations", WHOLE, "references that the answer makes; null = not recorded"),
    ("n_references", WHOLE, "reference answers"),
    (
        "gold_not_indexed",
        WHOLE,
        "labelled documents of the question without a chunk in the index; null = without an index manifest or such labels",
    ),
    ("n_turns", WHOLE, "earlier turns of the conversation"),
    ("answer_chars", WHOLE, "characters of the answer; null = not recorded"),
)

# Every case has these breakdowns without being asked, where the data has the field.
DIMENSIONS = (
    "method", "version", "category", "subcategory", "difficulty", "question_type", "vault", "doc_type", "answerable", "tag",
)  # fmt: skip
LISTS = {"tag": "tags", "doc_type": "doc_types"}  # a case can be in several of their groups
_NO_FIELDS = {"tags", "doc_types", "meta", "timings", "usage", "judge_duration_ms", "citations"}
KNOWN = (*DIMENSIONS, *(name for name, _, _ in CASE if name not in DIMENSIONS and name not in _NO_FIELDS))
META = "meta."
_OF_OUTPUTS = (*OUTPUT_KEY, "answer", "version", "abstained", "timings", "usage", "citations", "retrieves")


class Coded(NamedTuple):
    """A field of some cases as pairs: case number, number of its label in `names`. A case without a value has none."""

    cases: Whole
    codes: Whole
    names: list[str]


class Fields:
    """The fields of a block of cases, each worked out once. `columns` are those of `case_columns`."""

    def __init__(self, columns: Mapping[str, pa.Array]):
        self._columns = columns
        self._n = len(columns["sample_id"])
        self._found: dict[str, Coded] = {}
        self._meta: list[dict[str, Any]] | None = None

    def of(self, field: str) -> Coded:
        """The labels of one field (a name of KNOWN, or `meta.<key>`)."""
        if field not in self._found:
            self._found[field] = self._coded(field)
        return self._found[field]

    def matching(self, where: Mapping[str, Sequence[str]]) -> NDArray[np.bool_]:
        """Which cases have, in every field of `where`, one of the labels listed there; all of them when it is empty."""
        matches = np.ones(self._n, dtype=np.bool_)
        for field, labels in where.items():
            cases, codes, names = self.of(field)
            here = np.zeros(self._n, dtype=np.bool_)
            here[cases[np.isin(codes, [code for code, name in enumerate(names) if name in labels])]] = True
            matches &= here
        return matches

    def _coded(self, field: str) -> Coded:
        if field.startswith(META):
            if self._meta is None:
                self._meta = [from_json(text) if text else {} for text in self._columns["meta"].to_pylist()]
            return _of_values([within(meta, field.removeprefix(META)) for meta in self._meta])
        column = self._columns[LISTS.get(field, field)]
        return _of_lists(column) if field in LISTS else _of_column(column)


def case_columns(
    block: CaseBlock, iteration: int, judge_ms: NDArray[np.float64], missing_gold: Mapping[str, int] | None
) -> dict[str, pa.Array]:
    """The columns of `CASE` for a block, by name. `judge_ms` is what the judge took for each case, NaN where unknown;
    `missing_gold` says of samples how many labelled documents are not in the index, None without an index manifest."""
    outputs, samples = block.outputs, block.samples
    columns = {name: samples[name] for name, _, _ in CASE if name in samples.column_names}
    columns |= {name: outputs[name] for name in _OF_OUTPUTS}
    columns["iteration"] = pa.array(np.full(len(block), iteration, dtype=np.int64))
    columns["system_error"] = outputs["error"]
    columns["judge_duration_ms"] = pa.array(judge_ms, mask=np.isnan(judge_ms))
    columns["n_chunks"], columns["doc_types"] = block.chunks.lengths, block.chunks.doc_types()
    columns["n_citations"] = _lengths(outputs["citations"])
    columns["n_references"] = pc.fill_null(pc.list_value_length(samples["references"]), 0).cast(WHOLE)
    columns["gold_not_indexed"] = _gold_not_indexed(samples, missing_gold)
    columns["n_turns"] = pc.fill_null(_lengths(samples["history"]), 0)
    columns["answer_chars"] = pc.utf8_length(outputs["answer"]).cast(WHOLE)
    return {
        name: column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for name, column in columns.items()
    }


F = TypeVar("F", bound=Iterable[str])


def field_fault(field: str, further: Iterable[str] = ()) -> str | None:
    """Why this is no field of a case, nor one of the `further` ones; None when it is one."""
    known = (*KNOWN, *further)
    if field in known or (field.startswith(META) and len(field) > len(META)):
        return None
    return f"unknown field {field!r}{nearest_field(field, known)}; known: {', '.join(sorted(known))}, meta.<key>"


def check_fields(fields: F) -> F:
    """The fields unchanged. Raises ValueError for the first that is no field of a case."""
    if fault := next(filter(None, map(field_fault, fields)), None):
        raise ValueError(fault)
    return fields


def nearest_field(name: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` for the most similar known name, empty when none is similar."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def within(meta: Mapping[str, Any], path: str) -> Any:
    """A value of `meta` by its key, or by a dotted path into nested objects."""
    if path in meta:
        return meta[path]
    value: Any = meta
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def field_labels(value: Any) -> list[str]:
    """A field's value as labels: none for null, each item of a list once, booleans as in JSON."""
    if value is None:
        return []
    if isinstance(value, list):
        return list(dict.fromkeys(label for item in value for label in field_labels(item)))
    return [value] if isinstance(value, str) else [json.dumps(value, sort_keys=True, ensure_ascii=False)]


def _of_values(values: Sequence[Any]) -> Coded:
    """Of values that may be lists: one pair for each label."""
    numbers: dict[str, int] = {}
    labels = ((case, text) for case, value in enumerate(values) for text in field_labels(value))
    pairs = [(case, numbers.setdefault(text, len(numbers))) for case, text in labels]
    coded = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Coded(coded[:, 0], coded[:, 1], list(numbers))


def _of_lists(column: pa.Array) -> Coded:
    """Of a column of lists of texts; a label that occurs twice in a list counts once."""
    encoded = column.flatten().dictionary_encode()
    present = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
    codes = encoded.indices.take(pa.array(present)).to_numpy(zero_copy_only=False).astype(np.int64)
    cases = pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)[present]
    names = encoded.dictionary.to_pylist()
    pairs = np.unique(cases * max(len(names), 1) + codes)
    return Coded(pairs // max(len(names), 1), pairs % max(len(names), 1), names)


def _of_column(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode()
    present = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
    codes = encoded.indices.take(pa.array(present)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(present, codes, [field_labels(value)[0] for value in encoded.dictionary.to_pylist()])


def _gold_not_indexed(samples: pa.Table, missing_gold: Mapping[str, int] | None) -> pa.Array:
    """Of each sample how many of its labelled documents are not in the index; null where nothing says so."""
    if missing_gold is None:
        return pa.nulls(len(samples), WHOLE)
    documents = pc.fill_null(pc.list_value_length(samples["relevant_docs"]), 0)
    anchors = pc.fill_null(_lengths(samples["anchors"]), 0)
    is_labelled = pc.greater(pc.add(documents.combine_chunks(), anchors), 0)
    counts = pa.array([missing_gold.get(name, 0) for name in samples["id"].to_pylist()], type=WHOLE)
    return pc.if_else(is_labelled, counts, pa.scalar(None, WHOLE))


def _lengths(lists: pa.ChunkedArray) -> pa.Array:
    encoded = lists.combine_chunks().dictionary_encode()
    lengths = pa.array([len(from_json(text)) for text in encoded.dictionary.to_pylist()], type=WHOLE)
    return lengths.take(encoded.indices)
