"""How wide the interval of a corrected mean is with the labels that there are, and how many more to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ragpipe.calibrating.judged_cases import judged_cases
from ragpipe.calibrating.people_labels import Key
from ragpipe.labelling.label_files import LABELS_FOLDER, read_drawn, read_labels
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import CalibrationInterval, CorrectedWidth, ScoreCalibration
from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean, labels_to_ask
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns


def corrected_width(
    folder: RunFolder,
    iterations: Sequence[int],
    spec: ScoreSpec,
    score: ScoreCalibration,
    *,
    widest: float,
    level: float,
) -> CorrectedWidth | None:
    """The corrected mean of all judged cases of a run, and the labels that it still needs; None for labels that are of no draw
    and for a score without a scale.

    Args:
        folder: the run.
        iterations: the numbers of its scored iterations.
        spec: the score.
        score: its calibration, with the labels.
        widest: the width that is wanted, as a share of the scale, above 0.
        level: the level of the interval.

    Raises DataError for a table that cannot be read.
    """
    if score.draw_id is None or spec.low is None or spec.high is None:
        return None
    estimate = _estimate(folder, iterations, (spec.low, spec.high), spec, score, level)
    interval = estimate.interval
    width = None if interval is None else (interval.high - interval.low) / (spec.high - spec.low)
    drawn, answered = _progress(folder.root / LABELS_FOLDER / score.draw_id)
    waiting, others = drawn - answered, max(0, estimate.n - drawn)
    asked = labels_to_ask(estimate.labels, width, widest, waiting + others)
    return CorrectedWidth(
        labels=estimate.labels,
        mean=estimate.value,
        interval=None if interval is None else CalibrationInterval(**asdict(interval)),
        reason=estimate.reason,
        width=width,
        wanted=widest,
        waiting=min(asked, waiting),
        more=max(0, asked - waiting),
    )


def _estimate(
    folder: RunFolder,
    iterations: Sequence[int],
    scale: tuple[float, float],
    spec: ScoreSpec,
    score: ScoreCalibration,
    level: float,
) -> CorrectedMean:
    """The corrected mean of the cases with a value of the judge, in the scale of the score."""
    table = read_columns(folder.iteration(iterations[0]).records, list(OUTPUT_KEY))
    keys: list[Key] = list(zip(*(table[name].to_pylist() for name in OUTPUT_KEY), strict=True))
    judged = judged_cases(folder, iterations, spec, None, keys)
    by_case = {(label.sample_id, label.method, label.repeat): label.label for label in score.correcting_labels}
    kept = np.flatnonzero(~np.isnan(judged.values))
    return corrected_mean(
        judged.values[kept],
        np.array([by_case.get(keys[place], np.nan) for place in kept]),
        judged.questions[kept],
        strata=None if score.strata is None else score.strata.codes(keys)[kept],
        low=scale[0],
        high=scale[1],
        level=level,
    )


def _progress(draw: Path) -> tuple[int, int]:
    """How many cases a draw has, and of how many somebody said something, if only that they cannot tell."""
    cases = {tuple(key.values()) for key in read_labels(draw).select(list(OUTPUT_KEY)).to_pylist()}
    return len(read_drawn(draw)), len(cases)
