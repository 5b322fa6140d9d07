"""What the aggregation needs of all cases, as compact arrays: 2 bytes per score (up to 10 where it has many different values or
reasons) and 8 per field.

Texts are not kept: the values of the fields to break down by and the reasons of skips and errors become numbers, each
distinct text stored once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.schema.sample import PARTS, Case, OutputPart
from ragpipe.schema.score import NO_FACTUAL_CLAIMS
from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.dimensions import Coded, Fields
from ragpipe.scoring.growing_columns import CodedColumn, GrowingArray, GrowingCodes, GrowingValues, unique_numbers
from ragpipe.scoring.rules.diagnosis import DiagnosisAccumulator
from ragpipe.scoring.scored_columns import ERROR, SKIPPED, Column, Scored
from ragpipe.scoring.system_usage import Price, UsageLedger, json_objects

Whole = NDArray[np.int64]

_REASONS = (
    500  # distinct reasons kept per score; a metric that writes the case into its reason must not fill the memory
)
_STATUSES, _VERDICTS = 4, 3  # of a column: -1 to 2 and -1 to 1
_MARKS = ("empty", "unrecorded", "error", "timeout", "abstained", "retried")
_LABELS = 1000  # distinct values of a field; a field with so many is none to break down by
OTHER = "(other)"
_NONE: Mapping[str, Mapping[str, Sequence[str]]] = {}
_TIMEOUT = re.compile(r"timed?[_-]?out|timed out|deadline exceeded", re.IGNORECASE)
_HTTP_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_TIMEOUT_STATUSES = frozenset({"408", "504"})
_KIND = re.compile(r"[a-z][a-z0-9_]*(?=:|\Z)")


class Codes:
    """Texts as numbers, in the order of their first appearance. Beyond `limit` distinct ones all others are one."""

    def __init__(self, limit: int | None = None):
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._limit = limit

    def of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            if self._limit and len(self.names) >= self._limit:
                text = OTHER
            number = self._numbers.setdefault(text, len(self.names))
            if number == len(self.names):
                self.names.append(text)
        return number

    @property
    def rest(self) -> int | None:
        """The number of all texts beyond the limit; None while there are none."""
        return self._numbers.get(OTHER) if self._limit and len(self.names) > self._limit else None


class ScoreLedger:
    """One score over all cases so far."""

    def __init__(self) -> None:
        self.reasons = Codes(_REASONS)
        self._values, self._states = GrowingValues(), GrowingCodes()

    def add(self, column: Column) -> None:
        self._values.add(column.values)
        why = np.full(len(column.status), -1, dtype=np.int64)
        silent = pc.fill_null(pc.equal(column.reasons, NO_FACTUAL_CLAIMS), False).to_numpy(zero_copy_only=False)
        places = np.flatnonzero((column.status == SKIPPED) | (column.status == ERROR) | silent)
        if len(places):
            why[places] = self._codes(column.reasons.take(pa.array(places)), column.status[places] == ERROR)
        self._states.add(((why + 1) * _STATUSES + column.status + 1) * _VERDICTS + column.passed + 1)

    def _codes(self, reasons: pa.Array, failed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The number of each reason, of a failure that of its kind. Each different one is looked up once, in data order."""
        encoded = reasons.dictionary_encode(null_encoding="encode")
        pairs = 2 * encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) + failed
        different, firsts, places = unique_numbers(pairs)
        codes, texts = np.empty(len(different), dtype=np.int32), encoded.dictionary.to_pylist()
        for number in np.argsort(firsts).tolist():
            text, error = divmod(int(different[number]), 2)
            codes[number] = self.reasons.of(_reason(texts[text], error=bool(error)))
        return codes[places]

    def close(self) -> None:
        """To be called after the last block: `values`, `passed`, `status`, `why` are there from now on."""
        self.values = self._values.column()
        codes, states = self._states.codes(), self._states.different()
        self.passed = CodedColumn(codes, (states % _VERDICTS - 1).astype(np.int8))
        self.status = CodedColumn(codes, (states // _VERDICTS % _STATUSES - 1).astype(np.int8))
        self.why = CodedColumn(codes, states // _VERDICTS // _STATUSES - 1)

    def has_reason(self, reason: str) -> NDArray[np.bool_]:
        """The cases that were skipped, or failed, with exactly this reason; those with a value too for one that states nothing."""
        if reason not in self.reasons.names:
            return np.zeros(len(self.why), dtype=np.bool_)
        return np.asarray(self.why[:] == self.reasons.names.index(reason))


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
        self.n = 0
        self.n_failed = 0  # judgements: a metric that fails on a case is one, however many scores it gives
        self.usage = UsageLedger(price)
        self.timings: dict[str, tuple[Whole, NDArray[np.float64]]] = {}
        self.recording = Recording()
        self.lost: dict[str, Any] = {}  # of each score, filled by `coverage.lost`
        self._methods = Codes()
        self._method_codes = GrowingArray(np.int64)
        self._chosen = chosen
        self._in_chosen = {name: GrowingArray(np.bool_) for name in chosen}
        self._timings: dict[str, tuple[GrowingArray[np.int64], GrowingArray[np.float64]]] = {}
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
            self._add_field(field, fields.of(field), codes)
        for name, where in self._chosen.items():
            self._in_chosen[name].add(fields.matching(where))
        self._add_system(block.outputs)
        self.n += len(block)

    def close(self) -> None:
        for ledger in (*self.scores.values(), self.overall):
            ledger.close()
        self.findings.close()
        self.usage.close()
        self.samples: Whole = self._samples.array()
        self.methods: Whole = self._method_codes.array()
        self.method_names = self._methods.names
        self.recorded = {
            part: np.array([self.recording.is_recorded(name, part) for name in self.method_names], dtype=np.bool_)
            for part in PARTS
        }
        self.chosen = {name: np.flatnonzero(flags.array()) for name, flags in self._in_chosen.items()}
        self.nobody = np.zeros(self.n, dtype=np.bool_)  # kept once: most scores lost no case
        self.marks = {name: flags.array() for name, flags in self._marks.items()}
        self.pairs: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
            field: (cases.array(), codes.array()) for field, (cases, codes) in self._pairs.items()
        }
        self.timings = {stage: (cases.array(), times.array()) for stage, (cases, times) in self._timings.items()}

    def _add_field(self, field: str, coded: Coded, codes: Codes) -> None:
        numbers = np.array([codes.of(name) for name in coded.names], dtype=np.int32)
        cases, field_codes = self._pairs[field]
        cases.add(coded.cases + self.n)
        field_codes.add(numbers[coded.codes])

    def _add_system(self, outputs: pa.Table) -> None:
        answers = outputs["answer"].to_pylist()
        empty = [text is not None and not text.strip() for text in answers]
        self._marks["empty"].add(np.array(empty, dtype=np.bool_))
        failed = outputs["error"].is_valid().to_numpy()
        self._marks["error"].add(failed)
        self._marks["unrecorded"].add(~failed & outputs["answer"].is_null().to_numpy())
        self._add_recording(outputs, failed)
        timeouts = np.zeros(len(outputs), dtype=np.bool_)
        for place in np.flatnonzero(failed).tolist():
            timeouts[place] = is_timeout(outputs["error"][place].as_py())
        self._marks["timeout"].add(timeouts)
        abstained = outputs["abstained"].fill_null(False).combine_chunks()
        self._marks["abstained"].add(abstained.to_numpy(zero_copy_only=False))
        self._marks["retried"].add(outputs["attempts"].fill_null(1).to_numpy() > 1)
        self.usage.add(outputs["usage"], self.n)
        for stage, times in _by_stage(outputs["timings"], self.n).items():
            cases, durations = self._timings.setdefault(stage, (GrowingArray(np.int64), GrowingArray(np.float64)))
            cases.add(np.array([case for case, _ in times]))
            durations.add(np.array([ms for _, ms in times]))

    def _add_recording(self, outputs: pa.Table, failed: NDArray[np.bool_]) -> None:
        encoded = outputs["method"].combine_chunks().dictionary_encode()
        numbers = np.array([self._methods.of(method) for method in encoded.dictionary.to_pylist()], dtype=np.int64)
        codes = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        self._method_codes.add(codes)
        retrieves = outputs["retrieves"].to_numpy()
        for part in PARTS:
            could = ~failed if part == "answer" else ~failed & retrieves
            column = outputs["answer" if part == "answer" else "chunks"]
            missing = could & (_without_texts(column) if part == "context_texts" else column.is_null().to_numpy())
            for code in np.unique(codes[could]).tolist():
                here = codes == code
                places = np.flatnonzero(missing & here)
                first = outputs["sample_id"][places[0]].as_py() if len(places) else ""
                name = self._methods.names[code]
                self.recording.add(name, part, int(np.count_nonzero(could & here)), len(places), first)


def _without_texts(chunks: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Of the column of chunks as JSON: where there are some and none has a text."""
    has_text = pc.match_substring_regex(chunks, r'"text": ?"[^"]')
    without: NDArray[np.bool_] = pc.and_(pc.not_equal(chunks, "[]"), pc.invert(has_text)).fill_null(False).to_numpy()
    return without


def failed_judgements(block: CaseBlock) -> int:
    """How many pairs of case and metric have a score with status error."""
    rows = np.flatnonzero(pc.equal(block.scores["status"], "error").to_numpy())
    metrics = block.scores["metric"].take(pa.array(rows)).to_pylist()
    return len(set(zip(block.cases[rows].tolist(), metrics, strict=True)))


def is_timeout(error: str | None) -> bool:
    """Whether an output's error says that time ran out: `HTTP 408` or `HTTP 504`; without an HTTP status the words, such as
    `timeout after 30 s` or ReadTimeout. A known status decides alone: the body of a 503 may speak of an upstream timeout."""
    if not error:
        return False
    if status := _HTTP_STATUS.search(error):
        return status[1] in _TIMEOUT_STATUSES
    return bool(_TIMEOUT.search(error))


def _by_stage(timings: pa.ChunkedArray, first: int) -> dict[str, list[tuple[int, float]]]:
    by_stage: dict[str, list[tuple[int, float]]] = {}
    for place, recorded in json_objects(timings, first):
        for stage, ms in stage_times(recorded).items():
            by_stage.setdefault(stage, []).append((place, ms))
    return by_stage


def stage_times(recorded: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by stage of the system; `total` is the system's own, else the sum of its stages."""
    stages = {name.removesuffix("_ms"): float(ms) for name, ms in recorded.items()}
    stages.setdefault("total", math.fsum(stages.values()))
    return stages


def _reason(text: str | None, *, error: bool) -> str:
    """A skip's reason as it is; of an error the kind, which is before the colon (`refused: ...`)."""
    if not text:
        return "(no reason)"
    if not error:
        return text
    kind = _KIND.match(text)
    return kind[0] if kind else OTHER


Places = NDArray[np.int64]


def membership(ledger: Accumulators, field: str) -> tuple[list[str], Places, Places]:
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
        """Count outputs of a method that may lack a part.

        Args:
            method: the method.
            part: the part of the output.
            cases: how many outputs there are.
            missing: how many of them lack the part.
            first: the sample id of the first that lacks it.
            why: what its data say of it.
        """
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
