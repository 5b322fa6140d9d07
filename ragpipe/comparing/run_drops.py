"""Whether a run became worse than the one before it: of the same questions by pairs, of other questions by two independent samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.comparing.baseline_table import sample_digests
from ragpipe.comparing.equal_answers import EqualAnswers
from ragpipe.comparing.headline import headline_scores
from ragpipe.comparing.pairing import Pairs, paired_cases
from ragpipe.comparing.score_differences import paired_score, score_series
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.side import Side
from ragpipe.stats.difference_verdict import decide_together
from ragpipe.stats.independent_difference import IndependentRows, independent_difference
from ragpipe.stats.intervals import Interval

Floats = NDArray[np.float64]

PAIRED_FROM = 0.5
"""With a smaller share of shared cases the two runs are compared as independent samples."""


@dataclass(frozen=True)
class ScoreDrop:
    """A score that became worse, in its own scale.

    `difference` is this run less the one before, with the interval that excludes 0; `base` and `candidate` are the means, over `n`
    cases of this run. `values` are what its cases show: their changes of pairs, else their values. `lowest` are the places of the
    cases from the worst.
    """

    score: str
    samples: Literal["paired", "independent"]
    difference: float
    interval: Interval
    base: float
    candidate: float
    n: int
    values: Floats
    lowest: Sequence[int]


@dataclass(frozen=True)
class RunDrops:
    """What became worse between two runs; `apart` are the headline scores that both have and that were not measured alike."""

    drops: Sequence[ScoreDrop]
    apart: Sequence[str]


def run_drops(base: Side, candidate: Side, settings: CompareSettings) -> RunDrops:
    """The headline scores in which `candidate` is worse than `base`, the run before it.

    A score counts where both runs measured it in the same way; its questions may be others. With at least half of the cases shared
    (same sample, same question and labels) the shared ones are compared as pairs, the headline decided together by Holm's method.
    Else all cases of both runs are two independent samples, each interval at 1 - (1 - level) / k for k scores (Bonferroni). In
    both a difference counts that an interval separates from 0, unless a narrower one shows it to be smaller than matters.
    Raises DataError for tables that cannot be read.
    """
    headline = headline_scores(
        base.metrics, candidate.metrics, [name for name in candidate.declared if name in base.declared]
    )
    before, after = (score_series(side, of_samples=False) for side in (base, candidate))
    alike = [name for name in headline if before[name] == after[name]]
    apart = [name for name in headline if name not in alike]
    pairs = _shared(base, candidate)
    if len(pairs) >= PAIRED_FROM * max(len(base.rows), len(candidate.rows)):
        return RunDrops(_paired_drops(base, candidate, alike, pairs, settings), apart)
    return RunDrops(_independent_drops(base, candidate, alike, settings), apart)


def _shared(base: Side, candidate: Side) -> Pairs:
    """The pairs of equal keys with the same question, references and labels: an id may be used again."""
    pairs = paired_cases(base.cases, candidate.cases)
    before, after = (sample_digests(side.folder.samples) for side in (base, candidate))
    names = pairs.cases["sample_id"].to_pylist()
    places = np.array([i for i, name in enumerate(names) if before.get(name) == after.get(name)], dtype=np.int64)
    rows = pairs.base[places], pairs.candidate[places], pairs.questions[places]
    cases = pairs.cases.take(pa.array(places))
    return replace(pairs, base=rows[0], candidate=rows[1], questions=rows[2], cases=cases)


def _paired_drops(
    base: Side, candidate: Side, names: Sequence[str], pairs: Pairs, settings: CompareSettings
) -> list[ScoreDrop]:
    scores, verdicts = {}, {}
    equal = EqualAnswers(base, candidate, pairs)
    for name in names:
        score = paired_score(name, base, candidate, pairs, equal)
        if verdict := score.decided(settings):
            scores[name], verdicts[name] = score, verdict
    drops = []
    for name, verdict in zip(verdicts, decide_together(list(verdicts.values()), level=settings.level), strict=True):
        paired, score = verdict.paired, scores[name]
        if verdict.state != "worse" or paired.difference is None or paired.interval is None:
            continue
        changes = np.full(len(candidate.rows), np.nan)
        changes[pairs.candidate] = score.candidate - score.base
        drops.append(
            ScoreDrop(
                score=name,
                samples="paired",
                difference=paired.difference,
                interval=paired.interval,
                base=float(np.mean(score.base[score.measured])),
                candidate=float(np.mean(score.candidate[score.measured])),
                n=paired.n,
                values=changes,
                lowest=_worst_first(changes, score.declared),
            )
        )
    return drops


def _independent_drops(base: Side, candidate: Side, names: Sequence[str], settings: CompareSettings) -> list[ScoreDrop]:
    level = 1 - (1 - settings.level) / max(1, len(names))
    drops = []
    for name in names:
        scale = candidate.declared[name]
        before, after = _sample(base, name), _sample(candidate, name)
        wide, narrow = (
            independent_difference(
                before, after, low=scale["low"], high=scale["high"], binary=scale["binary"], level=at
            )
            for at in (level, 2 * settings.level - 1)
        )
        if wide.difference is None or wide.interval is None or narrow.interval is None or wide.interval.too_few:
            continue
        means = float(wide.base.mean or 0), float(wide.candidate.mean or 0)
        effect = settings.smallest(name, scale["low"], scale["high"], means)
        is_worse = wide.interval.high < 0 if scale["higher_is_better"] else wide.interval.low > 0
        if is_worse and not (-effect < narrow.interval.low and narrow.interval.high < effect):
            values = candidate.values(name)[0]
            drops.append(
                ScoreDrop(
                    score=name,
                    samples="independent",
                    difference=wide.difference,
                    interval=wide.interval,
                    base=means[0],
                    candidate=means[1],
                    n=wide.candidate.n,
                    values=values,
                    lowest=_worst_first(values, scale),
                )
            )
    return drops


def _sample(side: Side, name: str) -> IndependentRows:
    values = side.values(name)[0]
    is_measured = np.isfinite(values)
    codes = side.cases["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return IndependentRows(values[is_measured], codes[is_measured].astype(np.int64))


def _worst_first(values: Floats, scale: Mapping[str, Any]) -> list[int]:
    """The places of the cases with a value, the worst first."""
    order = np.argsort(values if scale["higher_is_better"] else -values, kind="stable")
    places: list[int] = order[: int(np.sum(np.isfinite(values)))].tolist()
    return places
