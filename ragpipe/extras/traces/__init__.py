"""Traces as cases, from OpenTelemetry, OpenInference, Phoenix, Langfuse, MLflow, LangSmith and TruLens; and scores back to them."""

from __future__ import annotations

ENTRIES = {
    "reader": {"spans": "ragpipe.extras.traces.span_reader:read_spans"},
    "export": {name: f"ragpipe.extras.traces.score_files:export_{name}" for name in ("otlp", "langfuse", "phoenix", "mlflow")},
    "shapes": {"traces": "ragpipe.extras.traces.trace_shapes:TRACE_SHAPES"},
}
