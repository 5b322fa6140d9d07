"""What the aggregation needs of all cases, as arrays. Texts become numbers, each distinct one stored once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.core.errors import RagpipeError
from ragpipe.core.sample import PARTS, Case, OutputPart
from ragpipe.core.score import NO_FACTUAL_CLAIMS, ScoreSpec
from ragpipe.core.usage import Price
from ragpipe.score.case_blocks import CaseBlock, GrowingArray
from ragpipe.score.chunk_support import SupportCounts
from ragpipe.score.diagnosis import DiagnosisAccumulator
from ragpipe.score.dimensions import Coded, Fields
from ragpipe.score.normalisation import (
    ERROR,
    MISSING,
    OK,
    OVERALL,
    SKIPPED,
    STATUSES,
    UNJUDGED,
    Column,
    mean_column,
    normalised,
    pass_fail,
    specs_of,
)
from ragpipe.score.settings import ScoringSettings
from ragpipe.score.system_usage import ANY, CaseNumbers, figures, json_objects

Whole = NDArray[np.int64]

_REASONS = 500  # distinct ones kept per score: a metric that writes the case into its reason must not fill the memory
_MARKS = ("empty", "unrecorded", "error", "timeout", "abstained", "retried")
_LABELS = 1000  # distinct values of a field; a field with so many is none to break down by
OTHER = "(other)"
_NONE: Mapping[str, Mapping[str, Sequence[str]]] = {}
_TIMEOUT = re.compile(r"timed?[_-]?out|timed out|deadline exceeded", re.IGNORECASE)
_HTTP_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_KIND = re.compile(r"[a-z][a-z0-9_]*(?=:|\Z)")


class Codes:
    """Texts as numbers, in the order of their first appearance. Beyond `limit` distinct ones all others are one."""

    def __init__(self, limit: int | None = None):
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._limit = limit

    def of(self, text: str) -> int:
        if self._limit and len(self.names) >= self._limit and text not in self._numbers:
            text = OTHER
        number = self._numbers.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        return number


class ScoreLedger:
    """One score over all cases so far."""

    def __init__(self) -> None:
        self.reasons = Codes(_REASONS)
        self._values, self._why = GrowingArray(np.float64), GrowingArray(np.int16)
        self._passed, self._status = GrowingArray(np.int8), GrowingArray(np.int8)

    def add(self, column: Column) -> None:
        self._values.add(column.values)
        self._passed.add(column.passed)
        self._status.add(column.status)
        why = np.full(len(column.status), -1, dtype=np.int64)
        silent = pc.fill_null(pc.equal(column.reasons, NO_FACTUAL_CLAIMS), False).to_numpy(zero_copy_only=False)
        places = np.flatnonzero((column.status == SKIPPED) | (column.status == ERROR) | silent)
        if len(places):
            why[places] = self._codes(column.reasons.take(pa.array(places)), column.status[places] == ERROR)
        self._why.add(why)

    def _codes(self, reasons: pa.Array, failed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The number of each reason, of a failure that of its kind. Each different one is looked up once, in data order."""
        encoded = reasons.dictionary_encode(null_encoding="encode")
        pairs = 2 * encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) + failed
        different, firsts, places = np.unique(pairs, return_index=True, return_inverse=True)
        codes, texts = np.empty(len(different), dtype=np.int32), encoded.dictionary.to_pylist()
        for number in np.argsort(firsts).tolist():
            text, error = divmod(int(different[number]), 2)
            codes[number] = self.reasons.of(_reason(texts[text], error=bool(error)))
        return codes[places]

    def close(self) -> None:
        """To be called after the last block: `values`, `passed`, `status`, `why` are there from now on."""
        self.values, self.passed = self._values.array(), self._passed.array()
        self.status, self.why = self._status.array(), self._why.array()

    def has_reason(self, reason: str) -> NDArray[np.bool_]:
        """The cases that were skipped, or failed, with exactly this reason; those with a value too for one that states nothing."""
        if reason not in self.reasons.names:
            return np.zeros(len(self.why), dtype=np.bool_)
        return np.asarray(self.why == self.reasons.names.index(reason))


class Accumulators:
    """All cases so far: their scores, the fields to break down by, and what is known of the system under test.

    `chosen` are choices of cases by name (field -> labels, as `Fields.matching` takes them); after `close` the numbers
    of the cases that each one chose. `price` is that of the system's tokens.
    """

    def __init__(
        self,
        scores: Sequence[str],
        fields: Iterable[str],
        chosen: Mapping[str, Mapping[str, Sequence[str]]] = _NONE,
        price: Price | None = None,
    ):
        self.scores = {name: ScoreLedger() for name in scores}
        self.overall = ScoreLedger()
        self.fields = {field: Codes(_LABELS) for field in fields}
        self.findings = DiagnosisAccumulator({}, {})
        self.support = SupportCounts()
        self.n = 0
        self.n_failed = 0  # judgements: a metric that fails on a case is one, however many scores it gives
        self.usage, self.timings = CaseNumbers(), CaseNumbers()
        self._price = price
        self.recording = Recording()
        self.lost: dict[str, Any] = {}  # of each score, filled by `coverage.lost`
        self._methods = Codes()
        self._method_codes = GrowingArray(np.int64)
        self._chosen = chosen
        self._in_chosen = {name: GrowingArray(np.bool_) for name in chosen}
        self._samples = GrowingArray(np.int64)
        self._marks = {name: GrowingArray(np.bool_) for name in _MARKS}
        self._pairs = {field: (GrowingArray(np.int32), GrowingArray(np.int32)) for field in self.fields}

    def add(self, block: CaseBlock, fields: Fields, scored: Scored, n_failed: int) -> None:
        """The next block; `n_failed` are its failed judgements."""
        for name, ledger in self.scores.items():
            ledger.add(scored.columns[name])
        self.overall.add(scored.overall)
        self.n_failed += n_failed
        self._samples.add(block.outputs["sample_row"].to_numpy())
        for field, codes in self.fields.items():
            coded, (cases, numbers) = fields.of(field), self._pairs[field]
            cases.add(coded.cases + self.n)
            numbers.add(np.array([codes.of(name) for name in coded.names], dtype=np.int32)[coded.codes])
        for name, where in self._chosen.items():
            self._in_chosen[name].add(fields.matching(where))
        self._add_system(block)
        self.n += len(block)

    def close(self) -> None:
        for ledger in (*self.scores.values(), self.overall):
            ledger.close()
        self.findings.close()
        self.samples: Whole = self._samples.array()
        self.methods: Whole = self._method_codes.array()
        self.method_names = self._methods.names
        self.recorded = {
            part: np.array([self.recording.is_recorded(name, part) for name in self.method_names], dtype=np.bool_)
            for part in PARTS
        }
        self.chosen = {name: np.flatnonzero(flags.array()) for name, flags in self._in_chosen.items()}
        self.marks = {name: flags.array() for name, flags in self._marks.items()}
        self.pairs: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
            field: (cases.array(), codes.array()) for field, (cases, codes) in self._pairs.items()
        }

    def _add_system(self, block: CaseBlock) -> None:
        outputs = block.outputs
        failed = outputs["error"].is_valid().to_numpy()
        marks = {
            "empty": [text is not None and not text.strip() for text in outputs["answer"].to_pylist()],
            "unrecorded": ~failed & outputs["answer"].is_null().to_numpy(),
            "error": failed,
            "timeout": [is_timeout(error) for error in outputs["error"].to_pylist()],
            "abstained": outputs["abstained"].fill_null(False).to_numpy(),
            "retried": outputs["attempts"].fill_null(1).to_numpy() > 1,
        }
        for name, flags in marks.items():
            self._marks[name].add(np.asarray(flags))
        self._add_recording(block, failed)
        for case, reported in json_objects(outputs["usage"], self.n):
            self.usage.add(case, {ANY: 1.0, **figures(reported, self._price)})
        for case, recorded in json_objects(outputs["timings"], self.n):
            self.timings.add(case, stage_times(recorded))

    def _add_recording(self, block: CaseBlock, failed: NDArray[np.bool_]) -> None:
        outputs, chunks = block.outputs, block.chunks
        encoded = outputs["method"].combine_chunks().dictionary_encode()
        numbers = np.array([self._methods.of(method) for method in encoded.dictionary.to_pylist()], dtype=np.int64)
        codes = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        self._method_codes.add(codes)
        retrieves = outputs["retrieves"].to_numpy()
        n_texts = np.bincount(chunks.cases[chunks.with_text], minlength=len(block))
        is_missing = {
            "answer": outputs["answer"].is_null().to_numpy(),
            "contexts": ~chunks.recorded,
            "context_texts": (chunks.counts > 0) & (n_texts == 0),
        }
        for part in PARTS:
            could = ~failed if part == "answer" else ~failed & retrieves
            missing = could & is_missing[part]
            for code in np.unique(codes[could]).tolist():
                here = codes == code
                places = np.flatnonzero(missing & here)
                first = outputs["sample_id"][places[0]].as_py() if len(places) else ""
                name = self._methods.names[code]
                self.recording.add(name, part, int(np.count_nonzero(could & here)), len(places), first)


def failed_judgements(block: CaseBlock) -> int:
    """How many pairs of case and metric have a score with status error."""
    rows = np.flatnonzero(pc.equal(block.scores["status"], "error").to_numpy())
    metrics = block.scores["metric"].take(pa.array(rows)).to_pylist()
    return len(set(zip(block.cases[rows].tolist(), metrics, strict=True)))


def is_timeout(error: str | None) -> bool:
    """Whether an output's error says that time ran out: `HTTP 408` or `HTTP 504`; without an HTTP status the words, such as
    `timeout after 30 s` or ReadTimeout. A known status decides alone: the body of a 503 may speak of an upstream timeout."""
    if status := _HTTP_STATUS.search(error or ""):
        return status[1] in ("408", "504")
    return bool(_TIMEOUT.search(error or ""))


def stage_times(recorded: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by stage of the system; `total` is the system's own, else the sum of its stages."""
    stages = {name.removesuffix("_ms"): float(ms) for name, ms in recorded.items()}
    stages.setdefault("total", math.fsum(stages.values()))
    return stages


def _reason(text: str | None, *, error: bool) -> str:
    """A skip's reason as it is; of an error the kind, which is before the colon (`refused: ...`)."""
    if not text:
        return "(no reason)"
    kind = _KIND.match(text) if error else None
    return text if not error else kind[0] if kind else OTHER


def membership(ledger: Accumulators, field: str) -> tuple[list[str], Whole, Whole]:
    """Which case is in which group of a field, or of several crossed by `*`: labels, case numbers, label numbers."""
    first, *rest = (Coded(*ledger.pairs[part], ledger.fields[part].names) for part in field.split("*"))
    cases, codes, names = crossed(first, *rest)
    return names, cases, codes


def crossed(first: Coded, *rest: Coded) -> Coded:
    """The labels of several fields together, `a * b`, for every case that has one in each.

    A `*` within a label is written `\\*` (and a backslash twice), so that no two groups have one name.
    """
    cases, codes, names = first
    names = [_escaped(name) for name in names] if rest else names
    for other_cases, other_codes, more in rest:
        if not more:
            return Coded(cases[:0], codes[:0], [])
        starts = np.searchsorted(other_cases, cases, side="left")
        times = np.searchsorted(other_cases, cases, side="right") - starts
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        cases, left = np.repeat(cases, times), np.repeat(codes, times)
        combined = left.astype(np.int64) * len(more) + other_codes[np.repeat(starts, times) + within]
        used, codes = np.unique(combined, return_inverse=True)
        names = [f"{names[pair // len(more)]} * {_escaped(more[pair % len(more)])}" for pair in used.tolist()]
    return Coded(cases, codes.astype(np.int64), names)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("*", "\\*")


@dataclass(slots=True)
class Gap:
    """A part of a method's outputs over the cases that could have it: `missing` of `cases` lack it, `first` is the first, and
    `why` what its data say of it: the `lacks` of its meta, as a trace has it."""

    method: str
    part: OutputPart
    cases: int = 0
    missing: int = 0
    first: str = ""
    why: str = ""

    def scale(self, factor: float) -> None:
        """Let these cases stand for so many times as many."""
        self.cases, self.missing = round(self.cases * factor), round(self.missing * factor)

    @property
    def is_whole(self) -> bool:
        """Whether no output of the method records it: what needs it is not applicable there."""
        return self.missing == self.cases

    def __str__(self) -> str:
        many = "all" if self.is_whole else f"{self.missing:,} of"
        return f"{self.part}: not recorded in {many} {self.cases:,} cases of method {self.method}, first {self.first}"


class Recording:
    """Counts over outputs, in the order in which methods come. A failure of the system is no output; a method that retrieves
    nothing by design has no contexts to record."""

    def __init__(self) -> None:
        self._gaps: dict[tuple[str, OutputPart], Gap] = {}

    def add(self, method: str, part: OutputPart, cases: int, missing: int, first: str, why: str = "") -> None:
        """Count `cases` outputs of a method, of which `missing` lack a part: `first` is the sample id of the first that does, `why`
        what its data say of it."""
        gap = self._gaps.setdefault((method, part), Gap(method, part))
        if missing and not gap.first:
            gap.first, gap.why = first, why
        gap.cases += cases
        gap.missing += missing

    def add_case(self, case: Case) -> None:
        """One more output."""
        output, why = case.output, str(case.sample.meta.get("lacks") or "")
        for part in PARTS if output.error is None else ():
            if part == "answer" or output.retrieves:
                self.add(output.method, part, 1, int(not case.records(part)), output.sample_id, why)

    def gaps(self) -> list[Gap]:
        """The methods' parts that some output lacks."""
        return [gap for gap in self._gaps.values() if gap.missing]

    def is_recorded(self, method: str, part: OutputPart) -> bool:
        """Whether some output of the method has it."""
        gap = self._gaps.get((method, part))
        return gap is not None and gap.missing < gap.cases


@dataclass(frozen=True)
class Scored:
    """A block of cases, scored: a column per declared score and composite, then the overall score and verdict.

    `overall.passed` is the verdict on the case: see `_overall`.
    """

    columns: dict[str, Column]
    overall: Column


def score_block(block: CaseBlock, fields: Fields, specs: Sequence[ScoreSpec], settings: ScoringSettings) -> Scored:
    """Normalise, judge and weigh the scores of a block; `specs` are those of the metrics.

    Raises RagpipeError for a score that no spec declares.
    """
    places, cells = _places(block, [spec.name for spec in specs]), _Cells.of(block.scores)
    columns = {spec.name: _column(cells, places[spec.name], spec, settings) for spec in specs}
    measured = dict(columns)
    composites = settings.active_composites()
    for spec in specs_of(composites, specs):  # those alone that the run has: an unseen one must decide nothing
        weights, threshold = composites[spec.name].weights, settings.threshold(spec)
        columns[spec.name] = mean_column(measured, weights, spec, threshold, len(block))
    lacking = settings.missing_dependencies(columns)
    for name in settings.passing_order():
        if name in lacking:  # a score that decides it is not in this run, so whether a case passes is unknown
            columns[name] = replace(columns[name], passed=np.full(len(block), UNJUDGED, dtype=np.int8))
        elif name in columns:
            verdicts = np.stack([columns[required].passed for required in settings.passes_with[name]])
            passed = np.where((verdicts == 0).any(axis=0), 0, verdicts.min(axis=0))  # one that fails decides
            passed = np.where(columns[name].status == OK, passed, UNJUDGED).astype(np.int8)
            columns[name] = replace(columns[name], passed=passed)
    return Scored(columns, _overall(columns, fields, settings, len(block)))


def _overall(columns: Mapping[str, Column], fields: Fields, settings: ScoringSettings, n: int) -> Column:
    """The weighted mean of the scores, passed when it reaches its threshold and every gate score of the case passed."""
    overall = mean_column(columns, settings.weight_shares(), OVERALL, settings.threshold(OVERALL), n)
    failed, unknown = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for name, concerned in gated(fields, settings).items():
        if column := columns.get(name):
            failed |= concerned & (column.passed == 0)
            unknown |= concerned & ((column.status == ERROR) | (column.status == MISSING))
    passed = overall.passed.copy()
    passed[failed & (passed == 1)] = 0
    passed[unknown] = UNJUDGED
    return replace(overall, passed=passed)


def gated(fields: Fields, settings: ScoringSettings) -> dict[str, NDArray[np.bool_]]:
    """The scores that critical gates are on, each with the cases that those gates are about."""
    return {
        name: np.any([fields.matching(gate.labels()) for gate in gates], axis=0)
        for name, gates in settings.case_gates().items()
    }


def _places(block: CaseBlock, names: Sequence[str]) -> Mapping[str, NDArray[np.int64]]:
    """For each score name the row of `block.scores` that belongs to each case, -1 for none."""
    rows_by_score = {name: np.full(len(block), -1, dtype=np.int64) for name in names}
    encoded = block.scores["score_name"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in rows_by_score:
            raise RagpipeError(
                f"scores.parquet holds {name!r}, which no metric of this configuration declares; expected one of "
                f"{', '.join(names)}. To fix: score with the configuration that the run was made with."
            )
        rows = np.flatnonzero(codes == code)
        cases = block.cases[rows]
        if np.any(cases[1:] == cases[:-1]):  # the rows are in the order of the cases
            raise RagpipeError(f"scores.parquet holds {name!r} twice for one case; expected one row per case and score")
        rows_by_score[name][cases] = rows
    return rows_by_score


class _Cells(NamedTuple):
    """The rows of a block of `scores.parquet`: values (NaN is null), numbers of STATUSES (MISSING for any other), reasons."""

    values: NDArray[np.float64]
    status: NDArray[np.int8]
    reasons: pa.Array

    @classmethod
    def of(cls, scores: pa.Table) -> _Cells:
        named = pc.index_in(scores["status"].combine_chunks(), value_set=pa.array(STATUSES))
        return cls(
            scores["value"].combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64),
            pc.fill_null(named, MISSING).to_numpy(zero_copy_only=False).astype(np.int8),
            scores["reason"].combine_chunks(),
        )


def _column(cells: _Cells, places: NDArray[np.int64], spec: ScoreSpec, settings: ScoringSettings) -> Column:
    """One score: the cells of the rows `places`, -1 for a case without one."""
    has_row, n = places >= 0, len(places)
    values, status = np.full(n, np.nan), np.full(n, MISSING, dtype=np.int8)
    values[has_row], status[has_row] = cells.values[places[has_row]], cells.status[places[has_row]]
    if np.any((status == OK) & ~np.isfinite(values)):
        raise RagpipeError(f"scores.parquet: {spec.name!r} has status ok without a finite value")
    values[status != OK] = np.nan  # a value beside another status is never used
    judged = pass_fail(values, spec, settings.threshold(spec))
    reasons = cells.reasons.take(pa.array(places, mask=~has_row))
    return Column(values, normalised(values, spec), judged, status, reasons)
