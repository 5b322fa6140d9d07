"""One score of the shared cases on both sides: means, difference, verdicts, as `comparison.json` holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import EqualAnswers, Modes, Pairs, Side, of_the_system
from ragpipe.core.digest import sha256
from ragpipe.score.accumulators import stage_times
from ragpipe.score.system_usage import USD, figures, json_objects
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_difference
from ragpipe.stats.differences import PairedDifference, paired_difference
from ragpipe.stats.intervals import Interval
from ragpipe.store.run_tables import batches

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

SIDES = ("base", "candidate")


@dataclass(frozen=True)
class PairedScore:
    """A score of the shared cases: values and verdicts of both sides, NaN where there is none.

    A case passed where more than half of its verdicts over the iterations did, and failed where less than half did. `lost`
    counts by side and cause the cases whose value was due, did not come out, and is there on the other side. Where so many
    are lost that less than `floor` of the pairs are left, no verdict rests on the rest: they may be the easy ones. `same` are the
    cases with the same answer on both sides, which a judge alone can have given another value; `silent` those whose answer states
    nothing, on each side.
    """

    name: str
    declared: Mapping[str, Any]
    questions: Whole
    base: Floats
    candidate: Floats
    base_rates: Floats
    candidate_rates: Floats
    lost: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    floor: float = 0.0
    same: Flags | None = None
    silent: tuple[Flags, Flags] | None = None

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
        """The verdict on these of its cases that have both values, by default on all; None where no case has.

        It is `inconclusive` where too many values are lost (`values_lost`), and where the judge moved (`judge_moved`): equal answers
        got other values, and by more than noise, or the verdict does not hold without these. Else, where answers of one side alone
        state nothing, the cases decide in which both state something (`states_nothing` where they decide otherwise).
        """
        places = np.flatnonzero(self.measured) if rows is None else rows[self.measured[rows]]
        if not len(places):
            return None
        same = None if self.same is None else self.same[places]
        silent = None if self.silent is None else (self.silent[0][places], self.silent[1][places])
        verdict, narrowed, reason = of_the_system(
            lambda chosen, values: self._decided(settings, places[chosen], values[chosen]),
            self.base[places], self.candidate[places], self.questions[places], same, silent, settings.level,
        )  # fmt: skip
        lost = max((sum(causes.values()) for causes in self.lost.values()), default=0)
        if lost > (1 - self.floor) * (lost + np.count_nonzero(self.measured)):
            return _undecided(verdict, "values_lost")
        if reason is None:
            return replace(verdict, p_adjusted=narrowed.p_adjusted)
        if narrowed is verdict:
            return _undecided(verdict, reason)
        return replace(verdict, state=narrowed.state, reason=reason, n_needed=None, p_adjusted=narrowed.p_adjusted)

    def _decided(self, settings: CompareSettings, places: Whole, candidate: Floats) -> DifferenceVerdict:
        low, high, rises = (self.declared[key] for key in ("low", "high", "higher_is_better"))
        base, questions, level = self.base[places], self.questions[places], settings.level
        effect = settings.smallest(self.name, self.declared, (float(np.mean(base)), float(np.mean(candidate))))
        return decide_difference(
            base, candidate, questions, low=low, high=high, smallest_effect=effect, higher_is_better=rises, level=level
        )

    def document(self, verdict: DifferenceVerdict | None, *, headline: bool = False) -> dict[str, Any]:
        """The score as `comparison.json` has it; without a verdict (nothing to compare) every figure is null."""
        scale = {name: self.declared[name] for name in ("low", "high", "higher_is_better")}
        places = np.flatnonzero(self.measured)
        means = [float(np.mean(values[places])) if len(places) else None for values in (self.base, self.candidate)]
        head = {"headline": headline, **scale, "n": len(places), "questions": len(np.unique(self.questions[places]))}
        figures = {"base_mean": means[0], "candidate_mean": means[1], "lost": self.lost, **verdict_figures(verdict)}
        beside = {"equal_answers": self._equal_answers(places), "silent": self._silent(places)}
        return {**head, **figures, **beside, "verdicts": self._verdicts()}

    def _equal_answers(self, places: Whole) -> dict[str, int] | None:
        """How many of the measured cases have the same answer on both sides, and how many of these another value."""
        if self.same is None:
            return None
        same = places[self.same[places]]
        return {"n": len(same), "changed": int(np.count_nonzero(self.base[same] != self.candidate[same]))}

    def _silent(self, places: Whole) -> dict[str, Any] | None:
        """The measured cases whose answer states nothing, by side, and the difference over those in which both state something."""
        stating = places if self.silent is None else places[~(self.silent[0] | self.silent[1])[places]]
        if self.silent is None or len(stating) == len(places):
            return None
        counts = {side: int(np.count_nonzero(flags[places])) for side, flags in zip(SIDES, self.silent, strict=True)}
        both = self.difference(stating) if len(stating) else None
        interval = interval_document(both.interval) if both else None
        return {**counts, "n": len(stating), "difference": both.difference if both else None, "interval": interval}

    def _verdicts(self) -> dict[str, int] | None:
        before, after = self.passed()
        if not np.any(np.isfinite(before) & np.isfinite(after)):
            return None
        kinds = (("both_passed", 1, 1), ("both_failed", 0, 0), ("to_passed", 0, 1), ("to_failed", 1, 0))
        return {name: int(np.count_nonzero((before == old) & (after == new))) for name, old, new in kinds}


def _undecided(verdict: DifferenceVerdict, reason: str) -> DifferenceVerdict:
    """No verdict, for this reason, whatever the other cases say."""
    return replace(verdict, state="inconclusive", reason=reason, n_needed=None)


def paired_score(name: str, base: Side, candidate: Side, pairs: Pairs, equal: EqualAnswers | None = None) -> PairedScore:
    """A score that both sides declare, on the cases of these pairs; what only one side lost is counted by cause. `equal`: their equal
    answers, where both were judged alike."""
    (before, old_rates), (after, new_rates) = base.values(name), candidate.values(name)
    values = before[pairs.base], after[pairs.candidate]
    sides = ((SIDES[0], base, pairs.base, values), (SIDES[1], candidate, pairs.candidate, values[::-1]))
    lost = {}
    for word, side, places, (own, other) in sides:
        one_sided = np.isnan(own) & np.isfinite(other)
        counts = {}
        for cause, found in side.lost(name).items() if np.any(one_sided) else ():
            counts[cause] = int(np.count_nonzero(found[places] & one_sided))
            one_sided &= ~found[places]  # each case counts once, by its first cause
        lost[word] = {cause: count for cause, count in counts.items() if count}
    return PairedScore(
        name,
        candidate.declared[name],
        pairs.questions,
        *values,
        old_rates[pairs.base],
        new_rates[pairs.candidate],
        lost,
        candidate.metrics["scoring"]["coverage_floor"],
        same=None if equal is None else equal.of(name),
        silent=(base.silent(name)[pairs.base], candidate.silent(name)[pairs.candidate]),
    )


def verdict_figures(verdict: DifferenceVerdict | None) -> dict[str, Any]:
    """What a verdict adds to a score of `comparison.json`; nulls for none."""
    nothing = DifferenceVerdict("inconclusive", PairedDifference(0, 0), None, math.nan, reason="no_pairs")
    effect, verdict = (None, nothing) if verdict is None else (verdict.smallest_effect, verdict)
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
        "smallest_effect": effect,
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


LATENCY, TOKENS = "latency_ms", "tokens_total"
OPERATIONS = (LATENCY, USD)
_DECLARED: Mapping[str, Any] = {"low": None, "high": None, "higher_is_better": False}


def paired_operations(base: Side, candidate: Side, pairs: Pairs) -> list[PairedScore]:
    """`latency_ms` (the system's total, else the sum of its stages) and `cost_usd` of the shared cases, where both sides
    recorded any: less is better, and there is no scale. Answers are the same in all iterations, so they are read once."""
    of_base, of_candidate = (recorded_operations(side.records, side.n_rows) for side in (base, candidate))
    nothing = np.full(len(pairs), np.nan)
    operations = []
    for name in OPERATIONS:
        values = of_base[name][base.rows][pairs.base], of_candidate[name][candidate.rows][pairs.candidate]
        score = PairedScore(name, _DECLARED, pairs.questions, *values, nothing, nothing)
        if np.any(score.measured):
            operations.append(score)
    return operations


def typical_figures(score: PairedScore) -> dict[str, Any]:
    """What the mean of a skewed quantity does not show, over the cases with a value on both sides: medians, and the median of the
    cases' ratios (candidate by base), null where no base is above 0."""
    base, candidate = score.base[score.measured], score.candidate[score.measured]
    above = base > 0
    ratio = float(np.median(candidate[above] / base[above])) if np.any(above) else None
    return {"base_median": float(np.median(base)), "candidate_median": float(np.median(candidate)), "median_ratio": ratio}


def recorded_operations(records: Path, n: int) -> dict[str, Floats]:
    """Milliseconds, tokens and dollars of each of the `n` cases of a table, by `LATENCY`, `TOKENS` and `USD`; NaN where they are not
    recorded. Raises DataError."""
    columns = {name: np.full(n, np.nan) for name in (LATENCY, TOKENS, USD)}
    first = 0
    for batch in batches(records, ["timings", "usage"], size=8192):
        for place, recorded in json_objects(batch.column("timings"), first):
            columns[LATENCY][place] = stage_times(recorded)["total"]
        for place, reported in json_objects(batch.column("usage"), first):
            usage = figures(reported, None)
            for name in (TOKENS, USD):
                columns[name][place] = usage.get(name, math.nan)
        first += batch.num_rows
    return columns


_DIGITS = 12


def score_series(side: Side, *, of_samples: bool = True) -> dict[str, str]:
    """The series of each score of a run. Two runs have a score in the same series where all that it is measured with is the same:
    the metric's class, version and parameters, the samples, the embedder, and for a judged metric the judge, the prompts and
    the reading of replies. Answers and everything else of the system may differ: they are what is compared.

    A composite, and the overall score, are in the same series where all metrics and the whole scoring but its gates are; a failure mode where its
    rule and all that its scores are measured with is. With `of_samples=False` the samples may differ too, as those of two days do.
    """
    identity, data = side.manifest["identity"], side.manifest["data"]
    samples = str(data.get("frozen", {}).get("samples.parquet") or data["digest"]) if of_samples else None
    by_judge = [identity.get("judge_identity"), identity.get("parser")]
    by_metric = {
        name: sha256([dict(each), by_judge if each.get("prompts") else None, identity.get("embedder"), samples])[:_DIGITS]
        for name, each in identity["metrics"].items()
    }
    scoring = {key: value for key, value in (identity.get("scoring") or {}).items() if key != "gates"}
    of_all = sha256([by_metric, scoring])[:_DIGITS]
    if isinstance(side, Modes):
        scores = side.scores.declared
        behind = {
            mode: [by_metric.get(scores[name]["metric"], of_all) for name in names] for mode, names in side.behind.items()
        }
        return {mode: sha256([side.rule(mode), behind[mode], samples])[:_DIGITS] for mode in side.declared}
    return {name: by_metric.get(declared["metric"], of_all) for name, declared in side.declared.items()}
