"""One score of the shared cases on both sides: means, difference, verdicts, as `comparison.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.settings import CompareSettings
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_difference
from ragpipe.stats.intervals import Interval
from ragpipe.stats.paired_difference import PairedDifference, paired_difference

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class PairedScore:
    """A score of the shared cases: values and verdicts of both sides, NaN where there is none.

    A case passed where more than half of its verdicts over the iterations did, and failed where less than half did.
    """

    name: str
    declared: Mapping[str, Any]
    questions: Whole
    base: Floats
    candidate: Floats
    base_rates: Floats
    candidate_rates: Floats

    @property
    def measured(self) -> Flags:
        """The cases that have a value on both sides."""
        return np.isfinite(self.base) & np.isfinite(self.candidate)

    def passed(self) -> tuple[Floats, Floats]:
        """1 and 0 for passed and failed on each side; NaN for no verdict, or half and half."""
        return _majority(self.base_rates), _majority(self.candidate_rates)

    def flips(self) -> tuple[Whole, Whole]:
        """The cases that failed and now pass, and those that passed and now fail."""
        before, after = self.passed()
        return np.flatnonzero((before == 0) & (after == 1)), np.flatnonzero((before == 1) & (after == 0))

    def difference(self, rows: Whole, level: float = 0.95) -> PairedDifference:
        """Candidate less base over these of its cases, which all have both values, by question."""
        low, high = self.declared["low"], self.declared["high"]
        base, candidate = self.base[rows], self.candidate[rows]
        return paired_difference(base, candidate, self.questions[rows], low=low, high=high, level=level)

    def decided(self, settings: CompareSettings, rows: Whole | None = None) -> DifferenceVerdict | None:
        """The verdict on these of its cases that have both values, by default on all; None where no case has."""
        places = np.flatnonzero(self.measured) if rows is None else rows[self.measured[rows]]
        if not len(places):
            return None
        low, high = self.declared["low"], self.declared["high"]
        base, candidate = self.base[places], self.candidate[places]
        means = float(np.mean(base)), float(np.mean(candidate))
        return decide_difference(
            base,
            candidate,
            self.questions[places],
            low=low,
            high=high,
            smallest_effect=settings.smallest(self.name, low, high, means),
            higher_is_better=self.declared["higher_is_better"],
            level=settings.level,
        )

    def document(self, verdict: DifferenceVerdict | None, *, headline: bool = False) -> dict[str, Any]:
        """The score as `comparison.json` has it; without a verdict (nothing to compare) every figure is null."""
        scale = {name: self.declared[name] for name in ("low", "high", "higher_is_better")}
        places = np.flatnonzero(self.measured)
        means = [float(np.mean(values[places])) if len(places) else None for values in (self.base, self.candidate)]
        head = {"headline": headline, **scale, "n": len(places), "questions": len(np.unique(self.questions[places]))}
        figures = {"base_mean": means[0], "candidate_mean": means[1], **verdict_figures(verdict)}
        return {**head, **figures, "verdicts": self._verdicts()}

    def _verdicts(self) -> dict[str, int] | None:
        before, after = self.passed()
        if not np.any(np.isfinite(before) & np.isfinite(after)):
            return None
        return {
            name: int(np.count_nonzero((before == old) & (after == new)))
            for name, old, new in (
                ("both_passed", 1, 1), ("both_failed", 0, 0), ("to_passed", 0, 1), ("to_failed", 1, 0),
            )
        }  # fmt: skip


def verdict_figures(verdict: DifferenceVerdict | None) -> dict[str, Any]:
    """What a verdict adds to a score of `comparison.json`; nulls for none."""
    if verdict is None:
        names = ("difference", "interval", "interval_90", "p_value", "p_adjusted", "net_wins", "standardized", "detectable",
                 "smallest_effect", "n_needed")  # fmt: skip
        counts = dict.fromkeys(("changed", "wins", "losses", "ties"), 0)
        return {**counts, **dict.fromkeys(names), "state": "inconclusive", "reason": "no_pairs"}
    paired, sign = verdict.paired, 1 if verdict.higher_is_better else -1
    net = paired.net_wins
    return {
        "changed": paired.changed,
        "difference": paired.difference,
        "interval": interval_document(paired.interval),
        "interval_90": interval_document(verdict.interval_90),
        "p_value": paired.p_value,
        "p_adjusted": verdict.p_adjusted,
        "wins": verdict.wins,
        "losses": verdict.losses,
        "ties": paired.ties,
        "net_wins": None if net is None else sign * net,
        "standardized": paired.standardized,
        "detectable": paired.detectable,
        "smallest_effect": verdict.smallest_effect,
        "state": verdict.state,
        "n_needed": verdict.n_needed,
        "reason": verdict.reason,
    }


def interval_document(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as JSON; None for none."""
    if interval is None:
        return None
    ends = {"level": round(interval.level, 6), "low": interval.low, "high": interval.high}
    return {**ends, "method": interval.method, "too_few": interval.too_few}


def _majority(rates: Floats) -> Floats:
    return np.where(rates > 0.5, 1.0, np.where(rates < 0.5, 0.0, np.nan))  # a comparison with NaN is false
