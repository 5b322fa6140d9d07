"""One case measured by several judges: each member measures it as if it were alone, and their scores become one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ragpipe.judging.jury.aggregation import combine
from ragpipe.judging.jury.jury import Jury, is_drawn, is_unsure
from ragpipe.judging.jury.settings import CascadeSettings
from ragpipe.judging.session import JudgeSession
from ragpipe.metrics.base import Metric
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.score import Score
from ragpipe.stages.table_rows import Measurement

Measure = Callable[[JudgeSession, int], Awaitable[Measurement]]
"""Measures the case by the judge of a session; the number says which repeat it is, from 1. A failed judgement is a result."""


async def measure_by_jury(metric: Metric, case: CaseKey, jury: Jury, measure: Measure) -> Measurement:
    """The scores of a jury for one metric and case, with the questions of all members. Raises what `measure` raises."""
    sessions, cascade = jury.members_of(metric.name), jury.settings.cascade_of(metric.name)
    if cascade is None:
        by_member = await _ask(sessions, jury.settings.repeats, measure)
        return _combined(metric, jury, by_member)
    first = await _ask({cascade.first: sessions[cascade.first]}, jury.settings.repeats, measure)
    alone = _combined(metric, jury, first)
    unsure = any(is_unsure(cascade, *pair) for pair in zip(metric.scores(), alone.scores, strict=True))
    drawn = not unsure and is_drawn(cascade, case, metric.name)
    if not (unsure or drawn):
        return _of_cascade(alone, cascade.first, None, drawn=False)
    second = await _ask({cascade.then: sessions[cascade.then]}, jury.settings.repeats, measure)
    return _decided(metric, jury, cascade, alone, second, drawn=drawn)


async def _ask(sessions: Mapping[str, JudgeSession], repeats: int, measure: Measure) -> dict[str, list[Measurement]]:
    """What each member measures, repeat after repeat; all at the same time."""
    asked = [(name, measure(session, repeat)) for name, session in sessions.items() for repeat in range(1, repeats + 1)]
    results = await asyncio.gather(*(work for _, work in asked), return_exceptions=True)
    by_member: dict[str, list[Measurement]] = {name: [] for name in sessions}
    for (name, _), result in zip(asked, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        by_member[name].append(result)
    return by_member


def _combined(metric: Metric, jury: Jury, by_member: Mapping[str, Sequence[Measurement]]) -> Measurement:
    """One measurement of the members'. It may change by asking again where one of theirs may."""
    settings = jury.settings
    scores = [
        combine(
            spec,
            {name: [repeat.scores[place] for repeat in repeats] for name, repeats in by_member.items()},
            rule=settings.aggregation_of(metric.name),
            min_members=settings.min_members,
            threshold=settings.agreement_threshold,
        )
        for place, spec in enumerate(metric.scores())
    ]
    measured = [repeat for repeats in by_member.values() for repeat in repeats]
    uses = [use for measurement in measured for use in measurement.uses]
    return Measurement(metric, scores, uses, transient=any(measurement.transient for measurement in measured))


def _decided(
    metric: Metric,
    jury: Jury,
    cascade: CascadeSettings,
    alone: Measurement,
    second: Mapping[str, Sequence[Measurement]],
    *,
    drawn: bool,
) -> Measurement:
    """What counts where both members of a cascade judged: the second where the first was unsure, the first where the case was only
    drawn to measure the bias of leaving the second out."""
    then = _combined(metric, jury, second)
    counting, name = (alone, cascade.first) if drawn else (then, cascade.then)
    decided = _of_cascade(counting, name, [alone, then], drawn=drawn)
    decided.uses = [*alone.uses, *then.uses]
    decided.transient = alone.transient or then.transient
    return decided


def _of_cascade(counting: Measurement, by: str, both: Sequence[Measurement] | None, *, drawn: bool) -> Measurement:
    """The measurement with what the cascade did, in the details of each score."""
    scores = []
    for place, score in enumerate(counting.scores):
        values = [measurement.scores[place].value for measurement in both] if both else None
        word = {"by": by, "drawn": drawn, **({"values": values} if values else {})}
        jury = {**score.details.get("jury", {}), "cascade": word}
        scores.append(Score(score.value, score.name, score.status, score.reason, {**score.details, "jury": jury}))
    return Measurement(counting.metric, scores, list(counting.uses), transient=counting.transient)
