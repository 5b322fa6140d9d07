"""Several reference answers: which of them count, and how the values measured by each become one.

A metric that reads `case.reference` derives from `ReferenceMetric` and marks `measure` with `@by_reference` and `planned_calls` with
`@planned_by_reference`. Both then see the case as often as it is measured, each time with the reference (or the one text of
all of them) to measure by. A case with one reference is seen once and as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from ragpipe.core.errors import Skipped
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import Metric, PlannedCall
from ragpipe.metrics.shared.judge_metric import gather_ordered
from ragpipe.schema.reference_answers import AnyReference, ReferenceRule
from ragpipe.schema.sample import Case
from ragpipe.schema.score import Score, ScoreSpec

M = TypeVar("M", bound="ReferenceMetric")
Scores = Score | Sequence[Score]
Row = dict[str, Any]


class ReferenceMetric(Metric):
    """A metric that measures by reference answers.

    `references` says which of several count (null: as `dataset.references` says). any: the judge sees all of them in one text
    that says that any one will do; a metric with `best_of_each` is measured by each instead, and the best value counts. first:
    the first alone. all: measured by each, the mean; a metric with `pools` takes what all of them say together.

    Where a case has several, the details of a score name the reference that its value rests on (`reference`) and, where each
    was measured, list them all (`references`). A failed judgement by one of them is an error of the case; a reference by which
    nothing can be measured is left out, and listed with its reason. A value whose reason is among `last_resort` counts only
    where no other reference gives one.
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
            return [_narrowed(case, texts[0])]
        if self.rule == "any" and not self.best_of_each:
            return [_narrowed(case, AnyReference(texts))]
        return [_narrowed(case, text) for text in texts]


def _narrowed(case: Case, text: str) -> Case:
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
    """`measure` over the views of a case, and one value made of theirs."""

    @functools.wraps(measure)
    async def measured(self: M, case: Case, judge: Judge) -> Scores:
        count = len(case.references)
        if count < 2 or not self.uses_references:
            return await measure(self, case, judge)
        attempts = await gather_ordered(*(_attempt(measure(self, view, judge)) for view in self.views(case)))
        if isinstance(why := attempts[0], str) and all(isinstance(one, str) for one in attempts):
            raise Skipped(why)
        found = [_skipped(self, one) if isinstance(one, str) else one for one in attempts]
        if len(found) == 1:
            said = {"any": f"any of {count}", "first": f"1 of {count}", "all": f"all {count} together"}[self.rule]
            return [replace(score, details={**score.details, "reference": said}) for score in found[0]]
        return _mean(self, found) if self.rule == "all" else _best(self, found)

    return measured


def planned_by_reference(
    asks: Callable[[M, Case], Iterable[PlannedCall]],
) -> Callable[[M, Case], Iterator[PlannedCall]]:
    """`planned_calls` over the views of a case."""

    @functools.wraps(asks)
    def asked(self: M, case: Case) -> Iterator[PlannedCall]:
        for view in self.views(case):
            yield from asks(self, view)

    return asked


def mean_of_references(details: Mapping[str, Any]) -> str | None:
    """How a mean over references follows from the details, for `task=explain`; None for other values."""
    rows = details.get("references")
    if not str(details.get("reference")).startswith(_MEAN) or not isinstance(rows, list):
        return None
    terms = [f"{row['value']:g}" for row in rows if row.get("value") is not None]
    return f"({' + '.join(terms)}) / {len(terms)} references"


_MEAN = "mean of"


async def _attempt(measured: Awaitable[Scores]) -> list[Score] | str:
    """The scores by one reference, or why nothing can be measured by it: that does not take the others away."""
    try:
        found = await measured
    except Skipped as skip:
        return skip.reason
    return [found] if isinstance(found, Score) else list(found)


def _skipped(metric: Metric, reason: str) -> list[Score]:
    return [Score(name=name, status="skipped", reason=reason) for name in metric.score_names]


def _best(metric: ReferenceMetric, found: Sequence[Sequence[Score]]) -> list[Score]:
    """All scores by the reference that gives the best first score; of equal ones the next score decides, then the order."""
    specs = metric.scores()
    if faults := _faults(found):
        return faults
    number = max(range(len(found)), key=lambda n: [_worth(metric, s, d) for s, d in zip(found[n], specs, strict=True)])
    return [
        replace(
            score,
            details={
                **score.details,
                "reference": f"{number + 1} of {len(found)}",
                "references": [_row(*one) for one in _nth(found, place)],
            },
        )
        for place, score in enumerate(found[number])
    ]


def _worth(metric: ReferenceMetric, score: Score, spec: ScoreSpec) -> tuple[bool, bool, float]:
    if score.value is None:
        return False, False, 0.0
    return True, score.reason not in metric.last_resort, score.value if spec.higher_is_better else -score.value


def _mean(metric: ReferenceMetric, found: Sequence[Sequence[Score]]) -> list[Score]:
    """The mean over the references by which something could be measured, score by score."""
    return _faults(found) or [_mean_score(name, [*_nth(found, n)]) for n, name in enumerate(metric.score_names)]


def _mean_score(name: str, found: Sequence[tuple[int, Score]]) -> Score:
    rows = [{**_row(number, one), **_without_flags(one.details)} for number, one in found]
    flags = list(dict.fromkeys(flag for _, one in found for flag in one.details.get("flags", ())))
    values = [one.value for _, one in found if one.value is not None]
    details = {"reference": f"{_MEAN} {len(values)} of {len(found)}", "references": rows, "flags": flags}
    if not values:
        return replace(found[0][1], name=name, details=details)
    return Score(fmean(values), name, reason=f"mean of {len(values)} of {len(found)} references", details=details)


def _faults(found: Sequence[Sequence[Score]]) -> list[Score]:
    """All scores as errors where one by some reference is: half of what was asked for is no value. Empty where none is."""
    for number, scores in enumerate(found, 1):
        for score in scores:
            if score.status == "error":
                reason = f"reference {number}: {score.reason}"
                return [
                    replace(one, value=None, status="error", reason=reason, details=score.details) for one in scores
                ]
    return []


def _nth(found: Sequence[Sequence[Score]], place: int) -> Iterator[tuple[int, Score]]:
    """The score at a place, by the number of its reference from 1."""
    return ((number, scores[place]) for number, scores in enumerate(found, 1))


def _row(number: int, score: Score) -> Row:
    return {"reference": number, "value": score.value, "reason": score.reason}


def _without_flags(details: Mapping[str, Any]) -> Row:
    return {name: value for name, value in details.items() if name != "flags"}
