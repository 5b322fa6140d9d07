"""A calibration for people: one verdict per score, the table of its statistics, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ragpipe.calibration.score_calibration import AGREEMENT_PARTS, ScoreEvidence, reference_of
from ragpipe.report.agreement_report import reason_words
from ragpipe.report.charts import CalibrationPoint, calibration_plot, confusion_matrix
from ragpipe.report.model import (
    MARKDOWN,
    Chart,
    Kind,
    Note,
    PageLink,
    Prose,
    Report,
    RunVerdict,
    Section,
    SectionPart,
    Table,
    Verbatim,
)
from ragpipe.score.calibration_file import Calibration, CalibrationSlice, CalibrationStatistic, ScoreCalibration
from ragpipe.stats.intervals import estimate_mean

Floats = NDArray[np.float64]
_OF_VERDICTS = ("kappa", "agreement", "agreement_without_ties", "auroc", "sensitivity", "specificity", "difference")
_OF_VALUES = ("quadratic_kappa", "spearman", "mae", "difference")
_HEADS = {
    "quadratic_kappa": "quadratic kappa",
    "spearman": "Spearman",
    "mae": "absolute difference",
    "auroc": "AUROC",
    "agreement_without_ties": "agreement without ties",
    "difference": "judge - people (mean)",
}
_STATISTICS = {
    "agreement": "share of equal verdicts",
    "agreement_without_ties": "share of equal verdicts where neither is a tie",
    "kappa": "kappa of the verdicts",
    "ac1": "Gwet's AC1",
    "alpha": "Krippendorff's alpha of the verdicts",
    "sensitivity": "sensitivity: passed by people, passed by the judge",
    "specificity": "specificity: failed by people, failed by the judge",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC: a passed answer scores higher than a failed one",
    "quadratic_kappa": "quadratic kappa of the values",
    "ac2": "Gwet's AC2 of the grades",
    "alpha_interval": "Krippendorff's alpha of the values",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall": "Kendall (tau-b)",
    "mae": "mean absolute difference",
    "difference": "judge - people, mean",
}
_REFERENCES = {
    "single": "one label per case",
    "majority": "of several labels of a case, what most people say counts",
    "mean": "the mean of several labels of a case counts",
}
_FEWEST_QUESTIONS = 5
"""Of a slice with figures: what is measured on fewer says nothing."""
_STATES = {"passed": "passed", "failed": "FAILED", "not_enough_labels": "with too few labels"}
_INTERVALS = "intervals are at the level of the run and go by questions"
_PLOT = (
    "People's mean label over the judge's score, in shares of the scale, with its 95% interval; larger dots are more cases. Below the "
    "diagonal the judge is too lenient, above it too strict."
)
_POINTS = 10


def verdict_line(name: str, score: ScoreCalibration) -> str:
    """The verdict of one score in a sentence."""
    if score.reason == "no_threshold":
        return f"{name}: {_without_verdicts(name, score)}"
    statistic = score.target.statistic
    estimate = score.statistics.get(statistic)
    if estimate is None:
        return f"{name}: too few labels. {reason_words(score.reason)}"
    if estimate.value is None:
        reason = reason_words(score.reason or estimate.reason)
        return f"{name}: too few labels. no {statistic.replace('_', ' ')} on {estimate.n:,} labels: {reason}"
    text = f"{statistic.replace('_', ' ')} {estimate_text(estimate)} on {estimate.n:,} labels"
    target = f"target above {score.target.above:.2f}"
    if score.state == "passed":
        return f"{name}: passed. {text}, {target}: all of the interval lies above"
    if score.state == "failed":
        return f"{name}: FAILED. {text}, {target}: all of the interval lies below"
    return f"{name}: too few labels. {text}, {target}: {_missing(score, estimate, score.target.above)}"


def _without_verdicts(name: str, score: ScoreCalibration) -> str:
    """Why no case has a verdict of both, people and the judge."""
    labels = _counted_labels(score)
    if not labels:
        return f"too few labels. none of the {len(score.labels):,} labels is of the random part of the draw"
    if score.bound_to.threshold is not None:
        return f"too few labels. of {labels:,} labelled cases none has a verdict of both, people and the judge"
    fix = f"set scoring.thresholds.{name}=..."
    if "quadratic_kappa" in score.statistics:
        fix += ", or ask for calibrate.target.statistic=quadratic_kappa"
    return f"inconclusive. {labels:,} labels, but no threshold from which a case passes, so there is no kappa: {fix}"


def _counted_labels(score: ScoreCalibration) -> int:
    """The labels that agreement goes by."""
    return sum(label.part in AGREEMENT_PARTS for label in score.labels)


def _missing(score: ScoreCalibration, estimate: CalibrationStatistic, limit: float) -> str:
    if score.reason is not None:
        return reason_words(score.reason)
    if score.labels_needed is not None:
        more = score.labels_needed - estimate.n
        return f"about {score.labels_needed:,} labels would show it if it is what it is here, {more:,} more"
    if estimate.value is not None and estimate.value <= limit:
        return "it is not above the target here, and more labels would not help unless it is higher than it seems"
    return "the interval is too wide"


def calibration_table(calibration: Calibration) -> tuple[list[str], list[list[str]]]:
    """The heads and a row per score for the terminal: the statistics of the target first, and none that no score has."""
    scores = calibration.scores
    asked = {score.target.statistic for score in scores.values()}
    with_kappa = any("kappa" in score.statistics for score in scores.values())
    by_values = "quadratic_kappa" in asked or not with_kappa
    keys: tuple[str, ...] = (*_OF_VALUES, *_OF_VERDICTS) if by_values else _OF_VERDICTS
    keys = tuple(key for key in dict.fromkeys(keys) if any(key in score.statistics for score in scores.values()))
    with_verdicts = any(score.prevalence is not None for score in scores.values())
    heads = ["score", "labels", *(_HEADS.get(key, key) for key in keys), *(["passed by people"] * with_verdicts)]
    rows = []
    for name, score in scores.items():
        figures = (estimate_text(score.statistics.get(key), signed=key == "difference") for key in keys)
        rows.append([name, str(_counted_labels(score)), *figures, *([estimate_text(score.prevalence)] * with_verdicts)])
    return heads, rows


def advice_lines(name: str, score: ScoreCalibration) -> Iterator[str]:
    """What else a reader should know of one score."""
    if score.unjudged:
        yield f"{name}: {score.unjudged:,} labelled cases have no value of the judge and are left out"
    if ceiling := score.ceiling:
        key = score.target.statistic
        if (between := ceiling.statistics.get(key)) is not None:
            text = f"{key.replace('_', ' ')} {estimate_text(between)}"
            yield f"{name}: two people among themselves, {ceiling.cases:,} cases: {text}"
    if length := score.length_baseline:
        lead = "shorter" if length.shorter_passes else "longer"
        bounds = length.difference.interval
        word = "better" if bounds and bounds.low > 0 else "worse" if bounds and bounds.high < 0 else "not surely better"
        yield (
            f"{name}: {word} than the length of the answer: AUROC {estimate_text(score.statistics.get('auroc'))}, {lead} answers "
            f"alone {estimate_text(length.auroc)}, difference {estimate_text(length.difference, signed=True)}"
        )


def estimate_text(statistic: CalibrationStatistic | None, *, signed: bool = False) -> str:
    """`0.82 [0.63, 0.93]`, its value alone without an interval, why there is none, `-` where it does not apply."""
    if statistic is None:
        return "-"
    if statistic.value is None:
        return reason_words(statistic.reason)
    text = _number(statistic.value, signed)
    if statistic.interval is None:
        return f"{text} ({reason_words(statistic.reason)})" if statistic.reason else text
    return f"{text} [{_number(statistic.interval.low, signed)}, {_number(statistic.interval.high, signed)}]"


def _number(value: float, signed: bool) -> str:
    """Two places; a zero has no minus."""
    rounded = round(value, 2) + 0.0
    return f"{rounded:{'+' if signed else ''}.2f}"


def calibration_report(calibration: Calibration, plots: Mapping[str, Markup]) -> Report:
    """The page `calibration.md` and `.html`; `plots` has the calibration plot of each score with a scale."""
    scores, states = calibration.scores, Counter[str](score.state for score in calibration.scores.values())
    lines = {name: verdict_line(name, score) for name, score in scores.items()}
    said = next(iter(lines.values()))
    if len(scores) > 1:
        counts = ", ".join(f"{states[state]} {words}" for state, words in _STATES.items() if states[state])
        said = f"of {len(scores):,} scores: {counts}"
    kind: Kind = "bad" if states["failed"] else "good" if states["passed"] == len(scores) else "warn"
    about = (("run ", Verbatim(calibration.run_id), ", judge ", Verbatim(calibration.judge.label)), _INTERVALS)
    verdict = RunVerdict(kind, "", Prose(said), about)
    sections = [Section("verdicts", "Scores", tuple(Note(Prose(line)) for line in lines.values()))] if len(scores) > 1 else []
    sections += [Section(name, Verbatim(name), tuple(_parts(name, score, plots.get(name)))) for name, score in scores.items()]
    name, links = "How far the judge agrees with people", (PageLink("report", "../report.html"),)
    return Report(name, "", "", verdict, (), tuple(sections), pages=links)


def calibration_plots(evidence: Mapping[str, ScoreEvidence]) -> dict[str, Markup]:
    """By score with a scale the mean label of people over the values of the judge: one point per value, of many one per tenth."""
    plots: dict[str, Markup] = {}
    for name, of_score in evidence.items():
        low, high = of_score.spec.low, of_score.spec.high
        if low is None or high is None:
            continue
        is_random = np.array([case.part in AGREEMENT_PARTS for case in of_score.labels.cases], dtype=np.bool_)
        labels = reference_of(of_score.labels, of_score.spec, of_score.bound_to.threshold).labels
        kept = is_random & ~np.isnan(labels) & ~np.isnan(of_score.judged.values)
        people, judge = ((values[kept] - low) / (high - low) for values in (labels, of_score.judged.values))
        places = np.unique(judge, return_inverse=True)[1] if len(np.unique(judge)) <= _POINTS else np.ceil(judge * _POINTS)
        groups = [(places == place, of_score.judged.questions[kept][places == place]) for place in np.unique(places)]
        plots |= {name: calibration_plot([_point(judge[here], people[here], questions) for here, questions in groups])}
    return plots


def _point(judge: Floats, people: Floats, questions: NDArray[np.int64]) -> CalibrationPoint:
    bounds = estimate_mean(people, questions, low=0.0, high=1.0).interval
    low, high = (None, None) if bounds is None or bounds.too_few else (bounds.low, bounds.high)
    return CalibrationPoint(float(np.mean(judge)), float(np.mean(people)), low, high, len(people))


def _parts(name: str, score: ScoreCalibration, plot: Markup | None) -> Iterator[SectionPart]:
    if table := score.confusion:
        yield Chart("Verdicts", confusion_matrix(table.counts, table.classes))
    if plot is not None:
        yield Chart("Calibration plot", plot, _PLOT)
    source = ("the recorded score ", Verbatim(score.recorded)) if score.recorded else ("draw ", Verbatim(score.draw_id or ""))
    threshold = score.bound_to.threshold
    no_verdicts = "The judge gives no verdicts: there is no threshold."
    verdicts = no_verdicts if threshold is None else f"A case passes from {threshold:g}."
    yield Note(("Labels of ", *source, f"; {_REFERENCES[score.reference]}. {verdicts}"))
    ceiling = score.ceiling.statistics if score.ceiling else {}
    rows = [
        [text, estimate_text(statistic), *([estimate_text(ceiling.get(key))] if ceiling else []), *_counts(statistic)]
        for key, text in _STATISTICS.items()
        if (statistic := score.statistics.get(key)) is not None
    ]
    yield Table.of(["statistic", "judge and people", *(["two people"] if ceiling else []), "cases", "questions"], rows)
    yield from (Note(Prose(line)) for line in advice_lines(name, score))
    if score.prevalence is not None:
        yield Note(
            f"passed by people: {estimate_text(score.prevalence)}; by the judge: {estimate_text(score.judged_prevalence)}"
        )
    if score.ceiling and score.ceiling.highest_correlation is not None:
        highest = score.ceiling.highest_correlation
        yield Note(f"highest correlation that any judge can have with these labels: {highest:.2f}")
    if table := score.confusion:
        counts = [[Verbatim(name), *map(str, n)] for name, n in zip(table.classes, table.counts, strict=True)]
        yield Table.of(["people", *(("judge: ", Verbatim(name)) for name in table.classes)], counts, shown_in=MARKDOWN)
    if score.slices:
        yield _slices(score.slices)


def _slices(slices: Sequence[CalibrationSlice]) -> Table:
    """A row per slice; no figure of one with fewer than 5 questions."""
    keys = [key for key in ("kappa", "agreement", "auroc") if any(key in part.statistics for part in slices)]
    rows = []
    for part in slices:
        figures = {**{key: part.statistics.get(key) for key in keys}, "difference": part.difference}
        cells = (_of_slice(figures[key], signed=key == "difference") for key in figures)
        rows.append([Verbatim(f"{part.field}={part.value}"), *cells, *_counts(part.difference)])
    return Table.of(["slice", *(_HEADS.get(key, key) for key in (*keys, "difference")), "cases", "questions"], rows)


def _counts(statistic: CalibrationStatistic) -> tuple[str, str]:
    return f"{statistic.n:,}", f"{statistic.clusters:,}"


def _of_slice(statistic: CalibrationStatistic | None, *, signed: bool) -> str:
    if statistic is not None and statistic.clusters < _FEWEST_QUESTIONS:
        return f"n = {statistic.clusters}: too few"
    return estimate_text(statistic, signed=signed)
