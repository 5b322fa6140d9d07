"""The strata of a draw: by a field of the cases, by closeness to the threshold, by disagreement of two judgings."""

from __future__ import annotations

from dataclasses import dataclass

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.labelling.draw import ALL, CANNOT_DRAW, shares_of
from ragpipe.labelling.label_settings import LabelSettings
from ragpipe.labelling.population import VERDICT, Population
from ragpipe.schema.score import ScoreSpec

NEAR, FAR = "near", "far"
QUEUE = "queue"
"""The one stratum of a queue, and its part: its cases were picked by people, with no probability."""
DISAGREE, AGREE, NOT_COMPARED = "disagree", "agree", "not_compared"
APART = 0.25
"""Without a threshold two judgings disagree where they are this share of the scale apart."""


@dataclass(frozen=True)
class Strata:
    """The stratum of each case, the share of the draw that each stratum should get, and what a case of the draw that is not in
    the random part is called."""

    names: list[str]
    favoured: dict[str, float]
    part: str


def strata_of(
    settings: LabelSettings,
    population: Population,
    spec: ScoreSpec,
    threshold: float | None,
    rejudged: Population | None,
) -> Strata:
    """The strata that the settings ask for.

    Args:
        settings: the kind of the draw.
        population: what is drawn from.
        spec: the score's scale.
        threshold: the score's threshold; None without one.
        rejudged: the same score in the run that `label.rejudged` names.

    Raises ConfigError where the score lacks what the draw needs, DataError where there is nothing to target.
    """
    if settings.draw == "stratified":
        names = population.verdicts() if settings.field == VERDICT else population.labels
        return Strata(names, shares_of(names, settings.allocation), "stratified")
    if settings.draw == "threshold":
        return _near_threshold(settings.near, population, spec, threshold)
    if settings.draw == "disagreement" and rejudged is not None:
        return _in_disagreement(population, rejudged, spec)
    if settings.draw == QUEUE:
        return Strata([QUEUE] * len(population.keys), {}, QUEUE)
    return Strata([ALL] * len(population.keys), {}, "random")


def _near_threshold(near: float, population: Population, spec: ScoreSpec, threshold: float | None) -> Strata:
    """Near are the cases within `near` of the scale from the threshold."""
    width = _width(spec, "threshold")
    if threshold is None:
        fix = f"scoring.thresholds.{spec.name}=... in task=rescore, or label.draw=random"
        problem = Problem(
            "the run", f"scoring.thresholds.{spec.name}", "no threshold", "a threshold to be close to", fix
        )
        raise ConfigError(CANNOT_DRAW, [problem])
    reach = near * width + 1e-9
    names = [NEAR if abs(value - threshold) <= reach else FAR for value in population.values]
    if NEAR not in names:
        closest = min(abs(value - threshold) for value in population.values) / width
        problem = Problem(
            "label",
            "label.near",
            f"no case of {len(names):,} within {near:g} of the scale from {threshold:g}",
            "at least one",
            f"label.near={closest:.2g} reaches the closest one, or label.draw=random",
        )
        raise DataError(CANNOT_DRAW, [problem])
    return Strata(names, {NEAR: 1.0}, "targeted")


def _in_disagreement(population: Population, rejudged: Population, spec: ScoreSpec) -> Strata:
    """The verdicts differ; without verdicts the values are APART of the scale apart."""
    places = {key: place for place, key in enumerate(rejudged.keys)}
    verdicts, others = population.verdicts(), rejudged.verdicts()
    judged = all(share is not None for share in (*population.passed, *rejudged.passed))
    reach = 0.0 if judged else APART * _width(spec, "disagreement")
    names = []
    for place, key in enumerate(population.keys):
        if (match := places.get(key)) is None:
            names.append(NOT_COMPARED)
        elif judged:
            names.append(AGREE if verdicts[place] == others[match] else DISAGREE)
        else:
            apart = abs(population.values[place] - rejudged.values[match])
            names.append(DISAGREE if apart >= reach - 1e-9 else AGREE)
    if DISAGREE not in names:
        compared = len(names) - names.count(NOT_COMPARED)
        problem = Problem(
            "label.rejudged",
            "label.draw",
            f"no disagreement over {spec.name} in {compared:,} cases of both runs",
            "at least one",
            "label.draw=random",
        )
        raise DataError(CANNOT_DRAW, [problem])
    return Strata(names, {DISAGREE: 1.0}, "targeted")


def _width(spec: ScoreSpec, draw: str) -> float:
    if spec.low is None or spec.high is None:
        problem = Problem(
            "label", "label.draw", f"{draw}, for {spec.name}", "a score with a scale", "label.draw=random"
        )
        raise ConfigError(CANNOT_DRAW, [problem])
    return spec.high - spec.low
