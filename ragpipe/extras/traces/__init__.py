"""Spans and traces as cases: exports of OpenTelemetry, OpenInference, Phoenix, Langfuse, MLflow, LangSmith and TruLens."""

from __future__ import annotations

ENTRIES = {
    "reader": {"spans": "ragpipe.extras.traces.span_reader:read_spans"},
    "shapes": {"traces": "ragpipe.extras.traces.trace_shapes:TRACE_SHAPES"},
}
