"""What the people who label are asked about a score, and the grades that they choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import did_you_mean
from ragpipe.labelling.draw import CANNOT_DRAW
from ragpipe.labelling.label_files import Draw, LabelGrade
from ragpipe.metrics.base import Metric
from ragpipe.schema.score import MOST_GRADES, ScoreSpec, whole_grades


@dataclass(frozen=True)
class AskedQuestion:
    """The metric, the score that is labelled, the question and the grades."""

    metric: Metric
    spec: ScoreSpec
    question: str
    grades: list[LabelGrade]


def asked_question(
    metrics: Sequence[Metric], name: str | None, question: str | None, grades: dict[str, float] | None
) -> AskedQuestion:
    """What is asked about the score or metric of this name: as the caller says, else as the metric's `label` says, else by the
    scale of the score. Of a metric with several scores it is the first.

    Raises ConfigError for a name that the run does not have, and grades outside of the scale.
    """
    metric, spec = _labelled_score(metrics, name)
    section = metric.label_question
    grades = grades or (section.grades if section and spec.name == metric.scores()[0].name else None)
    words = question or (section.question if section else f"How do you grade this case for {_in_words(spec.name)}?")
    listed = [LabelGrade(name=key, value=value) for key, value in grades.items()] if grades else _by_scale(spec)
    outside = [grade.name for grade in listed if not spec.holds(grade.value)]
    if outside:
        expected = f"values from {spec.low:g} to {spec.high:g}, the scale of {spec.name}"
        raise ConfigError(CANNOT_DRAW, [Problem("label", "label.grades", ", ".join(outside), expected)])
    return AskedQuestion(metric, spec, words, listed)


def drawn_metric(draws: Sequence[Draw]) -> str | None:
    """The name by which the drawn score of a run was chosen, for a start that names none; None without a draw. Raises ConfigError
    where several scores are drawn."""
    names = {draw.score: str(draw.settings.get("metric") or draw.score) for draw in draws}
    if len(names) > 1:
        expected = f"one of those that are drawn: {', '.join(names.values())}"
        fix = f"label.metric={next(iter(names.values()))}"
        raise ConfigError(CANNOT_DRAW, [Problem("label", "label.metric", "nothing", expected, fix)])
    return next(iter(names.values()), None)


def _labelled_score(metrics: Sequence[Metric], name: str | None) -> tuple[Metric, ScoreSpec]:
    scores = {spec.name: (metric, spec) for metric in metrics for spec in metric.scores()}
    firsts = {metric.name: (metric, metric.scores()[0]) for metric in metrics if metric.scores()}
    known = firsts | scores
    if name is None or name not in known:
        fix = did_you_mean(name or "", known) or f"label.metric={next(iter(known), '...')}"
        problem = Problem("label", "label.metric", name or "nothing", f"one of {', '.join(known)}", fix)
        raise ConfigError(CANNOT_DRAW, [problem])
    return known[name]


def _by_scale(spec: ScoreSpec) -> list[LabelGrade]:
    """The grades of a judge where the score has them; yes and no for 0 and 1; whole numbers of a short scale; else all, partly
    and none, the ends of the scale and its middle."""
    if spec.low is None or spec.high is None:
        expected = f"grades with their values: {spec.name} has no scale"
        problem = Problem("label", "label.grades", "nothing", expected, "'label.grades={good: 1, bad: 0}'")
        raise ConfigError(CANNOT_DRAW, [problem])
    low, high = spec.low, spec.high
    if spec.binary:
        steps: Sequence[tuple[str, float]] = (("yes", high), ("no", low))
    elif spec.grades and len(spec.grades) <= MOST_GRADES:
        steps = spec.grades
    elif 1 < high - low < MOST_GRADES and high == int(high) and low == int(low):
        steps = whole_grades(low, high)
    else:
        steps = (("all", high), ("partly", (low + high) / 2), ("none", low))
    return [LabelGrade(name=name, value=value) for name, value in steps]


def _in_words(score: str) -> str:
    return score.replace("_", " ")
