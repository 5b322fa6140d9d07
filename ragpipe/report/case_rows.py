"""The rows of the page's list: the cases of an iteration, column by column, without their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.comparison.headline import headline_scores
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.report.page_file import case_name
from ragpipe.report.report_data import table_scores
from ragpipe.score.iterations import members
from ragpipe.store.run_tables import BATCH, open_table

Whole = NDArray[np.int64]

QUESTION_MAX = 200
"""Characters of a question in the list."""
NO_VERDICT, FAILED, PASSED, ERROR, SKIPPED, ABSENT = range(6)
"""The codes of the verdict columns. A score without a verdict has a value and no threshold; an absent one has no row."""
_OVERALL = "overall_score"
_MODES = ("failure_modes", "diagnosis", "flags")
_RANK = re.compile(r"(.+)@(\d+)")


@dataclass(frozen=True)
class SliceField:
    """A field of the breakdowns: its values, and per case the number of its value from 1 (0: none), or per value a flag of each
    case where a case may have several."""

    name: str
    values: Sequence[str]
    codes: NDArray[Any] | None
    flags: Sequence[NDArray[np.uint8]] = ()


@dataclass(frozen=True)
class CaseRows:
    """The cases of the page in the order of `records.parquet`.

    Attributes:
        metrics: `metrics.json` of the iteration.
        full: The numbers of the cases that the page has in full, rising.
        sample_ids: The sample of each case.
        methods: The method of each case.
        repeats: The repeat of each case.
        questions: The question of each case, on one line, at most `QUESTION_MAX` characters.
        values: Per score the values in its native scale; NaN is missing.
        verdicts: Per score the verdict codes.
        modes: Per failure mode, diagnosis and flag of a case (`suspicious`, `degenerate`) whether each case has it.
        failed: How many scores each case failed, at most 255.
        fields: The fields of the breakdowns.
    """

    metrics: Mapping[str, Any]
    full: Whole
    sample_ids: list[str]
    methods: list[str]
    repeats: list[int]
    questions: list[str]
    values: Mapping[str, NDArray[np.float32]]
    verdicts: Mapping[str, NDArray[np.uint8]]
    modes: Mapping[str, NDArray[np.uint8]]
    failed: NDArray[np.uint8]
    fields: Sequence[SliceField]

    def __len__(self) -> int:
        return len(self.sample_ids)

    @property
    def scores(self) -> list[str]:
        """The scores in the order of the page: the headline scores, of which the overall score is the first, then the others."""
        return list(self.values)

    @cached_property
    def headline(self) -> list[str]:
        """The scores that the verdict of the run hangs on."""
        return headline_scores(self.metrics, self.metrics, self.scores)

    @property
    def main(self) -> str:
        """The score that filters and order are about unless another is chosen; empty for a run without scores."""
        return next(iter([*self.headline, *self.scores]), "")

    @cached_property
    def names(self) -> list[str]:
        """The cases as addresses name them: the method is in it only where the run has several."""
        single = len(set(self.methods)) < 2
        cases = zip(self.sample_ids, self.methods, self.repeats, strict=True)
        return [case_name(sample, None if single else method, repeat) for sample, method, repeat in cases]

    def worst_first(self) -> Whole:
        """The numbers of the cases: by the main score, the worst first, those without it last; then by failed scores, most first."""
        values = self.values.get(self.main, np.full(len(self), np.nan, np.float32))
        worth = np.nan_to_num(values.astype(np.float64) * self.direction(self.main), nan=np.inf)
        return np.lexsort([-self.failed.astype(np.int64), worth])  # which is stable

    def direction(self, score: str) -> int:
        """1 where more of a score is better, else -1."""
        declared = self.metrics["declared"].get(score)
        return 1 if declared is None or declared["higher_is_better"] else -1

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of the page: `f:<score>` values, `v:<score>` verdicts, `m:<mode>` and `s:<field>:<value>` flags, `c:<field>`
        codes, `failed`."""
        columns: dict[str, NDArray[Any]] = {f"f:{name}": values for name, values in self.values.items()}
        columns |= {f"v:{name}": codes for name, codes in self.verdicts.items()}
        columns |= {f"m:{name}": flags for name, flags in self.modes.items()}
        for field in self.fields:
            if field.codes is not None:
                columns[f"c:{field.name}"] = field.codes
            columns |= {f"s:{field.name}:{value}": flags for value, flags in zip(field.values, field.flags, strict=False)}
        return columns | {"failed": self.failed}

    def index(self) -> dict[str, Any]:
        """The names of the rows, and what the page knows of their columns, as plain JSON. Questions stand there once per sample."""
        samples = {name: number for number, name in enumerate(dict.fromkeys(self.sample_ids))}
        methods = {name: number for number, name in enumerate(dict.fromkeys(self.methods))}
        questions = dict(zip(reversed(self.sample_ids), reversed(self.questions), strict=True))
        return {
            "samples": list(samples),
            "questions": [questions[name] for name in samples],
            "sample": [samples[name] for name in self.sample_ids],
            "methods": list(methods),
            "method": [methods[name] for name in self.methods],
            "repeat": self.repeats,
            "scores": [self._score(name) for name in self.scores],
            "main": self.main,
            "fields": [
                {"name": field.name, "values": list(field.values), "flags": field.codes is None} for field in self.fields
            ],
            "modes": list(self.modes),
            "full": None if len(self.full) == len(self) else self.full.tolist(),
        }

    def _score(self, name: str) -> dict[str, Any]:
        declared = self.metrics["declared"].get(name, {})
        rank = _RANK.fullmatch(name)
        return {
            "name": name,
            "headline": name in self.headline,
            "better": self.direction(name),
            "low": declared.get("low"),
            "high": declared.get("high"),
            "threshold": declared.get("threshold"),
            "rank": [rank[1], int(rank[2])] if rank else None,
        }


def read_case_rows(records: Path, metrics: Mapping[str, Any], in_full: int | None = None) -> CaseRows:
    """All cases of an iteration; `in_full` is how many of them the page has in full: the worst ones, with all cases of their questions
    (None: all). `metrics` is its `metrics.json`, or that of all iterations. Raises DataError."""
    with open_table(records, (*OUTPUT_KEY, "question")) as file:
        table = _Columns(file)
        names = [name for name in table_scores(metrics) if name in table.known]
        headline = headline_scores(metrics, metrics, names)
        names.sort(key=lambda name: headline.index(name) if name in headline else len(headline))
        sample_ids, methods, repeats = (table.read(name).to_pylist() for name in OUTPUT_KEY)
        rows = CaseRows(
            metrics,
            np.arange(len(sample_ids)),
            sample_ids,
            methods,
            repeats,
            list(table.questions()),
            {name: table.numbers(name) for name in names},
            {name: table.verdicts(name) for name in names},
            table.modes(),
            table.failed(),
            list(_fields(records, metrics, len(sample_ids))),
        )
    if in_full is None or len(rows) <= in_full:
        return rows
    samples = np.unique(np.array(sample_ids, object), return_inverse=True)[1]
    return replace(rows, full=_of_worst_questions(rows.worst_first(), samples, in_full))


def _of_worst_questions(order: Whole, samples: Whole, most: int) -> Whole:
    """The places of the cases of as many questions as `most` cases have, at least of one: a question by its worst case."""
    different, firsts = np.unique(samples[order], return_index=True)
    questions = different[np.argsort(firsts)]
    sizes = np.cumsum(np.bincount(samples)[questions])
    kept = questions[: max(1, int(np.searchsorted(sizes, most, side="right")))]
    return np.flatnonzero(np.isin(samples, kept))


class _Columns:
    """Columns of `records.parquet`, one at a time; `known` are those that it has."""

    def __init__(self, records: pq.ParquetFile):
        self._file, self.known = records, set(records.schema_arrow.names)

    def read(self, name: str) -> pa.ChunkedArray:
        return self._file.read(columns=[name])[name]

    def questions(self) -> Iterator[str]:
        for batch in self._file.iter_batches(BATCH, columns=["question"]):
            for text in batch.column(0).to_pylist():
                yield " ".join((text or "")[:QUESTION_MAX].split())

    def numbers(self, name: str) -> NDArray[np.float32]:
        numbers: NDArray[np.float64] = self.read(name).cast(pa.float64()).to_numpy()
        return numbers.astype(np.float32)

    def verdicts(self, name: str) -> NDArray[np.uint8]:
        passed_name, status_name = ("overall_passed", "") if name == _OVERALL else (f"{name}.passed", f"{name}.status")
        codes = np.full(self._file.metadata.num_rows, NO_VERDICT, np.uint8)
        if passed_name in self.known:
            passed = self.numbers(passed_name)
            codes[passed == 0], codes[passed == 1] = FAILED, PASSED
        if status_name in self.known:
            status = pc.fill_null(self.read(status_name).cast(pa.string()), "")
            for word, code in (("error", ERROR), ("skipped", SKIPPED), ("", ABSENT)):
                codes[pc.equal(status, word).to_numpy()] = code
        return codes

    def modes(self) -> dict[str, NDArray[np.uint8]]:
        """The failure modes and diagnoses that a case has, the most frequent first."""
        flags: dict[str, NDArray[np.uint8]] = {}
        for column in (name for name in _MODES if name in self.known):
            lists = self.read(column).combine_chunks()
            rows, names = pc.list_parent_indices(lists).to_numpy(), np.array(pc.list_flatten(lists).to_pylist(), object)
            for name in dict.fromkeys(names.tolist()):
                flags.setdefault(str(name), np.zeros(len(lists), np.uint8))[rows[names == name]] = 1
        return dict(sorted(flags.items(), key=lambda item: -int(item[1].sum())))

    def failed(self) -> NDArray[np.uint8]:
        """How many scores each case failed, at most 255."""
        if "failed_by" not in self.known:
            return np.zeros(self._file.metadata.num_rows, np.uint8)
        lengths = pc.fill_null(pc.list_value_length(self.read("failed_by")), 0)
        counts: NDArray[np.uint8] = np.minimum(lengths.to_numpy(), 255).astype(np.uint8)
        return counts


def _fields(records: Path, metrics: Mapping[str, Any], total: int) -> Iterator[SliceField]:
    """The fields of the breakdowns, for the cases of a table with `total`."""
    by = {name: groups for name, groups in metrics["by"].items() if name != "method"}
    for name, groups in members(records, by).items():
        ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
        values, with_value = [str(value) for value, _ in ordered], [rows for _, rows in ordered]
        codes = np.zeros(total, np.float32 if len(values) > 255 else np.uint8)
        for number, rows in enumerate(with_value, 1):
            codes[rows] = number
        if sum(map(len, with_value)) == np.count_nonzero(codes):  # no case has two values
            yield SliceField(name, values, codes)
        else:
            yield SliceField(name, values, None, [np.isin(np.arange(total), rows).astype(np.uint8) for rows in with_value])
