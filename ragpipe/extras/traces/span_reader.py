"""`format: spans`: any known span export as one record per trace (`trace_record.py` says under which names).

Read are, by their content: OTLP as JSON and as JSON Lines (also where a trace is cut over lines), the console exporter of
OpenTelemetry (objects one after another), Phoenix's spans (REST, and its data frame as CSV, JSON or Parquet), Langfuse's traces
and observations, LangSmith's and LangChain's runs, MLflow's traces and tables, TruLens' events. A row that holds a whole trace
becomes a record at once; other spans are held in memory until the file ends, at most `MAX_SPANS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragpipe.datasets import csv_rows, json_rows, parquet_rows
from ragpipe.datasets.expression_functions import BadExpression
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.text_lines import DataFile
from ragpipe.extras.traces import flat_spans, langfuse_traces, mlflow_traces, otlp_spans, traced_runs
from ragpipe.extras.traces.span import Span, Trace
from ragpipe.extras.traces.trace_record import trace_record

MAX_SPANS = 250_000
_UNREADABLE = (BadExpression, AttributeError, TypeError, KeyError, ValueError, ArithmeticError, OSError)
"""What a reader raises for values of other types than its tool writes."""
_KNOWN = "a span of OTLP, OpenInference, Phoenix, Langfuse, LangSmith, LangChain, MLflow or TruLens"


def read_spans(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line or row of its first span, record) per trace, those in whole rows first, then in the order of their first spans."""
    gathered: dict[str, tuple[int, Trace]] = {}
    count = 0
    for position, row in _rows(file, faults):
        try:
            trace, spans = _spans_of(row)
        except _UNREADABLE as error:
            faults.add(file.at(position), "span", _reason(error), _KNOWN)
            continue
        if trace is not None and not _is_part(row):
            yield from _record(position, trace, file, faults)
            continue
        for span in spans:
            count += 1
            gathered.setdefault(span.trace_id, (position, Trace(span.trace_id, [])))[1].spans.append(span)
        if trace is not None:
            gathered[trace.trace_id][1].facts = trace.facts
        if count > MAX_SPANS:
            faults.add(file.at(position), "spans", f"more than {MAX_SPANS} spans", f"at most {MAX_SPANS} in a file")
            return
    for position, trace in gathered.values():
        yield from _record(position, trace, file, faults)


def _record(position: int, trace: Trace, file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        record = trace_record(trace)
    except _UNREADABLE as error:
        faults.add(file.at(position), f"trace {trace.trace_id[:40]!r}", _reason(error), "values of the usual types")
        return
    yield position, record


def _reason(error: Exception) -> str:
    """What to say of a row that cannot be read. Its names are those of a span, so that a wrong type is all that is left."""
    text = " ".join(str(error).split())[:150]
    return text if isinstance(error, BadExpression) else f"a value of a type that no span has ({text})"


def _rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file of any format; pages (`{data: [...]}`) and lists are opened."""
    suffix = file.path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        rows: Iterator[tuple[int, dict[str, Any]]] = parquet_rows.read_parquet_rows(file, faults)
    elif suffix in (".csv", ".tsv"):
        rows = iter(csv_rows.read_csv_rows(file, faults, repeated_columns=True))
    elif _first_sign(file) == "[":
        rows = json_rows.read_json_rows(file, faults)
    else:
        rows = json_rows.read_json_objects(file, faults)
    for position, row in rows:
        if isinstance(row.get("data"), list) and "meta" in row:
            yield from ((position, item) for item in row["data"] if isinstance(item, dict))
        else:
            yield position, row


def _first_sign(file: DataFile) -> str:
    with open(file.path, "rb") as stream:
        return stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1].decode("ascii", "replace")


def _spans_of(row: dict[str, Any]) -> tuple[Trace | None, list[Span]]:
    """The trace of a row, and its spans. Raises BadExpression for a row of another kind."""
    if otlp_spans.is_otlp(row):
        return None, list(otlp_spans.otlp_spans(row))
    if mlflow_traces.is_mlflow_trace(row):
        return mlflow_traces.mlflow_trace(row), []
    if langfuse_traces.is_langfuse_trace(row):
        return langfuse_traces.langfuse_trace(row), []
    if traced_runs.is_run(row):
        return traced_runs.run_trace(row), list(traced_runs.run_spans(row))
    if flat_spans.is_flat_span(row):
        return None, [flat_spans.flat_span(row)]
    if langfuse_traces.is_observation(row):
        return None, [langfuse_traces.observation_span(row)]
    raise BadExpression(f"a row with the names {', '.join(list(row)[:8])}")


def _is_part(row: dict[str, Any]) -> bool:
    """Whether a root stands in the row without its steps, which are rows of their own."""
    return "run_type" in row and not row.get("child_runs")
