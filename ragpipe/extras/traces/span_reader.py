"""`format: spans`: any known span export as one record per trace (`trace_record.py` says under which names).

Read are, by their content: OTLP as JSON and as JSON Lines (also where a trace is cut over lines), the console exporter of
OpenTelemetry (objects one after another), Phoenix's spans (REST, and its data frame as CSV, JSON or Parquet), Langfuse's traces
and observations, LangSmith's and LangChain's runs, MLflow's traces and tables, TruLens' events. A row that holds a whole trace
becomes a record at once; other spans are held in memory until the file ends, at most `MAX_SPANS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from ragpipe.data import csv_rows, json_rows, parquet_rows
from ragpipe.data.expressions import BadExpression, json_or_text, verdict
from ragpipe.data.faults import Faults
from ragpipe.data.text_lines import DataFile
from ragpipe.extras.traces import attribute_spans, tool_traces
from ragpipe.extras.traces.attribute_spans import metadata_of
from ragpipe.extras.traces.span import EVALUATOR, LLM, RERANKER, RETRIEVER, SPAN, Span, Trace, are_documents, documents

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
    if attribute_spans.is_otlp(row):
        return None, list(attribute_spans.otlp_spans(row))
    if tool_traces.is_mlflow_trace(row):
        return tool_traces.mlflow_trace(row), []
    if tool_traces.is_langfuse_trace(row):
        return tool_traces.langfuse_trace(row), []
    if tool_traces.is_run(row):
        return tool_traces.run_trace(row), list(tool_traces.run_spans(row))
    if attribute_spans.is_flat_span(row):
        return None, [attribute_spans.flat_span(row)]
    if tool_traces.is_observation(row):
        return None, [tool_traces.observation_span(row)]
    raise BadExpression(f"a row with the names {', '.join(list(row)[:8])}")


def _is_part(row: dict[str, Any]) -> bool:
    """Whether a root stands in the row without its steps, which are rows of their own."""
    return "run_type" in row and not row.get("child_runs")


_STAGES = {RETRIEVER: "retrieval", RERANKER: "rerank", LLM: "generation"}
_FIGURES = {"cost_usd", "start_ms", "duration_ms"}
_NOT_A_ROOT = {EVALUATOR, RETRIEVER, RERANKER, "embedding"}
_NO_ANSWER = _NOT_A_ROOT | {"tool", "guardrail"}


def trace_record(trace: Trace) -> dict[str, Any]:
    """The record of a trace."""
    tree = _Tree(trace.spans)
    root = tree.root
    first, last = tree.said()
    steps = {kind: tree.outermost(kind) for kind in (RETRIEVER, RERANKER, LLM)}
    usage = _usage(steps[LLM], root)
    duration = trace.facts.get("duration_ms") or (root.duration_ms if root else None)
    start = trace.facts.get("start_ms") or (root.start_ms if root else None)
    if trace.facts.get("cost_usd") is not None:
        usage["cost_usd"] = float(trace.facts["cost_usd"])
    record: dict[str, Any] = {
        "trace_id": trace.trace_id,
        "span_id": root.span_id if root else None,
        "name": root.name if root else None,
        "input": first.input if first else None,
        "output": last.output if last else None,
        "status": root.status if root else None,
        "error": _error(root, trace.spans),
        **_labels(root.attributes if root else {}),
        "version": None,
        "attributes": root.attributes if root else {},
        "scores": [],
        "expectations": {},
    }
    record |= {name: value for name, value in trace.facts.items() if value is not None and name not in _FIGURES}
    record["scores"] = [*record["scores"], *_evaluations(trace.spans)]
    shown = steps[RERANKER][-1:] or steps[RETRIEVER]
    silent = [span for span in shown if tree.found(span) is None and not span.error]
    record |= {
        "documents": [item for span in shown for item in tree.found(span) or ()] if shown and not silent else None,
        "lacks": _lacks(shown, silent, tree),
        "start": _iso(start),
        "duration_ms": duration,
        "spans": [_step(span) for span in tree.spans],
        "retrievals": [_named(span, _SEARCH) for span in steps[RETRIEVER]] or None,
        "rerankings": [{**_named(span, _SEARCH), "input_documents": span.input_documents} for span in steps[RERANKER]] or None,
        "llms": [_named(span, _ANSWER) for span in steps[LLM]] or None,
        "usage": usage,
        "timings": _timings(steps, duration),
    }
    return record


def _lacks(shown: list[Span], silent: list[Span], tree: _Tree) -> list[str]:
    """What is not recorded of the documents that the model saw."""
    if silent:
        names = ", ".join(dict.fromkeys(span.name or span.kind for span in silent))
        return [f"the step {names} records no documents (is its content captured?)"]
    if any(item["text"] is None for span in shown for item in tree.found(span) or ()):
        return ["documents are recorded by their ids, without their texts"]
    return []


def _labels(attributes: dict[str, Any]) -> dict[str, Any]:
    """Metadata, tags, session and user by the names of OpenInference."""
    tags = attributes.get("tag.tags")
    return {
        "metadata": metadata_of(attributes),
        "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "session": attributes.get("session.id"),
        "user": attributes.get("user.id"),
    }


class _Tree:
    """The spans of a trace in the order of their start. A span that is given twice counts once."""

    def __init__(self, spans: Iterable[Span]):
        self._by_id = {span.span_id: span for span in spans}
        self.spans = sorted(self._by_id.values(), key=lambda span: (span.start_ms is None, span.start_ms or 0))
        self._read_generic_documents()
        self.root = self._root()

    def outermost(self, kind: str) -> list[Span]:
        """The spans of a kind that lie below no span of the same kind and below no evaluator."""
        spans = [span for span in self.spans if span.kind == kind]
        return [span for span in spans if not any(above.kind in (kind, EVALUATOR) for above in self._above(span))]

    def found(self, span: Span) -> list[dict[str, Any]] | None:
        """The documents of a step, or of the steps of its kind right below it that it wraps; None where they are not recorded."""
        if span.documents is not None:
            return span.documents
        below = [step for step in self.spans if step.kind == span.kind and span in self._above(step)]
        inner = [step.documents for step in below if step.documents is not None]
        return [item for passages in inner for item in passages] if inner else None

    def said(self) -> tuple[Span | None, Span | None]:
        """The spans whose input is the trace's, and whose output."""
        root = self.root
        if root is None or root.input is not None or root.output is not None:
            return root, root
        speaking = [span for span in self.spans if span.input is not None and span.output is not None]
        below = [span for span in speaking if span.kind not in _NO_ANSWER]
        tops = [span for span in below if not any(above in below for above in self._above(span))]
        return (tops[0], tops[-1]) if tops else (root, root)

    def _above(self, span: Span) -> list[Span]:
        """The spans above, from the parent to the root."""
        path: list[Span] = []
        seen = {span.span_id}
        while (parent := self._by_id.get(span.parent_id or "")) is not None and parent.span_id not in seen:
            seen.add(parent.span_id)
            path.append(parent)
            span = parent
        return path

    def _root(self) -> Span | None:
        """The span without a parent; where there is none, the only one whose parent is elsewhere, if it can be a root."""
        tops = [span for span in self.spans if span.parent_id is None]
        if tops:
            return next((span for span in tops if span.kind not in _NOT_A_ROOT), tops[0])
        orphans = [span for span in self.spans if span.parent_id not in self._by_id]
        return orphans[0] if len(orphans) == 1 and orphans[0].kind not in _NOT_A_ROOT else None

    def _read_generic_documents(self) -> None:
        """A step that does not say what it is and gives documents is a retriever, unless one below it is."""
        parents = Counter(above.span_id for span in self.spans if span.kind == RETRIEVER for above in self._above(span))
        for span in reversed(self.spans):
            if span.kind == SPAN and are_documents(span.output) and not parents[span.span_id]:
                span.kind, span.documents = RETRIEVER, documents(span.output)
                parents.update(above.span_id for above in self._above(span))


def _error(root: Span | None, spans: Iterable[Span]) -> str | None:
    """The root's error, in the words of the step that it comes from; a step's where the root has no output."""
    errors = [span.error for span in spans if span.error and span is not root]
    if root is not None and root.error:
        return next((error for error in errors if root.error in error), root.error)
    if root is not None and root.output is None:
        return next(iter(errors), None)
    return None


def _usage(models: list[Span], root: Span | None) -> dict[str, float]:
    total: dict[str, float] = {}
    for span in models:
        for name, count in span.usage.items():
            total[name] = total.get(name, 0.0) + count
    for name, count in (root.usage if root else {}).items():
        total.setdefault(name, count)
    return total


def _timings(steps: dict[str, list[Span]], total: float | None) -> dict[str, float]:
    timings = {}
    for kind, stage in _STAGES.items():
        if durations := [span.duration_ms for span in steps[kind] if span.duration_ms is not None]:
            timings[stage] = round(sum(durations), 3)
    return timings if total is None else {**timings, "total": total}


def _evaluations(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The scores that evaluators inside the trace gave: their output's `score`."""
    scores = []
    for span in spans:
        output = json_or_text(span.output)
        if span.kind == EVALUATOR and isinstance(output, dict) and "score" in output:
            comment = output.get("explanation") or output.get("label")
            scores.append({"name": span.name, "value": verdict(output["score"]), "source": "span", "comment": comment})
    return scores


_STEP = ("span_id", "parent_id", "name", "kind", "input", "output", "status", "error")
_SEARCH = ("name", "query", "documents", "duration_ms", "error")
_ANSWER = ("name", "model", "input", "text", "usage", "duration_ms", "error")
"""What a record says of each step, of each search and of each answer of a model."""


def _named(span: Span, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(span, name) for name in names}


def _step(span: Span) -> dict[str, Any]:
    return {**_named(span, _STEP), "start": _iso(span.start_ms), **_named(span, ("duration_ms", "attributes"))}


def _iso(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
