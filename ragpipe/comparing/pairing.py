"""Pairing the cases of two sides by sample, method and repeat: the shared cases alone are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.comparing.run_differences import ChangedKey
from ragpipe.comparing.side import Side
from ragpipe.core.safe_text import on_one_line
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import OUTPUT_KEY, Chunk, Output, Sample, Turn
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches, read_columns, schema_of

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """The cases that both sides have, in the order of the base.

    `base` and `candidate` are their row numbers, `cases` their keys as the candidate names them, `questions` the number of
    each case's question: methods and repeats of one question are not independent. `only_base` and `only_candidate` count
    the cases without a partner.
    """

    base: Whole
    candidate: Whole
    cases: pa.Table
    questions: Whole
    only_base: int
    only_candidate: int

    def __len__(self) -> int:
        return len(self.base)


def paired_cases(base: pa.Table, candidate: pa.Table) -> Pairs:
    """Pair the cases of two tables with the columns `sample_id`, `method` and `repeat`.

    Where each side has one method only, cases are paired by sample and repeat although the methods' names differ.
    """
    keys = [name for name in OUTPUT_KEY if name != "method" or not one_method_each(base, candidate)]
    of_base, of_candidate = _key_codes(base, candidate, keys)
    _, at_base, at_candidate = np.intersect1d(of_base, of_candidate, return_indices=True)
    order = np.argsort(at_base, kind="stable")
    at_base, at_candidate = at_base[order].astype(np.int64), at_candidate[order].astype(np.int64)
    cases = candidate.select(list(OUTPUT_KEY)).take(pa.array(at_candidate)).combine_chunks()
    both = len(at_base)
    return Pairs(
        at_base, at_candidate, cases, _question_numbers(cases), len(base) - both, len(candidate) - both
    )  # fmt: skip


def paired_judgements(base: Mapping[int, pa.Table], candidate: Mapping[int, pa.Table]) -> Pairs:
    """Pair the cases of each iteration of the base with those of the candidate's iteration of the same number, as `paired_cases` does.

    Both have the same iterations, each a table with the columns `sample_id`, `method` and `repeat`. Row numbers are over the
    tables one after another, in the order of the base's iterations; `cases` also has the `iteration`.
    """
    parts, of_base, of_candidate = list[Pairs](), _first_rows(base), _first_rows(candidate)
    for iteration, table in base.items():
        pairs = paired_cases(table, candidate[iteration])
        cases = pairs.cases.append_column("iteration", pa.array(np.full(len(pairs), iteration, dtype=np.int64)))
        rows = pairs.base + of_base[iteration], pairs.candidate + of_candidate[iteration]
        parts.append(replace(pairs, base=rows[0], candidate=rows[1], cases=cases))
    cases = pa.concat_tables([pairs.cases for pairs in parts]).combine_chunks()
    return Pairs(
        np.concatenate([pairs.base for pairs in parts]),
        np.concatenate([pairs.candidate for pairs in parts]),
        cases,
        _question_numbers(cases),
        sum(pairs.only_base for pairs in parts),
        sum(pairs.only_candidate for pairs in parts),
    )


def _first_rows(tables: Mapping[int, pa.Table]) -> dict[int, int]:
    """The number of the first row of each table, over all of them one after another."""
    return dict(zip(tables, accumulate([len(table) for table in tables.values()], initial=0), strict=False))


def _question_numbers(cases: pa.Table) -> Whole:
    codes = cases["sample_id"].combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64)


def one_method_each(base: pa.Table, candidate: pa.Table) -> bool:
    """Whether cases are paired whatever their methods are called: each side has one."""
    return all(pc.count_distinct(table["method"]).as_py() <= 1 for table in (base, candidate))


def _key_codes(base: pa.Table, candidate: pa.Table, names: list[str]) -> tuple[Whole, Whole]:
    """One number per case of each table; equal numbers are equal keys."""
    codes = np.zeros(len(base) + len(candidate), dtype=np.int64)
    for name in names:
        column = pa.chunked_array([*base[name].chunks, *candidate[name].chunks], type=base.schema.field(name).type)
        encoded = column.combine_chunks().dictionary_encode()
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    return codes[: len(base)], codes[len(base) :]


_ID = 60


def data_differences(base: Side, candidate: Side) -> list[ChangedKey]:
    """What differs between the samples of two runs: those in one run only, and the columns that a shared one has otherwise.

    Answers are no data: what the systems gave is compared, never refused.
    """
    paths = base.folder.samples, candidate.folder.samples
    if base.folder == candidate.folder or _frozen(base) == _frozen(candidate) is not None:
        return []
    ids = [read_columns(path, ["id"])["id"].combine_chunks() for path in paths]
    at_candidate = pc.index_in(ids[0], value_set=ids[1])
    is_shared = at_candidate.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(is_shared), at_candidate.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    shared = ids[0].take(pa.array(places[0]))
    alone = len(ids[0]) - len(shared), len(ids[1]) - len(shared)
    differences = []
    if any(alone):
        differences.append(
            ChangedKey("data", "samples", f"{alone[0]:,} in the base only", f"{alone[1]:,} in the candidate only")
        )
    return [*differences, *_changed_columns(*paths, *places, shared)]


def _frozen(side: Side) -> str | None:
    """The digest of the run's table of samples."""
    digest = side.manifest["data"].get("frozen", {}).get("samples.parquet")
    return str(digest) if digest else None


def _changed_columns(
    old_path: Path, new_path: Path, old_places: Whole, new_places: Whole, ids: pa.Array
) -> Iterator[ChangedKey]:
    """A difference per column that some shared samples have otherwise, one column in memory at a time."""
    names = [set(schema_of(path).names) - {"id"} for path in (old_path, new_path)]
    for name in sorted(names[0] ^ names[1]):
        yield ChangedKey("data", name, *("a column" if name in side else "(absent)" for side in names))
    for name in sorted(names[0] & names[1]):
        old = read_columns(old_path, [name])[name].combine_chunks().take(pa.array(old_places))
        new = read_columns(new_path, [name])[name].combine_chunks().take(pa.array(new_places))
        if not old.equals(new):
            rows = [place for place, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
            text = f"{len(rows):,} of {len(ids):,} shared samples, first {on_one_line(ids[rows[0]].as_py(), _ID)}"
            yield ChangedKey("data", name, text, "another value")


Flags = NDArray[np.bool_]
_BATCH = 2048


def same_answers(base: Side, candidate: Side, pairs: Pairs) -> Flags:
    """For each pair whether question, earlier turns, answer and chunk texts are the same."""
    return np.array(_digests(base)[pairs.base] == _digests(candidate)[pairs.candidate], dtype=np.bool_)


def _digests(side: Side) -> NDArray[np.str_]:
    """The answer digest of each case of a side."""
    return np.array(list(answer_digests(side.folder)))[side.rows]


def answer_digests(folder: RunFolder) -> Iterator[str]:
    """The answer digests of all outputs of a run, in the order of the data."""
    columns = read_columns(folder.samples, ["id", "question", "history"])
    texts = zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
    samples = [
        Sample(id=name, question=question, history=[Turn(**turn) for turn in from_json(history or "[]")])
        for name, question, history in texts
    ]
    for batch in batches(folder.outputs, ["sample_row", "method", "answer", "chunks"], size=_BATCH):
        for row in batch.to_pylist():
            sample = samples[row["sample_row"]]
            chunks = None if row["chunks"] is None else from_json(row["chunks"])
            listed = None if chunks is None else [Chunk(**chunk) for chunk in chunks]
            output = Output(sample_id=sample.id, method=row["method"], answer=row["answer"], chunks=listed)
            yield answer_digest(sample, output)
