"""Two runs that judged the same answers, score by score: how far they agree, and which verdicts changed. Reads tables alone.

Rows are judgements: a case of an iteration, paired with the same case of the iteration of the same number. A comparison of answers
takes each case's mean over the iterations; a mean of several verdicts is no verdict, so kappa and the share of equal values are of
judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.comparison.score_differences import PairedScore, interval_document
from ragpipe.comparison.side import Pairs, paired_cases
from ragpipe.core.sample import OUTPUT_KEY, CaseKey
from ragpipe.score.iterations import open_records
from ragpipe.score.records import verdict_column
from ragpipe.stats.agreement import Coefficient, cohen_kappa, equal_share, pearson, quadratic_kappa, spearman
from ragpipe.stats.intervals import estimate_mean
from ragpipe.store.run_tables import batches, numbers_of, read_columns, reading_table

EXAMPLES = 5
"""Cases named for each direction of a flip."""
_GRADES = 2.0
"""A scale at least so wide is one of grades (0-5, 1-5); a narrower one is a share."""

_BATCH = 32_768  # rows read at once
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
_Tables = Mapping[Path, pq.ParquetFile]


def agreement(
    old: Mapping[int, Path],
    new: Mapping[int, Path],
    *,
    old_scores: Mapping[str, Any],
    new_scores: Mapping[str, Any],
    verdicts_only: bool = False,
) -> dict[str, Any]:
    """Every score that both runs have, old against new.

    `old` and `new` are `records.parquet` by iteration; `old_scores` and `new_scores` the scores of both runs'
    `final/metrics.json`, over all their cases, each with what is declared of it. What is compared pair by pair are the cases that have a value in both.
    `verdicts_only`: no more than both runs' figures and the verdicts that changed, which is what another scoring does.
    """
    compare = _change if verdicts_only else _agreement
    pairs, scores = paired_cases(_judgements(old), _judgements(new)), {}
    names = [name for name in old_scores if name in new_scores]
    with open_records([*old.values()], names) as old_tables, open_records([*new.values()], names) as new_tables:
        for name in names:
            before, after = old_scores[name], new_scores[name]
            # an end of the scale on which the runs differ is none
            ends = {end: after[end] if after[end] == before[end] else None for end in ("low", "high")}
            score = _paired(name, pairs, old_tables, new_tables, {**after, **ends})
            scores[name] = compare(score, pairs, before, after)
    return {
        "cases": {"both": len(pairs), "only_old": pairs.only_base, "only_new": pairs.only_candidate},
        "scores": scores,
        "only_old_scores": [name for name in old_scores if name not in new_scores],
        "only_new_scores": [name for name in new_scores if name not in old_scores],
    }


def _judgements(run: Mapping[int, Path]) -> pa.Table:
    """The keys of all cases of all iterations, one iteration after another."""
    keys = {number: read_columns(path, OUTPUT_KEY) for number, path in run.items()}
    numbers = {number: pa.array(np.full(len(table), number, dtype=np.int64)) for number, table in keys.items()}
    return pa.concat_tables(table.append_column("iteration", numbers[number]) for number, table in keys.items())


def _paired(name: str, pairs: Pairs, old: _Tables, new: _Tables, declared: Mapping[str, Any]) -> PairedScore:
    """A score of the judgements that both runs have; a verdict is 1 or 0."""
    columns = (name, verdict_column(name))
    values, verdicts = ((_numbers(old, column)[pairs.base], _numbers(new, column)[pairs.candidate]) for column in columns)
    return PairedScore(name, declared, pairs.questions, *values, *verdicts)


def _change(score: PairedScore, pairs: Pairs, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    to_passed, to_failed = score.flips()
    return {
        "old": _whole_run(before),
        "new": _whole_run(after),
        "higher_is_better": after["higher_is_better"],
        "flips": {"to_passed": _flips(score, pairs, to_passed), "to_failed": _flips(score, pairs, to_failed)},
    }


def _agreement(score: PairedScore, pairs: Pairs, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    measured = np.flatnonzero(score.measured)
    x, y = score.base[measured], score.candidate[measured]
    difference = score.difference(measured)
    low, high = after["low"], after["high"]
    graded = (low, high) == (before["low"], before["high"]) and low is not None and high - low >= _GRADES
    return _change(score, pairs, before, after) | {
        "n_both": len(x),
        "mean_old": _mean(x),
        "mean_new": _mean(y),
        "difference": {
            "mean": difference.difference,
            "interval": interval_document(difference.interval),
            "clusters": difference.clusters,
            "reason": difference.reason,
        },
        "equal_share": equal_share(x, y),
        "quadratic_kappa": asdict(quadratic_kappa(x, y) if graded else Coefficient(len(x), reason="not_graded")),
        "pearson": asdict(pearson(x, y)),
        "spearman": asdict(spearman(x, y)),
        "passed": _verdicts(score),
    }


def _whole_run(score: Mapping[str, Any]) -> dict[str, Any]:
    """What one run says of the score over all its cases."""
    keys = ("mean", "pass_rate", "threshold", "n_ok", "n_skipped", "n_error", "coverage")
    return {key: score.get(key, 0 if key.startswith("n_") else None) for key in keys}


def _verdicts(score: PairedScore) -> dict[str, Any]:
    before, after = score.passed()
    judged = np.isfinite(before) & np.isfinite(after)
    old, new = before[judged], after[judged]
    return {
        "n": len(old),
        "rate_old": _mean(old),
        "rate_new": _mean(new),
        "agreement": equal_share(old, new),
        "kappa": asdict(cohen_kappa(old, new)),
    }


def _flips(score: PairedScore, pairs: Pairs, rows: Whole) -> dict[str, Any]:
    """How many verdicts changed in this direction, and the cases whose value moved most."""
    moved = np.nan_to_num(np.abs(score.candidate[rows] - score.base[rows]), nan=0.0)
    examples = []
    for row in rows[np.argsort(-moved, kind="stable")[:EXAMPLES]].tolist():
        key = {name: pairs.cases[name][row].as_py() for name in CaseKey._fields}
        examples.append({**key, "old": _plain(score.base[row]), "new": _plain(score.candidate[row])})
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


def _numbers(tables: _Tables, column: str) -> Floats:
    parts = [np.empty(0)]
    for path, table in tables.items():
        with reading_table(path):
            parts.append(numbers_of(table, column))
    return np.concatenate(parts)


def _mean(values: Floats) -> float | None:
    return estimate_mean(values).value


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
