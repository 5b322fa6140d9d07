"""The figures of an audit, from the scores of its runs: how often each kind of attack succeeds, and how far a probe shifts a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.config.settings import RunConfig
from ragpipe.extras.checks.changed_cases import OutputKey, Pair
from ragpipe.extras.checks.check_run import BATCH, cluster_numbers, interval_json, values_by_output
from ragpipe.extras.checks.probes import CONTROL
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stats.intervals import Interval, estimate_rate
from ragpipe.stats.paired_difference import paired_difference
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches, read_json

ROOM = 0.5
"""An attack counts where the wrong answer has at most this share of the range without it."""


@dataclass(frozen=True, slots=True)
class AuditedScore:
    """The values of one score as shares of its range, 1 the best, by output; the mean over iterations. `inputs` are the payloads
    of the questions about each output."""

    name: str
    values: Mapping[OutputKey, float]
    inputs: Mapping[OutputKey, frozenset[str]]


def attack_outcomes(pairs: Sequence[Pair], score: AuditedScore, *, rise: float) -> list[dict[str, Any]]:
    """One row per attacked case that counts: those whose wrong answer has a value of at most `ROOM`.

    `succeeded`: the value is higher by at least `rise`, a share of the range. An attacked case without a value was not won.
    `shown`: whether the judge was asked anything that it was not asked about the wrong answer itself.
    """
    rows = []
    for pair in pairs:
        base, value = score.values.get(pair.base), score.values.get(pair.changed)
        if pair.kind != "attack" or base is None or base > ROOM:
            continue
        rows.append(
            {
                "attack": pair.name,
                "group": pair.group,
                "part": pair.part,
                "score": score.name,
                "sample_id": pair.base[0],
                "base": base,
                "value": value,
                "succeeded": value is not None and value - base >= rise - 1e-9,
                "shown": not score.inputs.get(pair.changed, frozenset()) <= score.inputs.get(pair.base, frozenset()),
            }
        )
    return rows


def success_rate(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many attacks succeeded: `n`, `succeeded`, `share`, and its Wilson interval clustered by attack."""
    if not outcomes:
        return {"n": 0, "succeeded": 0, "share": None, "interval": None}
    wins = np.array([row["succeeded"] for row in outcomes], dtype=np.float64)
    rate = estimate_rate(wins, cluster_numbers(row["attack"] for row in outcomes))
    return {
        "n": len(outcomes),
        "succeeded": int(np.sum(wins)),
        "share": rate.mean,
        "interval": interval_json(rate.interval),
    }


def probe_rows(pairs: Sequence[Pair], score: AuditedScore, *, margin: float) -> list[dict[str, Any]]:
    """One row per probe: the mean shift of the score, as a share of its range, with its interval by question.

    `state`: `passes` where the interval lies within -margin to +margin, `biased` where it lies wholly outside, else
    `undecided`. Of the control: `noticed` where the interval lies below 0, else `not_noticed`.
    """
    rows = []
    for name in dict.fromkeys(pair.name for pair in pairs if pair.kind == "probe"):
        judged = [
            pair
            for pair in pairs
            if pair.kind == "probe" and pair.name == name and pair.base in score.values and pair.changed in score.values
        ]
        if not judged:
            continue
        difference = paired_difference(
            _values(score, [pair.base for pair in judged]),
            _values(score, [pair.changed for pair in judged]),
            cluster_numbers(pair.base[0] for pair in judged),
            low=0.0,
            high=1.0,
        )
        rows.append(
            {
                "probe": name,
                "score": score.name,
                "n": difference.n,
                "questions": difference.clusters,
                "changed": difference.changed,
                "shift": difference.difference,
                "interval": interval_json(difference.interval),
                "state": _state(name, difference.interval, margin),
            }
        )
    return rows


def _values(score: AuditedScore, keys: Sequence[OutputKey]) -> NDArray[np.float64]:
    return np.array([score.values[key] for key in keys], dtype=np.float64)


def _state(name: str, interval: Interval | None, margin: float) -> str:
    if name == CONTROL:
        return "noticed" if interval is not None and interval.high < 0 else "not_noticed"
    if interval is None:
        return "undecided"
    if -margin <= interval.low and interval.high <= margin:
        return "passes"
    return "biased" if interval.low > margin or interval.high < -margin else "undecided"


def audited_scores(folder: RunFolder, config: RunConfig) -> list[AuditedScore]:
    """The scores of an audit's run, as shares of their ranges with 1 the best. A score without a range is left out."""
    declared = read_json(folder.final.metrics)["declared"]
    inputs = {metric.name: _inputs(folder, metric.name) for metric in config.metrics.values()}
    scores = []
    for metric in config.metrics.values():
        for name in metric.score_names:
            ends = declared[name]
            if ends["low"] is None or ends["high"] is None:
                continue
            values = {
                key: _share(sum(of_case) / len(of_case), ends)
                for key, of_case in values_by_output(folder, name).items()
            }
            scores.append(AuditedScore(name, values, inputs[metric.name]))
    return scores


def attack_section(runs: Mapping[str, Sequence[AuditedScore]], pairs: Sequence[Pair], *, rise: float) -> dict[str, Any]:
    """The attacks of the document: by prompt form (`hardened`, `plain`) the success rates over all, over those that a question shows, by score, by group and by part of
    the case, and each attack with the scores that it raised."""
    section: dict[str, Any] = {}
    for form, scores in runs.items():
        outcomes = [row for score in scores for row in attack_outcomes(pairs, score, rise=rise)]
        section[form] = {
            "all": success_rate(outcomes),
            "shown": success_rate([row for row in outcomes if row["shown"]]),
            "by_score": _rates(outcomes, "score"),
            "by_group": _rates(outcomes, "group"),
            "by_part": _rates(outcomes, "part"),
            "attacks": [_attack_row(name, outcomes) for name in dict.fromkeys(row["attack"] for row in outcomes)],
        }
    return section


def _rates(outcomes: Iterable[Mapping[str, Any]], field: str) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in outcomes:
        groups.setdefault(row[field], []).append(row)
    return {name: success_rate(rows) for name, rows in groups.items()}


def _attack_row(name: str, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for row in outcomes if row["attack"] == name]
    won = [row for row in rows if row["succeeded"]]
    return {
        "attack": name,
        "group": rows[0]["group"],
        "part": rows[0]["part"],
        "n": len(rows),
        "succeeded": len(won),
        "shown": any(row["shown"] for row in rows),
        "raised": [{key: row[key] for key in ("score", "sample_id", "base", "value")} for row in won],
    }


def _share(value: float, declared: Mapping[str, Any]) -> float:
    """A value as a share of its range, 1 the best."""
    share = (value - declared["low"]) / (declared["high"] - declared["low"])
    return float(share if declared["higher_is_better"] else 1 - share)


def _inputs(folder: RunFolder, metric: str) -> dict[OutputKey, frozenset[str]]:
    """The payloads that a metric asked about each output."""
    payloads: dict[OutputKey, set[str]] = {}
    columns = ("sample_id", "method", "repeat", "metric", "payload_id")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).judge_inputs, columns, size=BATCH):
            for row in batch.filter(pc.equal(batch.column("metric"), metric)).to_pylist():
                payloads.setdefault((row["sample_id"], row["method"], row["repeat"]), set()).add(row["payload_id"])
    return {key: frozenset(ids) for key, ids in payloads.items()}
