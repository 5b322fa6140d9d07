"""Pairing the cases of two sides by sample, method and repeat: the shared cases alone are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY

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
    lengths = [len(table) for table in tables.values()]
    return dict(zip(tables, accumulate(lengths, initial=0), strict=False))


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
