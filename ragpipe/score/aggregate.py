"""`metrics.json`: every score over all cases and by slice, each number with its count and its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.sample import NOT_RECORDED, PARTS
from ragpipe.core.score import NO_FACTUAL_CLAIMS, ScoreSpec, warnings_about
from ragpipe.score.accumulators import Accumulators, ScoreLedger, membership
from ragpipe.score.cost import operations
from ragpipe.score.dimensions import DIMENSIONS
from ragpipe.score.normalisation import ERROR, MISSING, OK, OVERALL, SKIPPED, estimate_of, figures_of
from ragpipe.score.settings import ScoringSettings, shipped
from ragpipe.score.value_distributions import extremes, grades, lone_grades
from ragpipe.stats.intervals import distinct, estimate_rate, in_all, in_any

Places = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

VALUES_MAX = 200  # a field with more values than this is no breakdown but a list of cases
_SHOWN_REASONS = 20
_MANY_SILENT = 0.2
"""The share of a score's values from answers that state nothing from which on it is warned of."""


def aggregate(ledger: Accumulators, specs: Sequence[ScoreSpec], settings: ScoringSettings) -> dict[str, Any]:
    """`declared`, `overall`, `by` and `warnings` of `metrics.json`. Plain JSON without NaN; the ledger must be closed.

    `specs` are those of the metrics and of the composites. `overall` names every score, a group of `by` only those that
    apply to one of its cases. What is 0, empty or never judged has no key: see `_score`.
    """
    overall = summary(ledger, np.arange(ledger.n, dtype=np.int64), specs, settings)
    by, field_warnings = _breakdowns(ledger, specs, settings, overall)
    shown_specs = [*specs, *([OVERALL] if OVERALL.name in overall["scores"] else [])]
    shared = _shared(ledger, shown_specs, settings)
    warnings = [
        *warnings_about("scoring", settings.weight_warnings([name for name, s in overall["scores"].items() if s["n_ok"]])),
        *warnings_about("verdicts", settings.unjudged_warnings(ledger.scores)),
        *warnings_about("language", _languages(overall["scores"])),
        *warnings_about("coverage", coverage_warnings(overall["scores"], settings.coverage_floor)),
        *warnings_about("verdicts", _unjudged(overall["scores"], settings)),
        *warnings_about("unfinished", _unfinished(overall["scores"])),
        *warnings_about("breakdowns", field_warnings),
        *warnings_about("not_recorded", _not_recorded(ledger, overall)),
        *warnings_about("system_errors", _system_errors(overall)),
        *warnings_about("shared_questions", unshared_warnings(shared) if shared else []),
        *warnings_about("overall_score", _overall_warnings(specs, overall["scores"], settings)),
        *warnings_about("grades", lone_grades(ledger, specs)),
        *warnings_about("silent", _silent(overall, by)),
    ]
    return {
        "n_cases": ledger.n,
        "n_samples": len(distinct(ledger.samples)),
        "n_failed_judgements": ledger.n_failed,
        "declared": score_declarations(shown_specs, settings),
        "composite_parts": settings.parts([spec.name for spec in specs]),
        "overall": overall,
        "by": by,
        **({"shared": shared} if shared else {}),
        "grades": grades(ledger, specs),
        "extremes": extremes(ledger, shown_specs),
        "warnings": warnings,
    }


def _breakdowns(
    ledger: Accumulators, specs: Sequence[ScoreSpec], settings: ScoringSettings, overall: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """`by` of `metrics.json`, and a warning for each field with too many values for it."""
    by: dict[str, Any] = {}
    warnings = []
    for field in dict.fromkeys((*DIMENSIONS, *settings.slices)):
        names, cases, codes = membership(ledger, field)
        if len(names) > VALUES_MAX:
            warnings.append(f"{field} has more than {VALUES_MAX} values: not broken down by it")
        elif names:
            by[field] = {
                names[code]: _applicable(overall if len(places) == ledger.n else summary(ledger, places, specs, settings))
                for code, places in by_label(cases, codes)
            }
    return by, warnings


def _not_recorded(ledger: Accumulators, overall: Mapping[str, Any]) -> Iterator[str]:
    """What some outputs do not record, where a score lost cases by it."""
    lossy = [score for score in overall["scores"].values() if "n_not_recorded" in score]
    reasons = {why for score in lossy for why in score.get("skipped", {}) if why.startswith(NOT_RECORDED)}
    parts = {why.removeprefix(NOT_RECORDED) for why in reasons}
    yield from (str(gap) for gap in ledger.recording.gaps() if gap.part in parts and not gap.is_whole)


def _silent(overall: Mapping[str, Any], by: Mapping[str, Any]) -> Iterator[str]:
    """Where many values of a score come from answers that state nothing, of which method."""
    for name in overall["scores"]:
        groups = by["method"] if len(by.get("method", {})) > 1 else {"": overall}
        for method, group in groups.items():
            score = group["scores"].get(name, {})
            if score.get("n_silent", 0) >= _MANY_SILENT * max(1, score.get("n_ok", 0)):
                whose = f"answers of {method}" if method else "answers"
                yield f"{name}: {score['n_silent']:,} of {score['n_ok']:,} {whose} state nothing, and have a value all the same"


def _system_errors(overall: Mapping[str, Any]) -> Iterator[str]:
    if failures := overall["operations"]["n_error"]:
        yield f"the system failed on {failures} of {overall['n_cases']} cases: skipped, see column system_error"


def _overall_warnings(
    specs: Sequence[ScoreSpec], scores: Mapping[str, Mapping[str, Any]], settings: ScoringSettings
) -> Iterator[str]:
    if all(spec.diagnostic for spec in specs):
        return
    if settings.weights == shipped()["weights"] and not any(settings.weights.get(spec.name) for spec in specs):
        return
    if OVERALL.name in scores and not scores[OVERALL.name]["n_ok"]:
        yield f"no case has an overall_score: {_why_no_overall(scores, settings)}"


def _shared(ledger: Accumulators, specs: Sequence[ScoreSpec], settings: ScoringSettings) -> dict[str, Any]:
    """`shared` of `metrics.json`: the methods on the questions that they share; empty with a single method."""
    names, cases, codes = membership(ledger, "method")
    if len(names) < 2:
        return {}
    methods = {names[code]: places for code, places in by_label(cases, codes)}
    scores = {}
    for spec in specs:
        column = ledger.overall if spec is OVERALL else ledger.scores[spec.name]
        rates = np.where(column.passed < 0, np.nan, column.passed)
        values = np.where(column.status == OK, column.values, np.nan)
        scale = score_declarations([spec], settings)[spec.name]
        scores[spec.name] = shared_score(methods, ledger.samples, values, rates, scale, settings.level)
    compared = {name: comparison for name, comparison in scores.items() if comparison}
    return {**asked(methods, ledger.samples), "scores": compared}


def _why_no_overall(scores: Mapping[str, Mapping[str, Any]], settings: ScoringSettings) -> str:
    weighed = settings.weighed
    if "n_error" not in scores[OVERALL.name]:
        return f"none of the scores with a weight was measured ({', '.join(weighed)})"
    failed = [f"{name} {scores[name]['n_error']}" for name in weighed if "n_error" in scores.get(name, ())]
    return f"where a score with a weight was to be measured, one failed ({', '.join(failed)})"


def by_label(cases: Places, codes: Places) -> Iterator[tuple[int, Places]]:
    """Each label number with its cases in data order."""
    order = np.argsort(codes, kind="stable")
    labels, starts = np.unique(codes[order], return_index=True)
    yield from zip(labels.tolist(), np.split(cases[order], starts[1:]), strict=True)


def summary(ledger: Accumulators, places: Places, specs: Sequence[ScoreSpec], settings: ScoringSettings) -> dict[str, Any]:
    """What `metrics.json` says of some cases, given by their numbers."""
    scores = {spec.name: _score(ledger.scores[spec.name], ledger, places, spec, settings) for spec in specs}
    if settings.shows_overall(ledger.scores):
        scores[OVERALL.name] = _score(ledger.overall, ledger, places, OVERALL, settings)
    return {
        "n_cases": len(places),
        "n_samples": len(distinct(ledger.samples[places])),
        "scores": scores,
        "operations": operations(ledger, places),
        **ledger.findings.summary(places),
        **ledger.support.summary(places),
    }


def _applicable(group: dict[str, Any]) -> dict[str, Any]:
    """A group without the scores that no case of it was due."""
    tried = ("n_ok", "n_missing", *LOST)
    scores = {name: score for name, score in group["scores"].items() if any(score.get(key) for key in tried)}
    return {**group, "scores": scores}


def _score(
    score: ScoreLedger, ledger: Accumulators, places: Places, spec: ScoreSpec, settings: ScoringSettings
) -> dict[str, Any]:
    """Counts, mean, pass rate, their intervals and the reasons of one score."""
    status = score.status[places]
    counted = {name: int(np.count_nonzero(status == code)) for name, code in _COUNTED}
    measured = places[status == OK]
    judged = measured[score.passed[measured] >= 0]
    numbers = figures_of(
        estimate_of(
            score.values[measured], ledger.samples[measured], score_declarations([spec], settings)[spec.name], settings.level
        ),
        estimate_rate(score.passed[judged].astype(np.float64), ledger.samples[judged], level=settings.level),
    )
    gone = lost(ledger, spec.name, settings)
    counted["n_system_error"] = int(np.count_nonzero(gone.system_error[places]))
    counted["n_not_recorded"] = int(np.count_nonzero(gone.not_recorded[places]))
    # a value without a verdict although cases pass or fail by this score: another one that decides it is not known
    due = settings.passes(spec) and spec.name not in settings.missing_dependencies(ledger.scores)
    more = {
        **counted,
        "n_judged": len(judged),
        "n_unjudged": counted["n_ok"] - len(judged) if due else 0,
        "n_silent": int(np.count_nonzero(score.has_reason(NO_FACTUAL_CLAIMS)[measured])),
        "skipped": _reasons(score, places[status == SKIPPED]),
        "errors": _reasons(score, places[status == ERROR]),
    }
    return {
        "n_ok": counted["n_ok"],
        **numbers,
        "coverage": coverage(counted),
        **{name: count for name, count in more.items() if count},
    }


_COUNTED = (("n_ok", OK), ("n_skipped", SKIPPED), ("n_error", ERROR), ("n_missing", MISSING))


def _reasons(score: ScoreLedger, places: Places) -> dict[str, int]:
    """How often each reason occurs, the most frequent first, ties in the order of the data."""
    codes, counts = np.unique(score.why[places], return_counts=True)
    ranked = sorted(zip(codes.tolist(), counts.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
    listed = {score.reasons.names[code]: count for code, count in ranked[:_SHOWN_REASONS]}
    rest = sum(count for _, count in ranked[_SHOWN_REASONS:])
    return {**listed, "(other)": listed.get("(other)", 0) + rest} if rest else listed


def _unjudged(scores: Mapping[str, Mapping[str, Any]], settings: ScoringSettings) -> Iterator[str]:
    """A warning for each score of which too few cases with a value are judged passed or failed."""
    for name, score in scores.items():
        judged, unjudged = score.get("n_judged", 0), score.get("n_unjudged", 0)
        due = judged + unjudged
        if unjudged and judged < due * settings.coverage_floor:
            yield (
                f"{name}: only {judged} of {due} cases with a value are judged passed or failed: for the others "
                "a score that decides it failed or is not measured"
            )


def _languages(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One warning for all answers whose language no rule covers."""
    counts = {name: score.get("skipped", {}).get("language_not_covered", 0) for name, score in scores.items()}
    if most := max(counts.values(), default=0):
        names = [name for name, count in counts.items() if count]
        yield (
            f"the rules do not cover the language of {most} answer{'s' * (most > 1)}: skipped (language_not_covered) in "
            f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}; a language model as judge reads them"
        )


def _unfinished(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, score in scores.items():
        if missing := score.get("n_missing"):
            yield f"{name}: {missing} cases are not measured yet: the run is not finished"


def asked(methods: Mapping[str, Places], samples: Places) -> dict[str, int]:
    """`n_questions` that every method was asked, `of` how many that any was. `methods` are the numbers of their cases."""
    return _counts([samples[places] for places in methods.values()])


def unshared_warnings(counts: Mapping[str, int]) -> list[str]:
    """A warning where the methods were not asked the same questions; `counts` is what `asked` says."""
    n, of = counts["n_questions"], counts["of"]
    if not n and of:
        return [f"methods share none of {of} questions: nothing tells which is better"]
    return [f"methods share {n} of {of} questions: compare by differences, not by means"] if n < of else []


def shared_score(
    methods: Mapping[str, Places], samples: Places, values: Floats, rates: Floats, scale: Mapping[str, Any], level: float
) -> dict[str, Any] | None:
    """One score on its shared questions; None where fewer than two methods have it.

    `methods` has the cases of each method, as places in the arrays by case: the number of its sample, its value, its verdict as
    1 or 0 (over several iterations their means; NaN for none). `scale` is what is declared of the score.
    `n_questions` are shared, `of` those on which any method has a value; `methods` holds `n_ok`, `mean`, `interval` and, where
    cases are judged, `n_judged`, `pass_rate`, `pass_interval`.
    """
    measured = {name: places[~np.isnan(values[places])] for name, places in methods.items()}
    measured = {name: places for name, places in measured.items() if len(places)}
    if len(measured) < 2:
        return None
    questions = [samples[places] for places in measured.values()]
    common = in_all(questions)
    figures: dict[str, Any] = {}
    for name, of_method in measured.items():
        places = of_method[np.isin(samples[of_method], common)]
        judged = places[~np.isnan(rates[places])]
        mean = estimate_of(values[places], samples[places], scale, level)
        rate = estimate_rate(rates[judged], samples[judged], level=level)
        counts = {"n_ok": len(places), **({"n_judged": len(judged)} if len(judged) else {})}
        figures[name] = {**counts, **figures_of(mean, rate)}
    return {**_counts(questions), "methods": figures}


def _counts(questions: list[Places]) -> dict[str, int]:
    return {"n_questions": len(in_all(questions)), "of": len(in_any(questions))}


LOST = ("n_error", "n_system_error", "n_not_recorded")
"""The counts of a score whose judgements were due and did not come out."""
_NAMES_SHOWN = 6


class Lost(NamedTuple):
    """The skipped cases of a score that were due: by a failure of the system, by a part that is not recorded."""

    system_error: Flags
    not_recorded: Flags


def due(counts: Mapping[str, int]) -> int:
    """How many judgements of a score were due, from its counts; a count that is not there is 0."""
    return counts["n_ok"] + sum(counts.get(name, 0) for name in LOST)


def coverage(counts: Mapping[str, int]) -> float | None:
    """The share of them that came out, 0 to 1; None where none was due."""
    return counts["n_ok"] / total if (total := due(counts)) else None


def lost(ledger: Accumulators, name: str, settings: ScoringSettings) -> Lost:
    """The cases that a score lost, over all cases; worked out once. Of a composite those that one of its parts lost."""
    if name not in ledger.lost:
        weights = {name: composite.weights for name, composite in settings.active_composites().items()}
        weights[OVERALL.name] = settings.weight_shares()
        score = ledger.overall if name == OVERALL.name else ledger.scores[name]
        if name in weights:
            parts = [part for part, weight in weights[name].items() if weight > 0 and part in ledger.scores]
            ledger.lost[name] = _composed(score, [lost(ledger, part, settings) for part in parts])
        else:
            ledger.lost[name] = _measured(ledger, score)
    cases: Lost = ledger.lost[name]
    return cases


def _measured(ledger: Accumulators, score: ScoreLedger) -> Lost:
    skipped, methods = score.status == SKIPPED, ledger.methods
    failed = skipped & score.has_reason("system_error")
    absent = np.zeros(ledger.n, dtype=np.bool_)
    for part in PARTS:
        absent |= skipped & score.has_reason(f"{NOT_RECORDED}{part}") & ledger.recorded[part][methods]
    # where no case of a method was tried and some were skipped for another reason (no embedder, a judge that cannot answer, a
    # part that is recorded in none), the metric does not apply to the method, and nothing is lost
    tried = np.bincount(methods[~skipped], minlength=len(ledger.method_names)) > 0
    barred = np.bincount(methods[skipped & ~failed & ~absent], minlength=len(ledger.method_names)) > 0
    applies = (tried | ~barred)[methods]
    return Lost(failed & applies, absent & applies)


def _composed(score: ScoreLedger, parts: Sequence[Lost]) -> Lost:
    skipped = score.status == SKIPPED
    failed = skipped & np.any([np.zeros_like(skipped), *(part.system_error for part in parts)], axis=0)
    absent = skipped & ~failed & np.any([np.zeros_like(skipped), *(part.not_recorded for part in parts)], axis=0)
    return Lost(failed, absent)


def coverage_warnings(scores: Mapping[str, Mapping[str, Any]], floor: float) -> list[str]:
    """A warning for the scores of a summary whose coverage is under the floor, one for all that lost as much for the same causes."""
    by_causes: dict[str, dict[str, list[str]]] = {}
    for name, score in scores.items():
        if score["coverage"] is None or score["coverage"] >= floor:
            continue
        kinds = [f"{kind} {count}" for kind, count in score.get("errors", {}).items()]
        words = (("n_system_error", "system errors"), ("n_not_recorded", "not recorded"))
        kinds += [f"{word} {score[key]}" for key, word in words if key in score]
        came_out = f"{score['n_ok']} of {due(score)} ({score['coverage']:.1%})"
        by_causes.setdefault(", ".join(kinds), {}).setdefault(came_out, []).append(name)
    listed = {causes: [f"{n} for {_listed(names)}" for n, names in lots.items()] for causes, lots in by_causes.items()}
    return [f"too few judgements came out: {'; '.join(lots)} (floor {floor:.0%}; {causes})" for causes, lots in listed.items()]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (f", ... ({len(names)} scores)" if len(names) > _NAMES_SHOWN else "")


def score_declarations(specs: Sequence[ScoreSpec], settings: ScoringSettings) -> dict[str, dict[str, Any]]:
    """By score `low` and `high` of its native scale (null for a count), `higher_is_better`, `binary`, `diagnostic`, the `metric` that
    gives it (empty for one made of others), its `stage`, and its `threshold` in the native scale (null without one)."""
    return {
        spec.name: {
            "low": spec.low,
            "high": spec.high,
            "higher_is_better": spec.higher_is_better,
            "binary": spec.binary,
            "diagnostic": spec.diagnostic,
            "metric": spec.metric,
            "stage": spec.stage,
            "threshold": settings.threshold(spec),
        }
        for spec in specs
    }


def unit_value(value: float | None, scale: Mapping[str, Any]) -> float | None:
    """A value of the native scale brought to 0 (worst) .. 1 (best); None without a value and for a count.

    `scale` is what `declared` says of the score.
    """
    low, high = scale["low"], scale["high"]
    if value is None or low is None or high is None:
        return None
    share = float((value - low) / (high - low))
    return share if scale["higher_is_better"] else 1.0 - share
