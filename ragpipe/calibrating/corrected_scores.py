"""Means and pass rates of a run corrected by people's labels of its own answers, and the gates that are decided on them.

The labels are those of a random draw, or of a draw by method: then each label stands for the cases of its method, its stratum. A label of another answer never counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibrating.people_labels import Key, labelled_answers
from ragpipe.comparing.drop_gates import GatedRun, on_unit_scale
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.calibration_file import Calibration, CalibrationLabel
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.normalisation import UNJUDGED, interval_of, pass_fail
from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean
from ragpipe.stats.intervals import Estimate
from ragpipe.stats.limit_tests import p_of_share
from ragpipe.store.run.run_folder import RunFolder

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

OTHER_ANSWERS = "other_answers"
_WORDS = {
    OTHER_ANSWERS: "the labels are of other answers",
    "few_labels": "fewer than 30 labels",
    "few_labelled_questions": "labels of fewer than 20 questions",
    "stratum_without_labels": "a stratum of the draw has cases and no label",
    "stratum_with_one_label": "a stratum of the draw has several cases and one label",
}


@dataclass(frozen=True)
class _LabelledScore:
    """A score of all cases in one unit: judged values, labels (NaN where there is none), questions, the strata of a draw by
    method, and the scale."""

    judged: Floats
    labels: Floats
    questions: Whole
    strata: Whole | None
    low: float
    high: float

    def corrected(self, chosen: Flags, level: float) -> CorrectedMean:
        places = np.flatnonzero(chosen & ~np.isnan(self.judged))
        return corrected_mean(
            self.judged[places],
            self.labels[places],
            self.questions[places],
            strata=None if self.strata is None else self.strata[places],
            low=self.low,
            high=self.high,
            level=level,
        )


class CorrectedRun:
    """A run with the labels of a calibration that are of its own answers."""

    def __init__(self, run: GatedRun, folder: RunFolder, calibration: Calibration):
        self._run, self._level = run, run.settings.level
        self._rows: dict[Key, int] = {
            (key["sample_id"], key["method"], key["repeat"]): row
            for row, key in enumerate(run.cases.select(list(OUTPUT_KEY)).to_pylist())
        }
        names = run.cases["sample_id"].combine_chunks().dictionary_encode().indices
        self._questions = names.to_numpy(zero_copy_only=False).astype(np.int64)
        self._scores = {
            name: score
            for name, score in calibration.scores.items()
            if name in run.declared and run.declared[name]["low"] is not None
        }
        self._drawn = {name: labels for name, score in self._scores.items() if (labels := score.correcting_labels)}
        methods = np.unique([method for _, method, _ in self._rows], return_inverse=True)[1].astype(np.int64)
        self._strata = {name: methods if self._scores[name].by_method else None for name in self._drawn}
        keys = dict.fromkeys(_key(label) for labels in self._drawn.values() for label in labels)
        self._answers = labelled_answers(folder, list(keys)) if keys else {}

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
            figures |= _figures(self._values(name, by_rate=False, unit=False).corrected(everything, self._level))
            if self._passes_by_threshold(name):
                rates = self._values(name, by_rate=True).corrected(everything, self._level)
                figures["pass_rates"] = _figures(rates)
            document[name] = figures
        return document

    def measure(self) -> dict[str, dict[str, Any]]:
        """What the gates on corrected figures measure, by name: those by interval on a score with enough labels among their cases."""
        measured = {}
        for name, gate in self._run.settings.active_gates().items():
            if (
                gate.score not in self._drawn
                or gate.against is not None
                or gate.by == "point"
                or gate.at_the_end(scaled=True)
            ):
                continue
            by_rate = self._run.by_rate(gate)
            if self._other_answers(gate.score) or (by_rate and not self._passes_by_threshold(gate.score)):
                continue
            chosen = self._run.chosen(gate.labels())
            if not np.any(chosen):
                continue
            estimate = self._values(gate.score, by_rate=by_rate).corrected(chosen, self._level)
            if estimate.value is not None:
                measured[name] = _gate_figures(gate, estimate)
        return measured

    def _other_answers(self, name: str) -> int:
        """How many of the labels of a score are of an answer that this run does not have: then the rest is no random part."""
        return sum(self._answers.get(_key(label)) != label.answer_sha256 for label in self._drawn[name])

    def _passes_by_threshold(self, name: str) -> bool:
        settings = self._run.settings
        return settings.thresholds.get(name) is not None and name not in settings.passes_with

    def _values(self, name: str, *, by_rate: bool, unit: bool = True) -> _LabelledScore:
        """Judged values and labels of all cases: as 0 (worst) to 1 (best), as shares that passed, or in the score's own scale."""
        declared, labels = self._run.declared[name], np.full(len(self._run.cases), np.nan)
        for label in self._drawn[name]:
            labels[self._rows[_key(label)]] = label.label
        low, high, strata = float(declared["low"]), float(declared["high"]), self._strata[name]
        if by_rate:
            spec = ScoreSpec(name, low, high, higher_is_better=declared["higher_is_better"])
            verdicts = pass_fail(labels, spec, self._run.settings.thresholds[name]).astype(np.float64)
            labels = np.where(verdicts == UNJUDGED, np.nan, verdicts)
            return _LabelledScore(self._run.values(name, by_rate=True), labels, self._questions, strata, 0.0, 1.0)
        judged = self._run.values(name, by_rate=False)
        if unit:
            return _LabelledScore(judged, on_unit_scale(labels, declared), self._questions, strata, 0.0, 1.0)
        native = low + (judged if declared["higher_is_better"] else 1 - judged) * (high - low)
        return _LabelledScore(np.clip(native, low, high), labels, self._questions, strata, low, high)


def correction_words(reason: str | None) -> str:
    """Why a mean could not be corrected."""
    return _WORDS.get(reason or "", str(reason).replace("_", " "))


def _key(label: CalibrationLabel) -> Key:
    return label.sample_id, label.method, label.repeat


def _figures(estimate: CorrectedMean) -> dict[str, Any]:
    raw = estimate.judge
    alone = {"raw": raw.mean, "raw_interval": interval_of("interval", raw)["interval"]}
    corrected = Estimate(estimate.n, estimate.clusters, estimate.value, estimate.interval, estimate.reason)
    figures = {"n": estimate.n, "mean": estimate.value, **interval_of("interval", corrected), "slope": estimate.slope}
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
    corrected = {"raw": estimate.judge.mean, "labels": estimate.labels}
    return {"value": value, "interval": bounds, "p_value": min(p_values, default=None), "corrected": corrected}
