"""The measurements of a case as rows of the tables. The order of rows never depends on which reply came first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pydantic_core import from_json, to_json

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import TRANSIENT, JudgeError, RagpipeError, Skipped
from ragpipe.core.sample import CaseKey
from ragpipe.core.score import Score
from ragpipe.judge.case_judge import JudgeCallUse
from ragpipe.metrics.base import Metric
from ragpipe.score.normalisation import check_declared_scale
from ragpipe.store.table_rows import JUDGE_INPUTS

_CODEC = "lz4"  # contexts that repeat cost next to nothing in it too, and it takes a fifth of the time of zstd
_TEXTS = ("messages", "reply")
_CELLS = tuple(name for name in JUDGE_INPUTS.names if name not in _TEXTS)
_CELLS_OF = itemgetter(*_CELLS)
RAW_KEPT = 2000  # characters of an unreadable reply that are kept with its score; judge_inputs has all of it


@dataclass(slots=True)
class Measurement:
    """What one metric gave for one case: its scores in declared order, and the calls it used. `kept` are the keys of those
    calls once `free` has dropped the calls themselves."""

    metric: Metric
    scores: list[Score]
    uses: list[JudgeCallUse] = field(default_factory=list)
    transient: bool = False
    kept: list[str] | None = None

    @property
    def calls(self) -> list[str]:
        """The keys of its calls, sorted."""
        return sorted({use.call.key for use in self.uses}) if self.kept is None else self.kept

    def free(self) -> None:
        """Drop the calls, which hold every message; their keys stay."""
        self.kept, self.uses = self.calls, []


def check_details(metric: Metric, scores: Iterable[Score]) -> None:
    """Raises RagpipeError for details that are no plain JSON, so that the tables could not hold them. Those of shipped metrics are: here
    it would only take time."""
    if type(metric).__module__.partition(".")[0] == "ragpipe":
        return
    for score in scores:
        try:
            canonical_json(score.details)
        except (TypeError, ValueError, RecursionError) as error:
            raise RagpipeError(
                f"the details of the score {score.name or metric.name} are no plain JSON: {error}. Expected texts, finite numbers, "
                "True, False, None, and lists and dictionaries of them, with texts as keys"
            ) from None


def scores_by_name(metric: Metric, result: Score | Sequence[Score]) -> list[Score]:
    """A metric's scores in declared order. Raises RagpipeError where they are no scores, not the declared ones, outside the declared scale,
    or have details that are no plain JSON."""
    returned = [result] if isinstance(result, Score) else result
    if not isinstance(returned, Sequence) or not all(isinstance(score, Score) for score in returned):
        what = f"returned {type(result).__name__} {result!r:.40}"
        raise RagpipeError(f"the metric {what}; expected a Score, such as Score(1.0), or a list of Scores")
    scores, declared = list(returned), metric.score_names
    check_details(metric, scores)
    if tuple(score.name for score in scores) != tuple(declared):
        by_name = {score.name or metric.name: score for score in scores}
        if sorted(by_name) != sorted(declared) or len(by_name) != len(scores):
            names = [score.name for score in scores]
            raise RagpipeError(f"the metric declares the scores {list(declared)} and returned {names}")
        scores = [by_name[name] for name in declared]
    for score, spec in zip(scores, metric.score_specs, strict=True):
        if score.value is not None:
            check_declared_scale(score.value, spec)
    return scores


def failed_measurement(metric: Metric, error: JudgeError | Skipped, uses: list[JudgeCallUse]) -> Measurement:
    """All scores of the metric as `error` or `skipped`, with the reason."""
    if isinstance(error, Skipped):
        return Measurement(metric, [Score(status="skipped", reason=error.reason)] * len(metric.score_names), uses)
    details: dict[str, Any] = {"kind": error.kind}
    if error.text:
        details["reply"] = error.text[:RAW_KEPT]
    scores = [Score(status="error", reason=str(error), details=details)] * len(metric.score_names)
    return Measurement(metric, scores, uses, transient=error.kind in TRANSIENT)


def add_scores(columns: dict[str, list[Any]], case: CaseKey, measured: Measurement) -> None:
    """Add the rows of `scores.parquet` for one metric and case, column by column: a block has tens of thousands."""
    names, scores = measured.metric.score_names, measured.scores
    keys, count = measured.calls, len(names)
    columns["sample_id"] += [case.sample_id] * count
    columns["method"] += [case.method] * count
    columns["repeat"] += [case.repeat] * count
    columns["iteration"] += [case.iteration] * count
    columns["metric"] += [measured.metric.name] * count
    columns["score_name"] += names
    columns["value"] += [score.value for score in scores]
    columns["status"] += [score.status for score in scores]
    columns["reason"] += [score.reason for score in scores]
    columns["details"] += [canonical_json(score.details) if score.details else None for score in scores]
    columns["calls"] += [keys] * count


def input_rows(case: CaseKey, measured: Measurement, *, keep_messages: bool) -> list[dict[str, Any]]:
    """Rows of `judge_inputs.parquet`, ordered by step, turn and payload."""
    order = {step: place for place, step in enumerate(measured.metric.step_names())}
    uses = sorted(measured.uses, key=lambda use: (order.get(use.step, len(order)), use.turn, use.payload.id))
    return [_input_row(case, use, keep_messages) for use in uses]


def _input_row(case: CaseKey, use: JudgeCallUse, keep_messages: bool) -> dict[str, Any]:
    call, prompt = use.call, use.prompt
    return {
        "sample_id": case.sample_id,
        "method": case.method,
        "repeat": case.repeat,
        "iteration": case.iteration,
        "metric": use.metric,
        "step": use.step,
        "turn": use.turn,
        "payload_id": use.payload.id,
        "template": prompt.name if prompt else None,
        "template_version": prompt.version if prompt else None,
        "template_sha256": prompt.sha256 if prompt else None,
        "messages": use.payload.messages_json if keep_messages else None,
        "schema": use.payload.schema_json if keep_messages else None,
        "answer": use.answer,
        "flags": list(use.flags),
        **{name: getattr(call, name) for name in _OF_CALL},
        "reply": call.text if keep_messages else None,
        "paid_by": f"{call.run_id}/{call.iteration}" if call.answers else None,
        "sent": canonical_json(call.sent) if call.sent else None,
    }


_OF_CALL = (
    "key", "judge", "status", "message", "model", "finish_reason", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning",
    "tokens_written", "fingerprint", "paid_usd", "latency_ms", "attempts", "output_mode", "wire_hash",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """The rows of one case until its block is written: `cells` of each, and messages and replies compressed in `texts`,
    `size` bytes as JSON."""

    cells: tuple[tuple[Any, ...], ...]
    size: int
    texts: bytes

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> PackedInputs:
        """The rows, their texts compressed."""
        plain = to_json([[row[name] for row in rows] for name in _TEXTS])
        return cls(tuple(map(_CELLS_OF, rows)), len(plain), pa.compress(plain, codec=_CODEC, asbytes=True))

    def columns(self) -> dict[str, Sequence[Any]]:
        """The cells of the rows by column; empty without a row."""
        texts = from_json(pa.decompress(self.texts, self.size, codec=_CODEC, asbytes=True))
        columns: dict[str, Sequence[Any]] = dict(zip(_CELLS, zip(*self.cells, strict=True), strict=bool(self.cells)))
        return columns | dict(zip(_TEXTS, texts, strict=True))


def packed_inputs(case: CaseKey, measured: Iterable[Measurement], *, keep_messages: bool) -> PackedInputs:
    """The rows of `judge_inputs.parquet` for one case, packed, in the order of its measurements."""
    return PackedInputs.of([row for m in measured for row in input_rows(case, m, keep_messages=keep_messages)])


def row_groups(cases: Iterable[PackedInputs], limit: int) -> Iterator[dict[str, list[Any]]]:
    """The rows of all cases in order, in groups that end with the case whose texts reach `limit` characters, each as the columns
    of a table. The same rows give the same groups in every run."""
    group: dict[str, list[Any]] = {name: [] for name in JUDGE_INPUTS.names}
    size = 0
    for packed in cases:
        for name, cells in packed.columns().items():
            group[name] += cells
            if name in _TEXTS:
                size += sum(len(text) for text in cells if text is not None)
        if size >= limit:
            yield group
            group, size = {name: [] for name in JUDGE_INPUTS.names}, 0
    yield group


def journal_entry(case: CaseKey, question: str, measured: Sequence[Measurement]) -> dict[str, Any]:
    """A finished case as its journal line: its key, whether asking again may change its result, and its values."""
    return {
        "sample_id": case.sample_id,
        "method": case.method,
        "repeat": case.repeat,
        "question": question,
        "transient": any(measurement.transient for measurement in measured),
        "result": {
            name: score.value if score.status == "ok" else score.status
            for measurement in measured
            for name, score in zip(measurement.metric.score_names, measurement.scores, strict=True)
        },
    }
