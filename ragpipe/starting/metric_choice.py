"""Which metrics a data set allows with the embedded judge, and what the others need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from ragpipe.core.resources import conf_dir
from ragpipe.profiling.label_fields import DataFacts
from ragpipe.profiling.metric_needs import MetricNeed, default_metrics, gives_value, metric_needs
from ragpipe.schema.sample import Case
from ragpipe.scoring.composites import OVERALL

NEEDS_MODEL = "a language model"
_BY_OTHERS = "recorded"  # has entries of its own


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """The metrics that can run, and for each of the others what it needs, by name."""

    chosen: tuple[str, ...]
    left_out: dict[str, str]


def choose_metrics(facts: DataFacts, probe: Sequence[Case] = ()) -> MetricChoice:
    """Every shipped metric that needs no model of any kind, and whose labels some case has.

    One that the embedded judge answers in part is among them where it gives a value on one of the cases of `probe`, or where
    there are none to try: it says for each case what it could not tell.
    """
    needs = [need for need in metric_needs(facts) if need.name != _BY_OTHERS]
    lacking = {need.name: ", ".join(_lacks(need, probe)) for need in needs}
    return MetricChoice(
        tuple(name for name, lack in lacking.items() if not lack),
        {name: lack for name, lack in lacking.items() if lack},
    )


def score_names() -> frozenset[str]:
    """The names of all scores of the shipped metrics with their default parameters, and of the shipped composites."""
    scoring = yaml.safe_load((conf_dir() / "scoring" / "default.yaml").read_text(encoding="utf-8"))
    measured = (score.name for metric in default_metrics() for score in metric.scores())
    return frozenset([*measured, *scoring["composites"], OVERALL.name])


def _lacks(need: MetricNeed, probe: Sequence[Case]) -> Iterator[str]:
    metric = next(metric for metric in default_metrics() if metric.name == need.name)
    is_mute = need.embedded_judge == "partly" and not need.missing and probe and not gives_value(metric, probe)
    if need.embedded_judge == "no" or is_mute:
        yield NEEDS_MODEL
    if need.needs_embedder:
        yield "an embedder"
    if metric.encoder_settings:
        yield "a model of tokens"
    yield from need.missing
