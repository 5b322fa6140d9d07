"""Where each job of a sweep stands in a score: by its paired difference from the highest job on the shared questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ragpipe.reports.shared_questions import SharedKey, SharedQuestions
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_difference, default_smallest_effect


class _PlacedJob(NamedTuple):
    """A job in one score: its row, its figures on the shared questions, and whether its coverage reaches the floor."""

    row: dict[str, Any]
    shared: SharedQuestions
    is_covered: bool

    @property
    def order(self) -> float:
        """Orders jobs from worst to best."""
        sign = 1 if self.shared.scale["higher_is_better"] else -1
        return sign * (self.shared.estimate.mean or 0.0)


def set_standings(
    rows: Sequence[dict[str, Any]],
    shared: Mapping[SharedKey, SharedQuestions],
    floors: Mapping[int, float],
    figures: Collection[str],
) -> None:
    """Set `standing` and the differences from the highest job in the rows of `comparison.parquet`; `figures` are the columns that
    differ between jobs that are not equal.

    Jobs are ranked among those that were judged in the same way (`ranked_with`): elsewhere a higher mean is a more lenient judge as
    well as a better answer. `equal`: they have the same figures, so what was varied has no effect on this score. `behind`: worse than the highest
    by the verdict of `decide_difference` on the questions' means, with a p-value that holds for all pairs of jobs
    (Bonferroni): the highest of several is picked by chance too. `best`: all others are behind; else it and those that
    are not behind are `not_separable`. Scores without a scale (counts) and jobs that share no question have no standing, and
    so have those with a coverage under the floor (`floors`, by job): where one of them is not behind, no job is the best.
    """
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        if row["mean"] is not None:
            groups.setdefault((row["method"], row["score"]), []).append(row)
    for group in groups.values():
        if all_equal(group, figures):
            ways = [group]
        else:
            ways = [[row for row in group if row["ranked_with"] == first] for first in _firsts(group)]
        for way in ways:
            if all_equal(way, figures):
                for row in way:
                    row["standing"] = "equal"
            else:
                _place(_placed_jobs(way, shared, floors))


def _firsts(group: Sequence[Mapping[str, Any]]) -> dict[int, None]:
    return dict.fromkeys(row["ranked_with"] for row in group)


def all_equal(group: Sequence[Mapping[str, Any]], figures: Collection[str]) -> bool:
    """Whether several jobs have the same figures."""
    return len(group) > 1 and all(row[name] == group[0][name] for row in group for name in figures)


def _placed_jobs(
    group: Sequence[dict[str, Any]], shared: Mapping[SharedKey, SharedQuestions], floors: Mapping[int, float]
) -> list[_PlacedJob]:
    """The jobs of a score that can be compared."""
    jobs = []
    for row in group:
        figures = shared.get((row["job"], row["method"], row["score"]))
        if figures is not None and figures.n and row["mean_score"] is not None:
            is_covered = row["coverage"] is None or row["coverage"] >= floors[row["job"]]
            jobs.append(_PlacedJob(row, figures, is_covered))
    return jobs


def _place(jobs: Sequence[_PlacedJob]) -> None:
    placed = [job for job in jobs if job.is_covered]
    if len(placed) < 2:
        return
    top = max(placed, key=lambda job: job.order)
    pairs = len(jobs) * (len(jobs) - 1) // 2
    top.row["to_best"] = 0.0
    is_behind = {}
    for job in jobs:
        if job is not top:
            verdict = _against(job, top)
            is_behind[job.row["job"]] = _holds_for_pairs(verdict, pairs, job.shared.level)
            job.row["to_best"] = verdict.paired.difference
            if interval := verdict.paired.interval:
                job.row.update(to_best_low=interval.low, to_best_high=interval.high)
    others = [job for job in placed if job is not top]
    near = [job for job in others if not is_behind[job.row["job"]]]
    rivals = [job for job in jobs if not job.is_covered and not is_behind[job.row["job"]]]
    for job in others:
        job.row["standing"] = "behind" if is_behind[job.row["job"]] else "not_separable"
    top.row["standing"] = "not_separable" if near else None if rivals else "best"


def _against(job: _PlacedJob, top: _PlacedJob) -> DifferenceVerdict:
    """The verdict on a job with the highest one as its base, one row per question."""
    low, high = job.shared.scale["low"], job.shared.scale["high"]
    return decide_difference(
        top.shared.values,
        job.shared.values,
        low=low,
        high=high,
        smallest_effect=default_smallest_effect(low, high),
        higher_is_better=job.shared.scale["higher_is_better"],
        level=job.shared.level,
    )


def _holds_for_pairs(verdict: DifferenceVerdict, pairs: int, level: float) -> bool:
    """Whether the job is worse, with a p-value that stands for so many pairs."""
    p_value = verdict.paired.p_value
    return verdict.state == "worse" and p_value is not None and p_value * pairs <= 1 - level
