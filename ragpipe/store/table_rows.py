"""Arrow schemas of the run folder's tables, and the way between the nouns and their rows.

Chunks are columns: a list of objects with fixed types, of which a reader opens the fields that it needs. Other parts with an inner
structure (anchors, messages ...) stand as JSON text: readable by every tool, and free of the type guesses that nested columns
invite. Column meanings are in the schemas' metadata (`description`), from which the
file-format page is generated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque, namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic_core import from_json, to_json

from ragpipe.core.sample import MOST, OUTPUT_KEY, Output, PairedOutput, Policy, Sample
from ragpipe.store.run_tables import (
    BATCH,
    batches_at,
    group_starts,
    is_json,
    open_parquet_file,
    reading_table,
    run_file_error,
    schema_of,
)

TEXT, WHOLE, REAL, FLAG, TEXTS = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.string())
CHUNK = pa.struct(
    [
        ("id", TEXT),
        ("doc_id", TEXT),
        ("rank", WHOLE),
        ("score", REAL),
        ("text", TEXT),
        ("rel_path", TEXT),
        ("heading_path", TEXT),
        ("doc_type", TEXT),
        ("policy", TEXT),
    ]
)
CHUNKS = pa.list_(CHUNK)


def table_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """A schema of columns: name, type, and description, which the file keeps."""
    return pa.schema([pa.field(name, kind, metadata={"description": text}) for name, kind, text in columns])


_IDENTITY = (
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant that gave the output"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("iteration", WHOLE, "repetition of the judging, from 1"),
)

SAMPLES = table_schema(
    ("id", TEXT, "the sample's id, unique in this table"),
    ("question", TEXT, "the question, or the last user turn"),
    ("history", TEXT, "JSON list of earlier turns {role, text}"),
    ("references", TEXTS, "reference answers"),
    ("relevant_docs", TEXTS, "ids of relevant documents; null = unlabelled"),
    ("relevant_chunks", TEXTS, "ids of relevant chunks; null = unlabelled"),
    ("gains", TEXT, "JSON object id -> graded relevance; null = unlabelled"),
    ("anchors", TEXT, "JSON list of gold places {rel_path, heading_path, snippets, role}; null = unlabelled"),
    ("required_support_groups", TEXT, "JSON list of groups; each is met by any one of its members"),
    ("recency_conflict_rule", TEXT, "cite_newer, cite_both or acknowledge_both"),
    ("answerable", FLAG, "whether the corpus holds the answer"),
    ("expected", TEXT, "JSON object: what a right answer does"),
    ("category", TEXT, "for breakdowns"),
    ("subcategory", TEXT, "for breakdowns"),
    ("difficulty", TEXT, "for breakdowns"),
    ("question_type", TEXT, "for breakdowns"),
    ("vault", TEXT, "for breakdowns"),
    ("tags", TEXTS, "for breakdowns"),
    ("meta", TEXT, "JSON object: whatever else the data set says; no metric reads it"),
)

OUTPUTS = table_schema(
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("sample_row", WHOLE, "row of the sample in samples.parquet"),
    ("answer", TEXT, "the answer; null = not recorded"),
    ("chunks", CHUNKS, "retrieved chunks in rank order, each with these fields; null = not recorded"),
    ("citations", TEXT, "JSON list of {marker, chunk_id, text}; null = not recorded"),
    ("version", TEXT, "version of the method (its system prompt's, a release); null = not recorded"),
    ("abstained", FLAG, "the system's own word that it did not answer"),
    ("folder_mode", TEXT, "off, on or on_with_fallback"),
    ("selected_folders", TEXTS, "folders that the search was narrowed to"),
    ("timings", TEXT, "JSON object: milliseconds by stage"),
    ("usage", TEXT, "JSON object: the system's own token counts and cost_usd"),
    ("error", TEXT, "why the system gave no answer"),
    ("retrieves", FLAG, "false: the method retrieves nothing by design (closed book)"),
    ("attempts", WHOLE, "requests that the output took; null = not counted"),
    ("recorded", TEXT, "JSON object name -> what people or other judges said: a verdict, or a list or object of them"),
)

OTHER_ANSWER = "other_answer"
PAIRS = OUTPUTS.append(pa.field(OTHER_ANSWER, TEXT, metadata={"description": "the answer of the base; null = it gave none"}))
"""Of `outputs.parquet` of a preference run, whose outputs are those of the candidate."""

SCORES = table_schema(
    *_IDENTITY,
    ("metric", TEXT, "the metric's name in the config"),
    ("score_name", TEXT, "the score's name"),
    ("value", REAL, "in the native scale; null unless status is ok"),
    ("status", TEXT, "ok, skipped or error"),
    ("reason", TEXT, "why skipped, what failed, or the judge's feedback"),
    ("details", TEXT, "JSON object: claims, verdicts, flags"),
    ("calls", TEXTS, "keys of the calls it rests on"),
)

JUDGE_INPUTS = table_schema(
    *_IDENTITY,
    ("metric", TEXT, "who asked"),
    ("step", TEXT, "the prompt step"),
    ("turn", TEXT, "ask, or repair: the second attempt after an unreadable reply"),
    ("payload_id", TEXT, "hash of messages and answer schema"),
    ("key", TEXT, "hash of payload, judge and iteration: the call's name in the store"),
    ("judge", TEXT, "printable name of the judge"),
    ("template", TEXT, "<folder>/<step>; null for a text to the embedder (step embed)"),
    ("template_version", TEXT, "v1, v2, ..."),
    ("template_sha256", TEXT, "hash of the template's text without comments"),
    ("messages", TEXT, "JSON list of {role, content}; null with keep_messages=false"),
    ("schema", TEXT, "JSON object: the answer's schema, keys in their order; null with keep_messages=false"),
    ("answer", TEXT, "name of the type that the reply is read as"),
    ("reply", TEXT, "the raw reply; of step embed the float32 bytes of the vector in base64"),
    ("status", TEXT, "ok, the kind of failure, or skipped: a rules judge that cannot answer"),
    ("message", TEXT, "the failure in words"),
    ("flags", TEXTS, "how the reply had to be read (json_repaired, text_form, ...): docs/how-a-run-works.md"),
    ("model", TEXT, "the model that the provider says it was"),
    ("fingerprint", TEXT, "the provider's system_fingerprint"),
    ("finish_reason", TEXT, "the provider's"),
    ("tokens_in", WHOLE, "prompt tokens; null = not reported"),
    ("tokens_out", WHOLE, "completion tokens; null = not reported"),
    ("tokens_cached", WHOLE, "prompt tokens the provider had cached"),
    ("tokens_reasoning", WHOLE, "completion tokens that the model thought with"),
    ("tokens_written", WHOLE, "prompt tokens the provider wrote to its cache"),
    ("paid_by", TEXT, "<run_id>/<iteration> that paid for the reply; null = not paid for"),
    ("paid_usd", REAL, "what the reply cost on that day; null = unknown (cost.json prices it anew)"),
    ("latency_ms", REAL, "of the try that answered"),
    ("attempts", WHOLE, "HTTP tries"),
    ("output_mode", TEXT, "json_schema, json_object or plain"),
    ("sent", TEXT, "JSON object: sampling parameters that really went over the wire"),
    ("wire_hash", TEXT, "sha256 of the request body"),
)

INDEX = table_schema(
    ("document", TEXT, "the document's id, unique in this table"),
    ("doc_type", TEXT, "its type; null = not in the manifest"),
    ("rel_paths", TEXTS, "paths by which anchors name it"),
    ("chunks", WHOLE, "its chunks in the index; with 0 no search finds it"),
    ("tokens", WHOLE, "tokens of these chunks; null = not in the manifest"),
)

_SAMPLE_ROW = OUTPUTS.get_field_index("sample_row")
_CELLS_OF_SAMPLE = attrgetter(*SAMPLES.names)
# `repeat` stands where `sample_row` comes
_CELLS_OF_OUTPUT = attrgetter(*("repeat" if name == "sample_row" else name for name in OUTPUTS.names))
_CHUNK_FIELDS = tuple(field.name for field in CHUNK)
_CELLS_OF_CHUNK = attrgetter(*_CHUNK_FIELDS)
_LIST_OF_CHUNKS = OUTPUTS.get_field_index("chunks")
PASSAGE = _CHUNK_FIELDS.index("text")
"""Place of the text among the cells of a chunk."""
Cells = list[Any]
"""A row, in the order of its columns."""


def sample_row(sample: Sample) -> Cells:
    """A sample as a row of `samples.parquet`."""
    return _with_json(list(_CELLS_OF_SAMPLE(sample)), SAMPLES)


def output_row(output: Output, sample_row: int) -> Cells:
    """An output as a row of `outputs.parquet`, its chunks as tuples of their cells."""
    cells = _with_json(list(_CELLS_OF_OUTPUT(output)), OUTPUTS)
    cells[_SAMPLE_ROW] = sample_row
    if output.chunks is not None:
        cells[_LIST_OF_CHUNKS] = list(map(_CELLS_OF_CHUNK, output.chunks))
    if isinstance(output, PairedOutput):
        cells.append(output.other_answer)
    return cells


def filled_columns(table: pa.Table) -> pa.Table:
    """The columns that hold anything: most data sets leave the others empty, and rows without them are read in half the time. The other
    answers of pairs stay all the same."""
    names = [f.name for f in table.schema if table[f.name].null_count < table.num_rows or f.name == OTHER_ANSWER]
    return table.select(names)


def sample_json(row: dict[str, Any]) -> bytes:
    """A row of `samples.parquet` as the JSON text of its sample: a quarter of the memory of the row. A column that is left out is null."""
    plain = {name: value for name, value in row.items() if value is not None and name not in _JSON_OF_SAMPLE}
    pieces = [f',"{name}":{row[name]}' for name in _JSON_OF_SAMPLE if row.get(name) is not None]  # they stand as they are
    return to_json(plain)[:-1] + "".join(pieces).encode() + b"}"


def sample_from(text: bytes) -> Sample:
    """A sample from its JSON text. Raises ValueError for a damaged one."""
    return Sample.model_validate_json(text)


class _OutputOfCells(Output):
    model_config = ConfigDict(defer_build=True, title="Output")
    chunks: Any = None


def output_from(row: dict[str, Any], *, cells: bool = False) -> Output:
    """A row of `outputs.parquet` as an output; a column that is left out is null. With `cells` its chunks stay the `ChunkCells` that
    `rows_with_cells` made of them. Raises ValueError for a damaged one. With a column `other_answer` it is one of a pair."""
    noun = _OutputOfCells if cells else PairedOutput if OTHER_ANSWER in row else Output
    given = ((name, value) for name, value in row.items() if value is not None and name != "sample_row")
    return noun.model_validate({name: from_json(value) if name in _JSON_OF_OUTPUT else value for name, value in given})


ChunkCells = namedtuple("ChunkCells", [field.name for field in CHUNK])  # type: ignore[misc]
"""A chunk as it stands in its table: the fields of `Chunk`, and none of its methods."""


def has_plain_chunks(table: pa.Table) -> bool:
    """Whether rows of `outputs.parquet` may be read with `ChunkCells`: no pairs, and every chunk is what a `Chunk` may be."""
    if OTHER_ANSWER in table.column_names or "chunks" not in table.column_names or table["chunks"].type != CHUNKS:
        return False
    chunks = table["chunks"].combine_chunks().flatten()
    ranks, known = chunks.field("rank"), pa.array(get_args(Policy))
    rules = [
        chunks.is_valid(),
        *(chunks.field(name).is_valid() for name in ("id", "rank", "text", "policy")),
        pc.and_(pc.greater_equal(ranks, 1), pc.less_equal(ranks, MOST)),
        pc.is_in(chunks.field("policy"), value_set=known),
        pc.is_finite(chunks.field("score")),
    ]
    return not any(pc.any(pc.invert(rule)).as_py() for rule in rules)


def rows_with_cells(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of `outputs.parquet` with each chunk as `ChunkCells`; of a table that `has_plain_chunks`."""
    rows: list[dict[str, Any]] = table.drop_columns("chunks").to_pylist()
    lists = table["chunks"].combine_chunks()
    chunks = lists.flatten()
    cells = map(ChunkCells._make, zip(*(chunks.field(name).to_pylist() for name in _CHUNK_FIELDS), strict=True))
    for row, size in zip(rows, pc.list_value_length(lists).to_pylist(), strict=True):
        row["chunks"] = None if size is None else list(islice(cells, size))
    return rows


def output_columns(outputs: Path, names: Sequence[str] = OUTPUTS.names) -> list[str]:
    """These columns of a table of outputs, and the other answers where it is of pairs. Raises DataError."""
    return [*names, *([OTHER_ANSWER] if OTHER_ANSWER in schema_of(outputs).names else [])]


def table_of(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table with exactly this schema, column by column (four times as fast as `from_pylist`)."""
    return table_from({f.name: [row[f.name] for row in rows] for f in schema}, schema)


def table_of_cells(rows: Sequence[Cells], schema: pa.Schema) -> pa.Table:
    """Rows of cells, at least one, as a table with exactly this schema."""
    return table_from(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema)


def table_from(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Columns as a table with exactly this schema."""
    arrays = [_chunk_lists(columns[f.name]) if f.type == CHUNKS else pa.array(columns[f.name], type=f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _chunk_lists(cases: Sequence[Sequence[tuple[Any, ...]] | None]) -> pa.ListArray:
    offsets = np.cumsum([0, *(len(chunks or ()) for chunks in cases)])
    cells = zip(*(chunk for chunks in cases for chunk in chunks or ()), strict=True)
    values = list(cells) or [()] * CHUNK.num_fields
    arrays = [pa.array(column, type=field.type) for column, field in zip(values, CHUNK, strict=True)]
    chunks = pa.StructArray.from_arrays(arrays, fields=list(CHUNK))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), chunks, mask=pa.array([case is None for case in cases], FLAG)
    )


_JSON_OF_SAMPLE, _JSON_OF_OUTPUT = (tuple(f.name for f in schema if is_json(f)) for schema in (SAMPLES, OUTPUTS))
_USER_PARTS = frozenset({"meta", "recorded"})


# place of each column of JSON, and whether fields without a value are left out: a None in the user's own parts stays
_JSON_CELLS = {
    id(schema): [(place, field.name not in _USER_PARTS) for place, field in enumerate(schema) if is_json(field)]
    for schema in (SAMPLES, OUTPUTS)
}


def _with_json(cells: Cells, schema: pa.Schema) -> Cells:
    """The row of a noun, with its structured parts as JSON text."""
    for place, exclude_none in _JSON_CELLS[id(schema)]:
        value = cells[place]
        if value:
            cells[place] = to_json(value, exclude_none=exclude_none).decode()
        elif value is not None:
            cells[place] = "[]" if isinstance(value, list) else "{}"
    return cells


Row = dict[str, Any]
OutputKey = tuple[str, str, int]
_Stretch = tuple[OutputKey, int, int, int]
"""Rows of one case: the row group, the first row there, and the row after the last."""


def rows_in_order(path: Path, columns: Sequence[str], places: NDArray[np.int64]) -> Iterator[Row]:
    """The rows at these places (from 0, rising), these columns of them. Raises DataError."""
    for batch in batches_at(path, places, columns):
        for start in range(0, batch.num_rows, BATCH):
            yield from batch.slice(start, BATCH).to_pylist()


class PlacedRows:
    """The rows of a table by their places, from 0. The two row groups that were used last stay in memory. Raises
    DataError."""

    def __init__(self, path: Path):
        self._path, self._file = path, open_parquet_file(path)
        self._rows = lru_cache(maxsize=2)(lambda group: self._file.read_row_group(group).to_pylist())
        self._starts = group_starts(self._file)

    def get(self, place: int) -> Row | None:
        """The row at a place; None where there is none."""
        if not 0 <= place < self._starts[-1]:
            return None
        group = bisect_right(self._starts, place) - 1
        with reading_table(self._path):
            row: Row = self._rows(group)[place - self._starts[group]]
            return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class CaseOrderedRows:
    """The rows of cases in a table of one iteration, whose rows are in the order in which the cases are asked for, as all
    tables of an iteration are. A case is named by its sample, method and repeat. Each row group is read once; of the columns
    `wide` only those groups that have a case which needs them. Rows of other cases than `among` are passed over. Raises
    DataError."""

    def __init__(
        self, path: Path, columns: Sequence[str], wide: Sequence[str] = (), *, among: Collection[OutputKey] | None = None
    ):
        self._path, self._among = path, among
        self._file = open_parquet_file(path, [*OUTPUT_KEY, *columns, *wide])
        self._columns, self._all_columns = tuple(columns), (*columns, *wide)
        self._read = lru_cache(maxsize=3)(lambda group, names: self._file.read_row_group(group, columns=list(names)))
        self._next_group = 0
        self._stretches: deque[_Stretch] = deque()

    def take(self, cases: Collection[OutputKey], wide: Collection[OutputKey] = ()) -> dict[OutputKey, list[Row]]:
        """The rows of the next cases; those of `wide` with its columns too. Every case, or every one of `among`, is asked for
        at some time."""
        rows: dict[OutputKey, list[Row]] = {case: [] for case in cases}
        with reading_table(self._path):
            while self._has_more() and self._stretches[0][0] in rows:
                part = self._next_part(rows, wide)
                case, group, first, _ = part[0]
                table = self._read(group, self._all_columns if case in wide else self._columns)
                listed = table.slice(first, part[-1][3] - first).to_pylist()
                for case, _, start, stop in part:
                    rows[case] += listed[start - first : stop - first]
        return rows

    def _next_part(self, asked: Collection[OutputKey], wide: Collection[OutputKey]) -> list[_Stretch]:
        """The next stretches that are one in a row group, and take the same columns: reading them one by one would cost twice as much."""
        part = [self._stretches.popleft()]
        is_wide, place = part[0][0] in wide, (part[0][1], part[0][3])
        while self._stretches:
            case, group, start, stop = self._stretches[0]
            if (group, start) != place or case not in asked or (case in wide) != is_wide:
                break
            part.append(self._stretches.popleft())
            place = group, stop
        return part

    def _has_more(self) -> bool:
        """Whether rows of a case follow that is asked for. The row groups are looked at up to the next one that has any."""
        while not self._stretches and self._next_group < self._file.num_row_groups:
            for case, start, stop in _runs(self._read(self._next_group, OUTPUT_KEY)):
                if self._among is None or case in self._among:
                    self._stretches.append((case, self._next_group, start, stop))
            self._next_group += 1
        return bool(self._stretches)

    def check_end(self) -> None:
        """Once all cases were asked for: raises DataError where rows were left."""
        with reading_table(self._path):
            is_left = self._has_more()
        if is_left:
            content = "rows of other cases, or in another order"
            raise run_file_error(self._path, content, "the rows of the cases of records.parquet, in its order")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _runs(keys: pa.Table) -> list[tuple[OutputKey, int, int]]:
    """The stretches of rows of one case: the case, its first row, and the row after its last one."""
    if not keys.num_rows:
        return []
    changes = np.zeros(keys.num_rows - 1, bool)
    for name in OUTPUT_KEY:
        column = keys[name].combine_chunks()
        changes |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), keys.num_rows]
    firsts = keys.take(pa.array(bounds[:-1]))
    names = zip(*(firsts[name].to_pylist() for name in OUTPUT_KEY), strict=True)
    return [(name, start, stop) for name, (start, stop) in zip(names, pairwise(bounds), strict=True)]
