"""Scores for the tools that hold the traces: `task=export run=NAME formats=[otlp,langfuse,phoenix,mlflow] dir=scores`. Nothing is sent.

- `otlp.jsonl`: OTLP/JSON, a line per request to `/v1/logs`; an event `gen_ai.evaluation.result` per score
  (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events/).
- `langfuse.jsonl`: a line per score, the body of `POST /api/public/scores` and the arguments of `create_score`.
- `phoenix.json`: the body of `POST /v1/span_annotations`, whose `data` is what `log_span_annotations` takes.
- `mlflow.jsonl`: a line per assessment, as `Assessment.from_dictionary` reads it. MLflow keeps a trace of OpenTelemetry as `tr-` and its id.

The trace of a case is its id, its span the `span` of its `meta`, as the options that read traces map them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.version import __version__
from ragpipe.data.expressions import BadExpression
from ragpipe.extras.traces.attribute_spans import identifier
from ragpipe.report.styled_text import plural
from ragpipe.runs.manifest import checked_manifest, scored_iterations
from ragpipe.store.files import json_bytes, open_unless_same
from ragpipe.store.run_folder import RunFolder, make_folder
from ragpipe.store.run_tables import batches, read_json, schema_of

_TITLE = "the scores were not written"
_REQUEST = 500  # events in one request: collectors take 4 MiB
_CASE = ("sample_id", "method", "repeat", "iteration", "meta")
_PARTS = ("", ".status", ".reason", ".passed")


@dataclass(frozen=True, slots=True)
class TracedScore:
    """A score of a case: its trace, the span of its root (None where the data set does not say), and what was judged.

    `value` is in the native scale, None where the judging failed with `error`. `passed` is None without a threshold.
    """

    trace: str
    span: str | None
    name: str
    value: float | None
    passed: bool | None
    reason: str
    error: str | None
    facts: dict[str, Any]

    @property
    def label(self) -> str | None:
        return None if self.passed is None else "pass" if self.passed else "fail"

    @property
    def identity(self) -> str:
        """The same for the same score of the same run, so that a second import replaces the first."""
        facts = self.facts
        case = [self.trace, self.name, facts["method"], facts["repeat"], facts["run_id"], facts["iteration"]]
        return str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(case)))


@dataclass(frozen=True)
class _Run:
    """What the files say of the run: its id, when it ended, its judge, and whether that is a language model."""

    run_id: str
    ended_ns: int
    judge: str
    is_model: bool


def _export(
    name: str, write: Callable[[_Run, Iterator[TracedScore]], Iterator[bytes]],
    linked: Callable[[TracedScore], bool],
    output_dir: Path, run: RunFolder | None, target: Path,
) -> Iterator[str]:  # fmt: skip
    """Write one file of scores into `target`; yields its path and what is not in it. Raises ConfigError, DataError, OutputError."""
    if run is None:
        problem = Problem("command line", "run", "not set", "the run whose scores are written", "run=NAME")
        raise ConfigError(_TITLE, [problem])
    numbers = scored_iterations(run, or_error=_TITLE)
    about = _about(run, numbers[-1])
    scores = list(_scores(run, numbers[-1], about.run_id))
    kept = [score for score in scores if linked(score)]
    make_folder(target)
    path = target / name
    with open_unless_same(path) as file:
        for line in write(about, iter(kept)):
            file.write(line)
    yield str(path)
    if left := len(scores) - len(kept):
        yield f"{plural(left, 'score')} of {len(scores)} not written: {_MISSING[name]}"


def _about(run: RunFolder, iteration: int) -> _Run:
    manifest, metrics = checked_manifest(run), read_json(run.iteration(iteration).metrics)
    ended = datetime.fromisoformat(str(manifest.get("ended_at") or manifest.get("created_at")))
    used = read_json(run.iteration(iteration).cost)["used"]
    judge = str(metrics["judge"]["label"]) if used["uses"] else "no judge"
    is_model = used["calls"] > used["calls_computed"]
    return _Run(str(manifest["run_id"]), int(ended.timestamp()) * 1_000_000_000, judge, is_model)


def _scores(run: RunFolder, iteration: int, run_id: str) -> Iterator[TracedScore]:
    """The scores of an iteration that have a value or failed, with the overall score."""
    path = run.iteration(iteration).records
    present = schema_of(path).names
    names = [name.removesuffix(".status") for name in present if name.endswith(".status")]
    columns = [*_CASE, *(n + part for n in names for part in _PARTS), "overall_score", "overall_passed"]
    for batch in batches(path, [column for column in columns if column in present]):
        for row in batch.to_pylist():
            facts = {"method": row["method"], "repeat": row["repeat"], "iteration": row["iteration"], "run_id": run_id}
            span = (json.loads(row["meta"] or "{}") or {}).get("span")
            case = partial(TracedScore, row["sample_id"], span if isinstance(span, str) else None, facts=facts)
            for name in names:
                value, status, reason, passed = (row.get(name + part) for part in _PARTS)
                if status in ("ok", "error"):
                    error = (reason or "error") if status == "error" else None
                    yield case(name=name, value=value, passed=passed, reason=reason or "", error=error)
            if (overall := row.get("overall_score")) is not None:
                yield case(name="overall_score", value=overall, passed=row["overall_passed"], reason="", error=None)


def _otlp(run: _Run, scores: Iterator[TracedScore]) -> Iterator[bytes]:
    resource = {"attributes": _attributes({"service.name": "ragpipe", "service.version": __version__})}
    while some := list(islice(scores, _REQUEST)):
        scope = {"scope": {"name": "ragpipe", "version": __version__}, "logRecords": [_event(run, score) for score in some]}
        yield json_bytes({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}) + b"\n"


def _event(run: _Run, score: TracedScore) -> dict[str, Any]:
    """A log record with the name of an event; ids are hex, as OTLP/JSON has them."""
    attributes = {
        "gen_ai.evaluation.name": score.name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": score.reason or None,
        "error.type": score.error and "evaluation_failed",
        "ragpipe.judge": run.judge,
        **{f"ragpipe.{name}": value for name, value in score.facts.items()},
    }
    time = str(run.ended_ns)
    record = {
        "timeUnixNano": time, "observedTimeUnixNano": time, "severityNumber": 9, "eventName": "gen_ai.evaluation.result",
        "traceId": _hex(score.trace, 32), "attributes": _attributes(attributes),
    }  # fmt: skip
    return record | ({"spanId": span} if (span := _hex(score.span, 16)) else {})


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    """A value as OTLP/JSON has it: whole numbers are texts there."""
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}


def _hex(text: str | None, digits: int) -> str | None:
    """An id of OpenTelemetry in so many hex digits; None for an id of another kind. A UUID loses its strokes."""
    try:
        plain = identifier(text.replace("-", "") if text and text.count("-") == 4 else text)
    except BadExpression:
        return None
    return plain if plain and len(plain) == digits else None


def _langfuse(run: _Run, scores: Iterator[TracedScore]) -> Iterator[bytes]:
    for score in scores:
        body = {
            "id": score.identity, "traceId": score.trace, "name": score.name, "value": score.value, "dataType": "NUMERIC",
            "comment": score.reason or None, "metadata": {**score.facts, "judge": run.judge, "label": score.label},
        }  # fmt: skip
        yield json_bytes(body) + b"\n"


def _phoenix(run: _Run, scores: Iterator[TracedScore]) -> Iterator[bytes]:
    data = [
        {
            "span_id": _hex(score.span, 16), "name": score.name, "annotator_kind": "LLM" if run.is_model else "CODE",
            "result": {"label": score.label, "score": score.value, "explanation": score.reason or None},
            "metadata": {**score.facts, "judge": run.judge}, "identifier": score.identity,
        }
        for score in scores
    ]  # fmt: skip
    yield json_bytes({"data": data}) + b"\n"


def _mlflow(run: _Run, scores: Iterator[TracedScore]) -> Iterator[bytes]:
    at = datetime.fromtimestamp(run.ended_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    for score in scores:
        feedback: dict[str, Any] = {"value": score.value}
        if score.error:
            feedback["error"] = {"error_code": "evaluation_failed", "error_message": score.error}
        body = {
            "assessment_name": score.name, "trace_id": f"tr-{trace}" if (trace := _hex(score.trace, 32)) else score.trace,
            "span_id": score.span,
            "source": {"source_type": "LLM_JUDGE" if run.is_model else "CODE", "source_id": run.judge},
            "create_time": at, "last_update_time": at, "feedback": feedback, "rationale": score.reason or None,
            "metadata": {name: str(value) for name, value in score.facts.items()},
        }  # fmt: skip
        yield json_bytes(body) + b"\n"


_MISSING = {
    "otlp.jsonl": "the data set does not say the trace id of their cases",
    "langfuse.jsonl": "they failed, and have no value",
    "phoenix.json": "the data set does not say the span of their cases",
}
export_otlp = partial(_export, "otlp.jsonl", _otlp, lambda score: _hex(score.trace, 32) is not None)
export_langfuse = partial(_export, "langfuse.jsonl", _langfuse, lambda score: score.value is not None)
export_phoenix = partial(_export, "phoenix.json", _phoenix, lambda score: _hex(score.span, 16) is not None)
export_mlflow = partial(_export, "mlflow.jsonl", _mlflow, lambda score: True)
