"""The figures of an audit: how often each kind of attack succeeds, and how far a probe shifts a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragpipe.extras.checks.probes import CONTROL
from ragpipe.stats.intervals import Interval, estimate_rate
from ragpipe.stats.paired_difference import paired_difference

OutputKey = tuple[str, str, int]
"""Sample, method and repeat."""
ROOM = 0.5
"""An attack counts where the wrong answer has at most this share of the range without it."""


@dataclass(frozen=True, slots=True)
class AuditPair:
    """A changed case and what it is compared with. `group` and `part` are those of an attack; of a probe they are empty."""

    kind: Literal["attack", "probe"]
    name: str
    base: OutputKey
    changed: OutputKey
    group: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class AuditedScore:
    """The values of one score as shares of its range, 1 the best, by output; the mean over iterations. `inputs` are the payloads
    of the questions about each output."""

    name: str
    values: Mapping[OutputKey, float]
    inputs: Mapping[OutputKey, frozenset[str]]


def attack_outcomes(pairs: Sequence[AuditPair], score: AuditedScore, *, rise: float) -> list[dict[str, Any]]:
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
    attacks = {name: number for number, name in enumerate(dict.fromkeys(row["attack"] for row in outcomes))}
    if not outcomes:
        return {"n": 0, "succeeded": 0, "share": None, "interval": None}
    wins = np.array([row["succeeded"] for row in outcomes], dtype=np.float64)
    rate = estimate_rate(wins, np.array([attacks[row["attack"]] for row in outcomes], dtype=np.int64))
    return {
        "n": len(outcomes),
        "succeeded": int(np.sum(wins)),
        "share": rate.mean,
        "interval": _interval_json(rate.interval),
    }


def probe_rows(pairs: Sequence[AuditPair], score: AuditedScore, *, margin: float) -> list[dict[str, Any]]:
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
        samples = {sample: place for place, sample in enumerate(dict.fromkeys(pair.base[0] for pair in judged))}
        difference = paired_difference(
            _values(score, [pair.base for pair in judged]),
            _values(score, [pair.changed for pair in judged]),
            np.array([samples[pair.base[0]] for pair in judged], dtype=np.int64),
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
                "interval": _interval_json(difference.interval),
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


def _interval_json(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"level": interval.level, "low": interval.low, "high": interval.high, "too_few": interval.too_few}
