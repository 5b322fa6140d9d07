"""A calibration for people: one verdict per score, the table of its statistics, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.calibrating.corrected_scores import correction_words
from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.markdown_text import code_span, escape_markdown, markdown_table
from ragpipe.scoring.calibration_file import Calibration, CalibrationStatistic, ScoreCalibration

CALIBRATION_HEADS = (
    "score",
    "labels",
    "kappa",
    "agreement",
    "AUROC",
    "sensitivity",
    "specificity",
    "difference",
    "passed by people",
)
_STATISTICS = {
    "agreement": "share of equal verdicts",
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
_REASONS = {
    "no_threshold": "there are no verdicts to compare: set scoring.thresholds of the score (and of a recorded score of people), or "
    "calibrate.target.statistic=quadratic_kappa",
    "no_ceiling": "no case has labels of two people, so there is no ceiling to put the target relative to",
    "ceiling_of_zero": "people do not agree with each other beyond chance: no target can be put relative to that",
    "no_scale": "the score is a count without a scale",
    "few_outside_largest_class": "fewer than 5 labels are outside the largest class, where kappa says next to nothing: label "
    "cases of the rare class too, and read agreement and AC1",
    "one_class": "labels and verdicts are all of one class",
}
_ID = 60


def verdict_line(name: str, score: ScoreCalibration) -> str:
    """The verdict of one score in a sentence."""
    statistic = score.target.statistic
    estimate = score.statistics.get(statistic)
    if estimate is None or score.limit is None:
        return f"{name}: not enough labels. {_REASONS.get(score.reason or '', score.reason)}"
    limit = score.limit
    text = f"{statistic.replace('_', ' ')} {estimate_text(estimate)} on {estimate.n:,} labels"
    target = f"target above {limit:.2f}" + (" (relative to people)" if score.target.relative_to_ceiling else "")
    if score.state == "passed":
        return f"{name}: passed. {text}, {target}: all of the interval lies above"
    if score.state == "failed":
        return f"{name}: failed. {text}, {target}: all of the interval lies below"
    return f"{name}: not enough labels. {text}, {target}: {_missing(score, estimate, limit)}"


def _missing(score: ScoreCalibration, estimate: CalibrationStatistic, limit: float) -> str:
    if score.reason is not None:
        return _REASONS.get(score.reason, score.reason)
    if score.labels_needed is not None:
        more = score.labels_needed - estimate.n
        return f"about {score.labels_needed:,} labels would show it if it is what it is here, {more:,} more"
    if estimate.value is not None and estimate.value <= limit:
        return "it is not above the target here, and more labels would not help unless it is higher than it seems"
    return "the interval is too wide"


def calibration_rows(calibration: Calibration) -> list[list[str]]:
    """A row per score for the terminal."""
    return [
        [
            name,
            str(sum(label.part in ("random", "recorded") for label in score.labels)),
            *(
                estimate_text(score.statistics.get(key))
                for key in ("kappa", "agreement", "auroc", "sensitivity", "specificity", "difference")
            ),
            estimate_text(score.prevalence),
        ]
        for name, score in calibration.scores.items()
    ]


def advice_lines(name: str, score: ScoreCalibration) -> Iterator[str]:
    """What else a reader should know of one score."""
    if score.unjudged:
        yield f"{name}: {score.unjudged:,} labelled cases have no value of the judge and are left out"
    if ceiling := score.ceiling:
        key = score.target.statistic
        between = estimate_text(ceiling.statistics.get(key))
        yield f"{name}: two people among themselves, {ceiling.cases:,} cases: {key.replace('_', ' ')} {between}"
    if length := score.length_baseline:
        lead = "shorter" if length.shorter_passes else "longer"
        low = length.difference.interval.low if length.difference.interval else None
        better = "better" if low is not None and low > 0 else "not surely better"
        yield (
            f"{name}: {better} than the length of the answer: AUROC {estimate_text(score.statistics.get('auroc'))}, {lead} answers "
            f"alone {estimate_text(length.auroc)}, difference {estimate_text(length.difference, signed=True)}"
        )


def width_lines(name: str, score: ScoreCalibration, wanted: float | None, command: str) -> Iterator[str]:
    """The corrected mean of a score, how wide its interval is, and whether to label more; nothing where no width is `wanted`.
    `command` adds the cases to the draw."""
    if wanted is None:
        return
    width = score.corrected
    if width is None:
        why = "of no draw" if score.draw_id is None else "of a score without a scale"
        yield f"{name}: no corrected mean: the labels are {why}"
        return
    if width.mean is None or width.interval is None or width.width is None:
        yield f"{name}: no corrected mean of {width.labels} labels: {correction_words(width.reason)}"
    else:
        bounds = f"[{width.interval.low:.3g}, {width.interval.high:.3g}]"
        yield (
            f"{name}: corrected mean {width.mean:.3g} {bounds} of {width.labels} labels, {width.width:.2g} of the scale wide, "
            f"wanted {width.wanted:.2g}"
        )
    if width.waiting:
        yield f"{name}: label {width.waiting} drawn cases that have no label yet"
    if width.more:
        yield f"{name}: ask for {width.more} more: {command}"
    elif not width.waiting:
        is_narrow = width.width is not None and width.width <= width.wanted
        yield f"{name}: " + ("narrow enough: stop labelling" if is_narrow else "no case is left to label")


def estimate_text(statistic: CalibrationStatistic | None, *, signed: bool = False) -> str:
    """`0.82 [0.63, 0.93]`, its value alone without an interval, why there is none, `-` where it does not apply."""
    if statistic is None:
        return "-"
    if statistic.value is None:
        return statistic.reason or "-"
    text = _number(statistic.value, signed)
    if statistic.interval is None:
        return f"{text} ({statistic.reason})" if statistic.reason else text
    return f"{text} [{_number(statistic.interval.low, signed)}, {_number(statistic.interval.high, signed)}]"


def _number(value: float, signed: bool) -> str:
    """Two places; a zero has no minus."""
    rounded = round(value, 2) + 0.0
    return f"{rounded:{'+' if signed else ''}.2f}"


def calibration_markdown(calibration: Calibration) -> str:
    """The page `calibration.md`."""
    lines = [
        "# How far the judge agrees with people",
        "",
        f"Run {code_span(calibration.run_id)}, judge {code_span(calibration.judge.label)}. Intervals are at the level of the run and go by "
        "questions.",
        "",
        *(f"- {escape_markdown(verdict_line(name, score))}" for name, score in calibration.scores.items()),
    ]
    for name, score in calibration.scores.items():
        lines += ["", f"## {code_span(name)}", "", *_score_lines(name, score)]
    return "\n".join(lines) + "\n"


def _score_lines(name: str, score: ScoreCalibration) -> Iterator[str]:
    source = (
        f"the recorded score {code_span(score.recorded)}"
        if score.recorded
        else f"draw {code_span(score.draw_id or '')}"
    )
    yield f"Labels of {source}; several labels of a case: {score.reference}. {_threshold(score)}"
    yield ""
    ceiling = score.ceiling.statistics if score.ceiling else {}
    rows = [
        [text, str(statistic.n), str(statistic.clusters), estimate_text(statistic), estimate_text(ceiling.get(key))]
        for key, text in _STATISTICS.items()
        if (statistic := score.statistics.get(key)) is not None
    ]
    yield from markdown_table(["statistic", "cases", "questions", "judge and people", "two people"], rows)
    yield ""
    yield from (f"- {escape_markdown(line)}" for line in advice_lines(name, score))
    if score.prevalence is not None:
        yield f"- passed by people: {estimate_text(score.prevalence)}; by the judge: {estimate_text(score.judged_prevalence)}"
    if score.ceiling and score.ceiling.highest_correlation is not None:
        yield f"- highest correlation that any judge can have with these labels: {score.ceiling.highest_correlation:.2f}"
    yield from _confusion(score)
    yield from _slices(score)


def _threshold(score: ScoreCalibration) -> str:
    threshold = score.bound_to.threshold
    return (
        "The judge gives no verdicts: there is no threshold."
        if threshold is None
        else f"A case passes from {threshold:g}."
    )


def _confusion(score: ScoreCalibration) -> Iterator[str]:
    if table := score.confusion:
        heads = ["people", *(f"judge: {escape_markdown(name, _ID)}" for name in table.classes)]
        rows = [
            [escape_markdown(name, _ID), *map(str, counts)]
            for name, counts in zip(table.classes, table.counts, strict=True)
        ]
        yield from ("", *markdown_table(heads, rows))


def _slices(score: ScoreCalibration) -> Iterator[str]:
    if score.slices:
        rows = [
            [
                code_span(f"{part.field}={on_one_line(part.value, _ID)}"),
                str(part.difference.n),
                *(estimate_text(part.statistics.get(key)) for key in ("kappa", "agreement", "auroc")),
                estimate_text(part.difference, signed=True),
            ]
            for part in score.slices
        ]
        yield from ("", *markdown_table(["slice", "cases", "kappa", "agreement", "AUROC", "judge - people"], rows))
