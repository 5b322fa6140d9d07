"""Checks of the scoring section against the scores of the run; each fault with the known names and the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ragpipe.core.errors import Problem
from ragpipe.core.score import ScoreSpec
from ragpipe.score.conditions import ANY_SCORE, DetailCondition, FailureModeCondition, ScoreCondition
from ragpipe.score.dimensions import CASE, nearest_field
from ragpipe.score.gate_settings import OPERATIONS, Gate
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import DEFAULT, ScoringSettings, shipped

Specs = Mapping[str, ScoreSpec]
WHERE = "scoring"


def scoring_faults(settings: ScoringSettings, specs: Sequence[ScoreSpec], others: Callable[[], Specs] = dict) -> list[Problem]:
    """All faults of `settings` beside the scores that the run's metrics declare.

    A name is known when a metric of the run gives it or the shipped section names it. Weights, thresholds and parts of
    composites may also be those of `others`, metrics that are not switched on: several experiments can share a file of them.
    `others` is called only for a name that is not known without it.
    """
    composites = {name: composite.spec(name) for name, composite in settings.active_composites().items()}
    declared = {spec.name: spec for spec in (*specs, OVERALL)}
    everything = {**composites, **declared}
    return [
        *_weights(settings, everything, others),
        *_thresholds(settings, everything, others),
        *_passes_with(settings, everything),
        *_composites(settings, declared, others),
        *_gates(settings, everything),
        *_rules(settings, everything),
        *_items(settings, declared),
        *_bands(settings, everything),
    ]


def _weights(settings: ScoringSettings, specs: Specs, others: Callable[[], Specs]) -> Iterator[Problem]:
    known = {*shipped()["weights"], *specs} - {OVERALL.name}
    for name, weight in settings.weights.items():
        key = f"scoring.weights.{name}"
        spec = specs.get(name) if name in known else others().get(name)
        if name not in known and spec is None:
            yield _unknown(key, name, known, others())
        elif spec and weight > 0 and (fault := _unweighable(spec)):
            yield Problem(WHERE, key, f"{weight:g}", f"0, because {fault}", f"{key}=0")


def _thresholds(settings: ScoringSettings, specs: Specs, others: Callable[[], Specs]) -> Iterator[Problem]:
    known = {*shipped()["thresholds"], *specs}
    for name in settings.thresholds:
        key, spec = f"scoring.thresholds.{name}", specs.get(name)
        threshold = settings.threshold(spec) if spec else None
        if name not in known and name not in others():
            yield _unknown(key, name, known, others())
        elif wrong := _unknown_method(settings.thresholds[name], shipped()["thresholds"].get(name), spec, key):
            yield wrong
        elif spec and threshold is not None and not spec.holds(threshold):
            yield Problem(WHERE, key, f"{threshold:g}", f"a value of its scale, {spec.low:g} to {spec.high:g}")


def _unknown_method(given: Any, shipped_ones: Any, spec: ScoreSpec | None, key: str) -> Problem | None:
    """A threshold by method for a method that the score does not have. Which methods a plugin's metric has is not known."""
    if not isinstance(given, dict):
        return None
    if not isinstance(shipped_ones, dict):
        found = "thresholds by method, and it has no methods"
        return Problem(WHERE, key, found, "a number, or null", f"{key}=0.7") if spec and not spec.method else None
    for method in given:
        if method not in shipped_ones:
            found = f"unknown method {method!r}{nearest_field(method, shipped_ones)}"
            return Problem(WHERE, f"{key}.{method}", found, f"one of {', '.join(shipped_ones)}")
    return None


def _passes_with(settings: ScoringSettings, specs: Specs) -> Iterator[Problem]:
    known = {*shipped()["thresholds"], *shipped()["passes_with"], *specs}
    for name, others in settings.passes_with.items():
        key = f"scoring.passes_with.{name}"
        for unknown in sorted({name, *others} - known):
            yield _unknown(key, unknown, known)
        if OVERALL.name in (name, *others):
            expected = "scores of metrics and composites: a critical gate on a score decides overall_passed"
            yield Problem(WHERE, key, OVERALL.name, expected)
        for required in others:
            if required != name and name in settings.deciding_scores(required):
                problem, fix = (
                    f"{required}, which itself passes only when {name} does",
                    f"take {required} or {name} out of one",
                )
                yield Problem(WHERE, key, problem, "scores that can be judged before it", fix)


def _composites(settings: ScoringSettings, declared: Specs, others: Callable[[], Specs]) -> Iterator[Problem]:
    shipped_parts = {part for composite in shipped()["composites"].values() for part in composite["weights"]}
    known = {*shipped()["weights"], *shipped_parts, *declared} - {OVERALL.name}
    columns = {name for name, _, _ in CASE}
    for name, composite in settings.active_composites().items():
        key = f"scoring.composites.{name}"
        if name in declared or name in columns:
            owner = "a score of this run" if name in declared else "a column of records.parquet"
            yield Problem(WHERE, key, f"the name {name!r}", f"a name that is free; {name} is that of {owner}")
        for part in composite.parts:
            spec, part_key = declared.get(part) if part in known else others().get(part), f"{key}.weights.{part}"
            if part in settings.active_composites() and part not in declared:
                yield Problem(WHERE, part_key, f"the composite {part!r}", "scores of metrics, not composites")
            elif part not in known and spec is None:
                yield _unknown(part_key, part, known, others())
            elif spec and spec.low is None:
                yield Problem(WHERE, part_key, f"{part!r}, a count", "scores on a scale: a count has none")


def _gates(settings: ScoringSettings, specs: Specs) -> Iterator[Problem]:
    known = {*_shipped_names(), *OPERATIONS, *specs}
    for name, gate in settings.active_gates().items():
        key = f"scoring.gates.{name}"
        spec = specs.get(gate.score or "")
        scaled = gate.of == "pass_rate" or gate.is_rate or (spec is not None and spec.low is not None)
        if gate.by == "interval" and gate.at_the_end(scaled=scaled):
            expected = "a limit that an interval can stay within: it never ends at 0 or 1 exactly"
            yield Problem(WHERE, f"{key}.by", "interval", expected, f"scoring.gates.{name}.by=point")
        if gate.failure_mode is not None:
            modes = [mode for mode, rule in settings.failure_modes.items() if rule is not None]
            if gate.failure_mode not in modes:
                yield _unknown_mode(f"{key}.failure_mode", gate.failure_mode, modes)
        elif gate.preference_against is None and (gate.score is None or gate.score not in known):
            yield _unknown(f"{key}.score", gate.score or "", known)
        elif spec and gate.score not in OPERATIONS:
            yield from _limits(gate, spec, key, judged=settings.passes(spec))


def _rules(settings: ScoringSettings, specs: Specs) -> Iterator[Problem]:
    known = {*_shipped_names(), *specs}
    modes = [name for name, rule in settings.failure_modes.items() if rule is not None]
    for key, rule in settings.rules().items():
        for leaf in rule.leaves():
            if isinstance(leaf, ScoreCondition | DetailCondition):
                for name in leaf.score:
                    if name not in known and not (name == ANY_SCORE and isinstance(leaf, ScoreCondition)):
                        yield _unknown(key, name, known)
            elif isinstance(leaf, FailureModeCondition) and key.startswith("scoring.failure_modes."):
                expected = "conditions on scores and fields: only a diagnosis may name a failure mode"
                yield Problem(WHERE, key, f"the failure mode {leaf.failure_mode!r}", expected)
            elif isinstance(leaf, FailureModeCondition) and leaf.failure_mode not in settings.failure_modes:
                yield _unknown_mode(key, leaf.failure_mode, modes)


def _items(settings: ScoringSettings, specs: Specs) -> Iterator[Problem]:
    known = {*_shipped_names(), *specs}
    for mode, items in settings.counted_items().items():
        key = f"scoring.failure_items.{mode}"
        if mode not in settings.failure_modes:
            yield _unknown_mode(key, mode, settings.failure_modes)
        for item in items.of:
            if item.score not in known:
                yield _unknown(key, item.score, known)


def _bands(settings: ScoringSettings, specs: Specs) -> Iterator[Problem]:
    known = {*_shipped_names(), *specs, DEFAULT}
    for name, bands in settings.low_scores.bands.items():
        key, spec = f"scoring.low_scores.bands.{name}", specs.get(name)
        if name not in known:
            yield _unknown(key, name, known)
        ends = [band.up_to for band in bands or () if band.up_to is not None]
        for end in ends:
            if spec and not spec.holds(end):
                yield Problem(WHERE, key, f"up_to {end:g}", f"a value of its scale, {spec.low:g} to {spec.high:g}")
        if spec and any((b < a) == spec.higher_is_better for a, b in pairwise(ends)):
            better, found = "higher" if spec.higher_is_better else "lower", ", ".join(f"{end:g}" for end in ends)
            yield Problem(WHERE, key, f"up_to {found}", f"the worst first: {better} is better")


def _shipped_names() -> set[str]:
    default = shipped()
    parts = {part for composite in default["composites"].values() for part in composite["weights"]}
    in_rules = set(_names_in([default["failure_modes"], default["diagnosis"]]))
    banded = set(default["low_scores"]["bands"]) - {DEFAULT}
    sections = ("weights", "thresholds", "passes_with", "composites")
    return {*(name for section in sections for name in default[section]), *parts, *in_rules, *banded}


def _names_in(rules: Any) -> Iterator[str]:
    if isinstance(rules, dict):
        scores = rules.get("score", [])
        yield from (name for name in ([scores] if isinstance(scores, str) else scores) if name != ANY_SCORE)
    for inner in rules.values() if isinstance(rules, dict) else rules if isinstance(rules, list) else ():
        yield from _names_in(inner)


def _limits(gate: Gate, spec: ScoreSpec, key: str, *, judged: bool) -> Iterator[Problem]:
    """Limits that no value could meet, and a pass rate of what never passes or fails."""
    if gate.of == "pass_rate" and not judged:
        problem = f"pass_rate of {spec.name}, which has no threshold"
        fix = f"scoring.thresholds.{spec.name}=..."
        yield Problem(WHERE, f"{key}.of", problem, "of: mean, or a threshold for the score", fix)
    if spec.low is None and gate.of != "pass_rate":
        return  # the mean of a count has no bounds
    for end, value in (("min", gate.min), ("max", gate.max)):
        if value is not None and not 0 <= value <= 1:
            expected = "0 to 1: a pass rate, or the mean of `score`, which is 0 (worst) to 1 (best) on every native scale"
            yield Problem(WHERE, f"{key}.{end}", f"{value:g}", expected)


def _unknown(key: str, name: str, known: Collection[str], others: Collection[str] = ()) -> Problem:
    """A name that no metric gives. `others` may be written too: they are looked through for the nearest one, but are too many to list."""
    more = ", or another score of docs/metrics.md" if others else ""
    nearest = nearest_field(name, {*known, *others})
    return Problem(WHERE, key, f"unknown score {name!r}{nearest}", f"one of {_list(known)}{more}")


def _unknown_mode(key: str, name: str, modes: Collection[str]) -> Problem:
    found = f"unknown failure mode {name!r}{nearest_field(name, modes)}"
    return Problem(WHERE, key, found, f"one of {_list(modes)}")


def _unweighable(spec: ScoreSpec) -> str | None:
    if spec.low is None or spec.high is None:
        return "a count has no scale and cannot be part of a mean"
    return "a diagnostic score weighs nothing" if spec.diagnostic else None


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
