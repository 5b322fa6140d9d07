"""`final/metrics.json`: every score over all iterations of a run.

An iteration is a repetition of the judging on the same outputs, so what differs between iterations is the judge's noise:
the spread of the iterations' means, the scatter within a case, and the cases whose verdict flips.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragpipe.scoring.repeats import Cases, Repeats, Whole, cases_of, members, repeats
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stats.intervals import Estimate, estimate_mean, estimate_rate

FLIPS_SHOWN = 1000  # flipping cases listed by name; all are counted
_COUNTS = ("n_ok", "n_skipped", "n_error", "n_missing", "n_judged", "n_unjudged")
# equal in all iterations: they share a config
_SAME = ("threshold", "low", "high", "higher_is_better", "binary", "diagnostic")


def final_metrics(
    per_iteration: Sequence[Mapping[str, Any]], records: Sequence[Path], settings: ScoringSettings
) -> dict[str, Any]:
    """What `metrics.json` says of one iteration, over all of them, with spread and flips beside every mean.

    `per_iteration` are their `metrics.json`, `records` their `records.parquet`, in the same order. Plain JSON without
    NaN. Raises DataError when the tables do not hold the same cases.
    """
    first = per_iteration[0]
    cases = cases_of(records)
    groups = members(records[0], first["by"])
    everything = np.arange(len(cases), dtype=np.int64)
    overall = _group([metrics["overall"] for metrics in per_iteration])
    by = {
        field: {name: _group([_of(metrics, field, name) for metrics in per_iteration]) for name in found}
        for field, found in first["by"].items()
    }
    flips = _Flips(cases)
    for name in first["overall"]["scores"]:
        found = repeats(records, name, len(cases))
        flips.add(name, found)
        rate = first["overall"]["scores"][name]["binary"]
        frames: list[tuple[dict[str, Any], Whole | None]] = [(overall, everything)]
        frames += [(frame, groups.get(field, {}).get(group)) for field in by for group, frame in by[field].items()]
        for frame, places in frames:
            frame["scores"][name] = _score(frame["scores"][name], found, places, cases.samples, rate, settings.level)
    return {
        "n_cases": first["n_cases"],
        "n_samples": first["n_samples"],
        "overall": overall,
        "by": by,
        "flips": flips.listed(),
        "warnings": _warnings(per_iteration),
    }


def _of(metrics: Mapping[str, Any], field: str, group: str) -> Mapping[str, Any]:
    """A group of one iteration; an empty one where that iteration does not show the group."""
    found: Mapping[str, Any] = metrics["by"].get(field, {}).get(group, {"scores": {}})
    return found


def _group(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group with, for each score, what the iterations say of it, in their order."""
    first = per_iteration[0]
    scores = {
        name: [frame["scores"][name] for frame in per_iteration if name in frame["scores"]] for name in first["scores"]
    }
    return {"n_cases": first["n_cases"], "n_samples": first["n_samples"], "scores": scores}


def _score(
    found: Sequence[Mapping[str, Any]],
    repeated: Repeats,
    places: Whole | None,
    samples: Whole,
    rate: bool,
    level: float,
) -> dict[str, Any]:
    """One score of one group. `places` are its cases, None where the tables do not say which they are."""
    counts = {name: sum(one[name] for one in found) for name in _COUNTS}
    judged = counts["n_ok"] + counts["n_error"]
    spec = {name: found[0][name] for name in _SAME}
    frame: dict[str, Any] = {
        "mean": _mean([one["mean"] for one in found]),
        "mean_score": _mean([one["mean_score"] for one in found]),
        **_spread("spread", "means", [one["mean"] for one in found]),
        "pass_rate": _mean([one["pass_rate"] for one in found]),
        **_spread("pass_spread", "pass_rates", [one["pass_rate"] for one in found]),
        **counts,
        "coverage": counts["n_ok"] / judged if judged and "coverage" in found[0] else None,
        "skipped": _counted([one.get("skipped", {}) for one in found]),
        "errors": _counted([one.get("errors", {}) for one in found]),
        **spec,
    }
    if places is None:
        unknown = Estimate(0, 0, reason="not_in_records")
        return {
            **frame, **_interval("interval", unknown), **_interval("pass_interval", unknown),
            "flips": None, "flips_reason": unknown.reason, "within_sd": None, "within_sd_reason": unknown.reason,
        }  # fmt: skip
    there = places[repeated.measured[places] > 0]
    voted = places[repeated.judged[places] > 0]
    means, shares = repeated.means[there], repeated.passed[voted] / repeated.judged[voted]
    if rate:
        mean = estimate_rate(means, samples[there], level=level)
    else:
        mean = estimate_mean(means, samples[there], level=level, low=spec["low"], high=spec["high"])
    # A case's share counts as one draw, so the interval is as wide as that of one iteration: repeating the judging
    # makes the judge's noise smaller, not the sample of questions larger.
    passing = estimate_rate(shares, samples[voted], level=level)
    return {
        **frame,
        **_interval("interval", mean),
        **_interval("pass_interval", passing),
        **_flip_share(repeated, places, len(found)),
        **_within_sd(repeated, places, len(found)),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over the iterations that have a value."""
    there = [value for value in values if value is not None]
    return _centre(there) if there else None


def _centre(values: Sequence[float]) -> float:
    """The mean; never outside the values, so that equal ones have exactly theirs."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _spread(name: str, listed: str, values: Sequence[float | None]) -> dict[str, Any]:
    """How far the iterations lie apart: standard deviation (n - 1), least and greatest; null with the reason."""
    there = [value for value in values if value is not None]
    found: dict[str, Any] = {listed: list(values), name: None}
    if len(there) < 2:
        return {
            **found,
            f"{name}_reason": "one_iteration" if len(values) < 2 else "values_in_fewer_than_two_iterations",
        }
    centre = _centre(there)
    squares = math.fsum((value - centre) ** 2 for value in there)
    return {**found, name: {"sd": math.sqrt(squares / (len(there) - 1)), "min": min(there), "max": max(there)}}


def _flip_share(repeated: Repeats, places: Whole, iterations: int) -> dict[str, Any]:
    """Of the cases with a verdict in two iterations or more, those whose verdict is not always the same."""
    twice = places[repeated.judged[places] > 1]
    if not len(twice):
        reason = "one_iteration" if iterations < 2 else "no_case_with_two_verdicts"
        return {"flips": None, "flips_reason": reason}
    flipping = int(np.count_nonzero(repeated.flips[twice]))
    return {"flips": {"share": flipping / len(twice), "n_flipping": flipping, "n_cases": len(twice)}}


def _within_sd(repeated: Repeats, places: Whole, iterations: int) -> dict[str, Any]:
    """The judge's noise: standard deviation of a case's value between iterations, pooled over the cases."""
    twice = places[repeated.measured[places] > 1]
    if not len(twice):
        reason = "one_iteration" if iterations < 2 else "no_case_with_two_values"
        return {"within_sd": None, "within_sd_reason": reason}
    freedom = int(repeated.measured[twice].astype(np.int64).sum()) - len(twice)
    return {"within_sd": math.sqrt(math.fsum(repeated.squares[twice].tolist()) / freedom)}


def _counted(per_iteration: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """How often each reason occurs in all iterations, the most frequent first."""
    found: Counter[str] = Counter()
    for reasons in per_iteration:
        found.update(reasons)
    return dict(found.most_common())


def _interval(name: str, found: Estimate) -> dict[str, Any]:
    if found.interval is None:
        return {name: None, f"{name}_reason": found.reason}
    bounds = found.interval
    return {name: {"level": bounds.level, "low": bounds.low, "high": bounds.high, "method": bounds.method}}


class _Flips:
    """The flipping cases by name, the first ones in data order."""

    def __init__(self, cases: Cases):
        self._cases, self._count, self._scores = cases, 0, 0
        self._found: list[tuple[int, int, str, int, int]] = []

    def add(self, name: str, found: Repeats) -> None:
        places = np.flatnonzero(found.flips)
        self._count += len(places)
        for place in places[:FLIPS_SHOWN].tolist():
            self._found.append((place, self._scores, name, int(found.passed[place]), int(found.judged[place])))
        self._found = sorted(self._found)[:FLIPS_SHOWN]
        self._scores += 1

    def listed(self) -> dict[str, Any]:
        shown = [
            {
                "sample_id": self._cases.ids[place].as_py(), "method": self._cases.methods[place].as_py(),
                "score": name, "passed": passed, "of": of,
            }
            for place, _, name, passed, of in self._found
        ]  # fmt: skip
        return {"count": self._count, "shown": len(shown), "cases": shown}


def _warnings(per_iteration: Sequence[Mapping[str, Any]]) -> list[str]:
    """What every iteration warns of once, the rest with its iteration."""
    everywhere = [w for w in per_iteration[0]["warnings"] if all(w in metrics["warnings"] for metrics in per_iteration)]
    own = [
        f"iteration {metrics['iteration']}: {warning}"
        for metrics in per_iteration
        for warning in metrics["warnings"]
        if warning not in everywhere
    ]
    return everywhere + own
