"""Means and pass rates of a run corrected by people's labels of its own answers, and the gates that are decided on them.

The labels are those of a random draw, or of one by method, where each stands for the cases of its method. A label of another answer
never counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibration.label_files import Key
from ragpipe.calibration.people_labels import verdicts_of
from ragpipe.comparison.drop_gates import GatedRun, on_unit_scale
from ragpipe.comparison.side import question_numbers
from ragpipe.core.score import ScoreSpec
from ragpipe.score.calibration_file import Calibration, CalibrationLabel
from ragpipe.score.case_blocks import keys_of
from ragpipe.score.gate_settings import Gate
from ragpipe.score.normalisation import interval_of
from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean
from ragpipe.stats.limits import p_of_share

Flags = NDArray[np.bool_]

OTHER_ANSWERS = "other_answers"
_WORDS = {
    OTHER_ANSWERS: "the labels are of other answers",
    "few_labels": "fewer than 30 labels",
    "few_labelled_questions": "labels of fewer than 20 questions",
    "stratum_without_labels": "a stratum of the draw has cases and no label",
    "stratum_with_one_label": "a stratum of the draw has several cases and one label",
}


class CorrectedRun:
    """A run with the labels of a calibration that are of its own answers."""

    def __init__(self, run: GatedRun, calibration: Calibration):
        self._run, self._level = run, run.settings.level
        self._rows = {key: row for row, key in enumerate(keys_of(run.cases))}
        self._questions = question_numbers(run.cases)
        on_scale = {name for name, declared in run.declared.items() if declared["low"] is not None}
        self._scores = {name: score for name, score in calibration.scores.items() if name in on_scale}
        self._drawn = {name: labels for name, score in self._scores.items() if (labels := score.correcting_labels)}
        self._methods = np.unique([method for _, method, _ in self._rows], return_inverse=True)[1].astype(np.int64)

    def document(self) -> dict[str, dict[str, Any]]:
        """`corrected` of `metrics.json`: by score with labels of a draw the judge's `raw` mean and the corrected `mean` with their
        intervals in the scale of the score, and `pass_rates` likewise where cases pass by its threshold alone; null with a `reason`
        where nothing can be corrected."""
        everything = np.ones(len(self._run.cases), dtype=np.bool_)
        document = {}
        for name, labels in self._drawn.items():
            figures: dict[str, Any] = {"labels": len(labels)}
            if fault := self._other_answers(name):
                document[name] = {**figures, "mean": None, "reason": OTHER_ANSWERS, "other_answers": fault}
                continue
            figures |= _figures(self._corrected(name, everything, by_rate=False, unit=False))
            if self._passes_by_threshold(name):
                figures["pass_rates"] = _figures(self._corrected(name, everything, by_rate=True))
            document[name] = figures
        return document

    def measure(self) -> dict[str, dict[str, Any]]:
        """What the gates on corrected figures measure, by name: those by interval on a score with enough labels among their cases."""
        measured = {}
        for name, gate in self._run.settings.active_gates().items():
            is_fixed = gate.against is None and gate.by != "point" and not gate.at_the_end(scaled=True)
            if gate.score not in self._drawn or not is_fixed:
                continue
            by_rate = self._run.by_rate(gate)
            if self._other_answers(gate.score) or (by_rate and not self._passes_by_threshold(gate.score)):
                continue
            chosen = self._run.chosen(gate.labels())
            if not np.any(chosen):
                continue
            estimate = self._corrected(gate.score, chosen, by_rate=by_rate)
            if estimate.value is not None:
                measured[name] = _gate_figures(gate, estimate)
        return measured

    def _other_answers(self, name: str) -> int:
        """How many of the labels of a score are of an answer that this run does not have: then the rest is no random part."""
        rows = [(self._rows.get(_key(label)), label.answer_sha256) for label in self._drawn[name]]
        return sum(row is None or self._run.answers[row] != digest for row, digest in rows)

    def _passes_by_threshold(self, name: str) -> bool:
        return self._run.declared[name]["threshold"] is not None and name not in self._run.settings.passes_with

    def _corrected(self, name: str, chosen: Flags, *, by_rate: bool, unit: bool = True) -> CorrectedMean:
        """Of the chosen cases: on 0 (worst) to 1 (best), as the share that passed, or in the score's own scale."""
        declared, labels = self._run.declared[name], np.full(len(self._run.cases), np.nan)
        for label in self._drawn[name]:
            labels[self._rows[_key(label)]] = label.label
        low, high = float(declared["low"]), float(declared["high"])
        judged = self._run.values(name, by_rate=by_rate)
        if by_rate:
            spec = ScoreSpec(name, low, high, higher_is_better=declared["higher_is_better"])
            labels = verdicts_of(labels, spec, declared["threshold"])
        elif unit:
            labels = on_unit_scale(labels, declared)
        else:
            native = low + (judged if declared["higher_is_better"] else 1 - judged) * (high - low)
            judged = np.clip(native, low, high)
        ends = (0.0, 1.0) if by_rate or unit else (low, high)
        places = np.flatnonzero(chosen & ~np.isnan(judged))
        return corrected_mean(
            judged[places],
            labels[places],
            self._questions[places],
            strata=self._methods[places] if self._scores[name].by_method else None,
            low=ends[0],
            high=ends[1],
            level=self._level,
        )


def correction_words(reason: str | None) -> str:
    """Why a mean could not be corrected."""
    return _WORDS.get(reason or "", str(reason).replace("_", " "))


def _key(label: CalibrationLabel) -> Key:
    return label.sample_id, label.method, label.repeat


def _figures(estimate: CorrectedMean) -> dict[str, Any]:
    raw = estimate.judge
    alone = {"raw": raw.value, "raw_interval": interval_of("interval", raw)["interval"]}
    figures = {"n": estimate.n, "mean": estimate.value, **interval_of("interval", estimate), "slope": estimate.slope}
    return {**alone, **figures, **({"reason": estimate.reason} if estimate.reason else {})}


def _gate_figures(gate: Gate, estimate: CorrectedMean) -> dict[str, Any]:
    """The corrected value as `measure_gate` has one, with the value of the judge alone beside it."""
    interval, value, rows = estimate.interval, estimate.value, estimate.effective_rows
    assert interval is not None
    assert value is not None
    p_values = []
    for end, limit in (("min", gate.min), ("max", gate.max)):
        p = None if limit is None or rows is None else p_of_share(value, limit, rows, estimate.degrees)
        p_values += [] if p is None else [p if end == "min" else 1 - p]
    bounds = {"low": interval.low, "high": interval.high, "method": interval.method}
    corrected = {"raw": estimate.judge.value, "labels": estimate.labels}
    return {"value": value, "interval": bounds, "p_value": min(p_values, default=None), "corrected": corrected}
