"""Several reference answers: which of them count, and how the values measured by each become one.

A metric that reads `case.reference` derives from `ReferenceMetric` and marks `measure` with `@by_reference`. It then sees the case as
often as it is measured, each time with the reference (or the one text of all of them) to measure by. A case with one reference is
seen once and as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from ragpipe.core.errors import Skipped
from ragpipe.core.sample import AnyReference, Case, ReferenceRule
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.question import Judge
from ragpipe.metrics.base import Metric
from ragpipe.metrics.shared.judge_metric import gather_ordered

M = TypeVar("M", bound="ReferenceMetric")
Scores = Score | Sequence[Score]
Row = dict[str, Any]


class ReferenceMetric(Metric):
    """A metric that compares with reference answers.

    `references` says which of several count (null: as `dataset.references` says). any: the judge sees all of them in
    one text that says that any one will do; a metric with `best_of_each` measures by each instead, and the best value
    counts. first: only the first. all: measured by each, then the mean; a metric with `pools` takes what all of them
    say together.

    Where a case has several, the details of a score name the reference of its value (`reference`) and, where each was
    measured, list them all (`references`). A failed judgement by one of them is an error of the case. A reference that
    gives no value is left out, and listed with its reason. A value whose reason is in `last_resort` counts only where
    no other reference gives one.
    """

    best_of_each: ClassVar[bool] = False
    pools: ClassVar[bool] = False
    last_resort: ClassVar[frozenset[str]] = frozenset()

    references: ReferenceRule | None = Field(
        default=None,
        description=(
            "Which of several reference answers count. any: any of them will do; first: the first; all: each is "
            "measured, and the mean counts. null: as `dataset.references` says."
        ),
    )

    @property
    def rule(self) -> ReferenceRule:
        """Which references count."""
        return self.references or "any"

    @property
    def uses_references(self) -> bool:
        """Whether its parameters let it see the reference at all."""
        return True

    def views(self, case: Case) -> list[Case]:
        """The case as often as it is measured, each with the references that are measured by at once."""
        texts = case.references
        if len(texts) < 2 or not self.uses_references or (self.rule == "all" and self.pools):
            return [case]
        if self.rule == "first":
            return [_with_reference(case, texts[0])]
        if self.rule == "any" and not self.best_of_each:
            return [_with_reference(case, AnyReference(texts))]
        return [_with_reference(case, text) for text in texts]


def _with_reference(case: Case, text: str) -> Case:
    return replace(case, sample=case.sample.model_copy(update={"references": [text]}))


def with_rule(metrics: Mapping[str, Metric], rule: ReferenceRule) -> dict[str, Metric]:
    """The metrics, those that leave `references` to the data set with its rule."""
    return {
        name: metric.model_copy(update={"references": rule})
        if isinstance(metric, ReferenceMetric) and metric.references is None
        else metric
        for name, metric in metrics.items()
    }


def by_reference(measure: Callable[[M, Case, Judge], Awaitable[Scores]]) -> Callable[[M, Case, Judge], Any]:
    """Decorator of `measure`: measure each view of a case, and combine the values."""

    @functools.wraps(measure)
    async def measure_by_reference(self: M, case: Case, judge: Judge) -> Scores:
        count = len(case.references)
        if count < 2 or not self.uses_references:
            return await measure(self, case, judge)
        results = await gather_ordered(*(_attempt(measure(self, view, judge)) for view in self.views(case)))
        if isinstance(reason := results[0], str) and all(isinstance(result, str) for result in results):
            raise Skipped(reason)
        names = self.score_names
        rows = [
            [Score(name=name, status="skipped", reason=result) for name in names] if isinstance(result, str) else result
            for result in results
        ]
        if len(rows) == 1:
            label = {"any": f"any of {count}", "first": f"1 of {count}", "all": f"all {count} together"}[self.rule]
            return [replace(score, details={**score.details, "reference": label}) for score in rows[0]]
        return _mean(self, rows) if self.rule == "all" else _best(self, rows)

    return measure_by_reference


def mean_of_references(details: Mapping[str, Any]) -> str | None:
    """How a mean over references follows from the details, for `task=explain`; None for other values."""
    rows = details.get("references")
    if not str(details.get("reference")).startswith(_MEAN) or not isinstance(rows, list):
        return None
    terms = [f"{row['value']:g}" for row in rows if row.get("value") is not None]
    return f"({' + '.join(terms)}) / {len(terms)} references"


_MEAN = "mean of"


async def _attempt(measured: Awaitable[Scores]) -> list[Score] | str:
    """The scores by one reference, or the reason why it gives none: that does not affect the other references."""
    try:
        scores = await measured
    except Skipped as skip:
        return skip.reason
    return [scores] if isinstance(scores, Score) else list(scores)


def _best(metric: ReferenceMetric, rows: Sequence[Sequence[Score]]) -> list[Score]:
    """All scores by the reference with the best first score. Ties are decided by the next score, then by the order."""
    specs = metric.scores()
    if errors := _errors(rows):
        return errors
    best = max(range(len(rows)), key=lambda n: [_sort_key(metric, s, d) for s, d in zip(rows[n], specs, strict=True)])
    columns = ([_row(number, score) for number, score in enumerate(scores, 1)] for scores in zip(*rows, strict=True))
    return [
        replace(score, details={**score.details, "reference": f"{best + 1} of {len(rows)}", "references": references})
        for score, references in zip(rows[best], columns, strict=True)
    ]


def _sort_key(metric: ReferenceMetric, score: Score, spec: ScoreSpec) -> tuple[bool, bool, float]:
    if score.value is None:
        return False, False, 0.0
    return True, score.reason not in metric.last_resort, score.value if spec.higher_is_better else -score.value


def _mean(metric: ReferenceMetric, rows: Sequence[Sequence[Score]]) -> list[Score]:
    """The mean over the references that give a value, score by score."""
    columns = zip(metric.score_names, zip(*rows, strict=True), strict=True)
    return _errors(rows) or [_mean_score(name, scores) for name, scores in columns]


def _mean_score(name: str, scores: Sequence[Score]) -> Score:
    of_each = [{**_row(number, score), **score.details} for number, score in enumerate(scores, 1)]
    rows = [{name: value for name, value in row.items() if name != "flags"} for row in of_each]
    flags = list(dict.fromkeys(flag for score in scores for flag in score.details.get("flags", ())))
    values = [score.value for score in scores if score.value is not None]
    details = {"reference": f"{_MEAN} {len(values)} of {len(scores)}", "references": rows, "flags": flags}
    if not values:
        return replace(scores[0], name=name, details=details)
    return Score(fmean(values), name, reason=f"mean of {len(values)} of {len(scores)} references", details=details)


def _errors(rows: Sequence[Sequence[Score]]) -> list[Score]:
    """All scores as errors where one by some reference is an error: a value of some references is no value. Else empty."""
    for number, scores in enumerate(rows, 1):
        for score in scores:
            if score.status == "error":
                reason = f"reference {number}: {score.reason}"
                return [replace(each, value=None, status="error", reason=reason, details=score.details) for each in scores]
    return []


def _row(number: int, score: Score) -> Row:
    return {"reference": number, "value": score.value, "reason": score.reason}
