"""Two runs over the same cases, score by score: how far they agree, and which verdicts changed. Reads tables alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.schema.sample import OUTPUT_KEY, CaseKey
from ragpipe.scoring.case_records import verdict_column
from ragpipe.stats.agreement_coefficients import (
    Coefficient,
    cohen_kappa,
    equal_share,
    pearson,
    quadratic_kappa,
    spearman,
)
from ragpipe.stats.intervals import estimate_mean
from ragpipe.stats.paired_difference import paired_difference
from ragpipe.store.run.run_tables import (
    batches,
    count_rows,
    numbers_of,
    open_parquet_file,
    read_columns,
    reading_table,
)

EXAMPLES = 5
"""Cases named for each direction of a flip."""
GRADES = 2.0
"""A scale at least so wide is one of grades (0-5, 1-5); a narrower one is a share."""

_BATCH = 32_768  # rows read at once
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
_Tables = Mapping[Path, pq.ParquetFile]


@dataclass(frozen=True)
class Matched:
    """The cases that both runs have, by sample id, method, repeat and iteration, in the old run's order.

    `old` and `new` are their row numbers over the run's tables one after another, `cases` their keys as columns.
    """

    old: Whole
    new: Whole
    cases: pa.Table
    only_old: int
    only_new: int

    def __len__(self) -> int:
        return len(self.old)

    def key(self, place: int) -> CaseKey:
        """The key of a case."""
        return CaseKey(*(self.cases[name][place].as_py() for name in CaseKey._fields))

    @cached_property
    def samples(self) -> Whole:
        """The number of each case's question: several methods, repeats and iterations of one are not independent."""
        codes = self.cases["sample_id"].combine_chunks().dictionary_encode().indices
        return codes.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def matched(old: Mapping[int, Path], new: Mapping[int, Path]) -> Matched:
    """Match the rows of `records.parquet` of both runs, given by iteration: an iteration meets its own number."""
    before, after = _identities(old), _identities(new)
    if before.equals(after):  # another scoring of the same cases
        rows = np.arange(len(before), dtype=np.int64)
        return Matched(rows, rows, before, only_old=0, only_new=0)
    places = {case: row for row, case in enumerate(_keys(after))}
    pairs = [(row, places[case]) for row, case in enumerate(_keys(before)) if case in places]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    cases = before.take(pa.array(both[:, 0]))
    return Matched(both[:, 0], both[:, 1], cases, len(before) - len(pairs), len(after) - len(pairs))


def agreement(
    old: Mapping[int, Path], new: Mapping[int, Path], *, old_scores: Mapping[str, Any], new_scores: Mapping[str, Any]
) -> dict[str, Any]:
    """Every score that both runs have, old against new.

    `old` and `new` are `records.parquet` by iteration; `old_scores` and `new_scores` the scores of both runs'
    `final/metrics.json`, over all their cases, each with what is declared of it. What is compared pair by pair are the cases that have a value in both.
    """
    return _over(_agreement, old, new, old_scores, new_scores)


def verdict_changes(
    old: Mapping[int, Path], new: Mapping[int, Path], *, old_scores: Mapping[str, Any], new_scores: Mapping[str, Any]
) -> dict[str, Any]:
    """As `agreement`, with no more than both runs' figures and the verdicts that changed: what another scoring does."""
    return _over(_change, old, new, old_scores, new_scores)


class _Columns:
    """One score of the matched cases in both runs: values and verdicts, NaN where there is none. Each column is read where it
    is asked for."""

    def __init__(self, cases: Matched, old: _Tables, new: _Tables, name: str):
        self.cases = cases
        self._old, self._new, self._name = old, new, name
        self._verdict = verdict_column(name)

    @cached_property
    def old(self) -> Floats:
        return _numbers(self._old, self._name)[self.cases.old]

    @cached_property
    def new(self) -> Floats:
        return _numbers(self._new, self._name)[self.cases.new]

    @cached_property
    def passed_old(self) -> Floats:
        return _numbers(self._old, self._verdict)[self.cases.old]

    @cached_property
    def passed_new(self) -> Floats:
        return _numbers(self._new, self._verdict)[self.cases.new]

    @property
    def judged(self) -> NDArray[np.bool_]:
        return np.isfinite(self.passed_old) & np.isfinite(self.passed_new)


def _over(
    compare: Callable[[_Columns, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]],
    old: Mapping[int, Path],
    new: Mapping[int, Path],
    old_scores: Mapping[str, Any],
    new_scores: Mapping[str, Any],
) -> dict[str, Any]:
    """All scores that both runs have, one at a time."""
    cases, scores = matched(old, new), {}
    names = [name for name in old_scores if name in new_scores]
    with _opened(old, names) as old_tables, _opened(new, names) as new_tables:
        for name in names:
            columns = _Columns(cases, old_tables, new_tables, name)
            scores[name] = compare(columns, old_scores[name], new_scores[name])
    return {
        "cases": {"both": len(cases), "only_old": cases.only_old, "only_new": cases.only_new},
        "scores": scores,
        "only_old_scores": [name for name in old_scores if name not in new_scores],
        "only_new_scores": [name for name in new_scores if name not in old_scores],
    }


def _change(columns: _Columns, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    p, q, judged = columns.passed_old, columns.passed_new, columns.judged
    return {
        "old": _whole_run(before),
        "new": _whole_run(after),
        "higher_is_better": after["higher_is_better"],
        "flips": {
            "to_passed": _flips(columns, judged & (p == 0) & (q == 1)),
            "to_failed": _flips(columns, judged & (p == 1) & (q == 0)),
        },
    }


def _agreement(columns: _Columns, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    both, judged = np.isfinite(columns.old) & np.isfinite(columns.new), columns.judged
    x, y = columns.old[both], columns.new[both]
    low, high = (after[end] if after[end] == before[end] else None for end in ("low", "high"))
    difference = paired_difference(x, y, columns.cases.samples[both], low=low, high=high)
    graded = _is_graded(before, after)
    return _change(columns, before, after) | {
        "n_both": len(x),
        "mean_old": _mean(x),
        "mean_new": _mean(y),
        "difference": {
            "mean": difference.difference,
            "interval": asdict(difference.interval) if difference.interval else None,
            "clusters": difference.clusters,
            "reason": difference.reason,
        },
        "equal_share": equal_share(x, y),
        "quadratic_kappa": asdict(quadratic_kappa(x, y) if graded else Coefficient(len(x), reason="not_graded")),
        "pearson": asdict(pearson(x, y)),
        "spearman": asdict(spearman(x, y)),
        "passed": _verdicts(columns.passed_old[judged], columns.passed_new[judged]),
    }


def _whole_run(score: Mapping[str, Any]) -> dict[str, Any]:
    """What one run says of the score over all its cases."""
    keys = ("mean", "pass_rate", "threshold", "n_ok", "n_skipped", "n_error", "coverage")
    return {key: score.get(key, 0 if key.startswith("n_") else None) for key in keys}


def _verdicts(old: Floats, new: Floats) -> dict[str, Any]:
    return {
        "n": len(old),
        "rate_old": _mean(old),
        "rate_new": _mean(new),
        "agreement": equal_share(old, new),
        "kappa": asdict(cohen_kappa(old, new)),
    }


def _flips(columns: _Columns, where: NDArray[np.bool_]) -> dict[str, Any]:
    """How many verdicts changed in this direction, and the cases whose value moved most."""
    rows = np.flatnonzero(where)
    if not len(rows):
        return {"n": 0, "examples": []}
    old, new = columns.old, columns.new
    moved = np.nan_to_num(np.abs(new[rows] - old[rows]), nan=0.0)
    examples = []
    for row in rows[np.argsort(-moved, kind="stable")[:EXAMPLES]].tolist():
        examples.append({**columns.cases.key(row)._asdict(), "old": _plain(old[row]), "new": _plain(new[row])})
    return {"n": len(rows), "examples": examples}


def questions(old: Sequence[Path], new: Sequence[Path]) -> dict[str, int]:
    """What both runs asked, from their `judge_inputs.parquet`; unanswered questions are left out.

    `old` and `new` count different questions (payloads); `new_payloads` of the new ones were not asked in the old run,
    as where a chain went another way. `calls` are the replies that the new run uses, `same_calls` of them the very
    replies of the old run.
    """
    (before, known_calls), (after, calls) = _asked(old), _asked(new)
    return {
        "old": len(before),
        "new": len(after),
        "new_payloads": len(after - before),
        "calls": len(calls),
        "same_calls": len(calls & known_calls),
    }


def _asked(paths: Sequence[Path]) -> tuple[set[bytes], set[bytes]]:
    """The different payloads and keys, 16 bytes of each hash: enough to tell 2^64 apart."""
    payloads, keys = set[bytes](), set[bytes]()
    for path in paths:
        for batch in batches(path, ["payload_id", "key", "status", "template"], size=_BATCH):
            columns = (batch.column(name).to_pylist() for name in ("payload_id", "key", "status", "template"))
            for payload, key, status, template in zip(*columns, strict=True):
                if status != "missing_reply" and template is not None:  # without one it is a text for an embedder
                    payloads.add(bytes.fromhex(payload[:32]))
                    keys.add(bytes.fromhex(key[:32]))
    return payloads, keys


def _identities(tables: Mapping[int, Path]) -> pa.Table:
    """The keys of the cases of all iterations, as columns."""
    keys = [
        read_columns(path, OUTPUT_KEY).append_column("iteration", pa.array(np.full(count_rows(path), iteration)))
        for iteration, path in tables.items()
    ]
    return pa.concat_tables(keys).combine_chunks()


def _keys(cases: pa.Table) -> list[CaseKey]:
    return [CaseKey(*key) for key in zip(*(cases[name].to_pylist() for name in CaseKey._fields), strict=True)]


@contextmanager
def _opened(records: Mapping[int, Path], names: Sequence[str]) -> Iterator[_Tables]:
    """The tables of a run, which have these scores, each opened once: their footers are large."""
    columns = [column for name in names for column in (name, verdict_column(name))]
    with ExitStack() as stack:
        yield {path: stack.enter_context(open_parquet_file(path, columns)) for path in records.values()}


def _numbers(tables: _Tables, column: str) -> Floats:
    """A column of numbers or flags over all tables; NaN is null."""
    parts = [np.empty(0)]
    for path, table in tables.items():
        with reading_table(path):
            parts.append(numbers_of(table, column))
    return np.concatenate(parts)


def _is_graded(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether both runs measure on the same scale of grades."""
    low, high = after["low"], after["high"]
    return (low, high) == (before["low"], before["high"]) and low is not None and high - low >= GRADES


def _mean(values: Floats) -> float | None:
    return estimate_mean(values).mean


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
