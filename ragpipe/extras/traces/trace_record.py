"""The record of a trace: one set of names, whatever tool wrote its spans.

| name | value |
|---|---|
| `trace_id`, `name`, `status`, `error` | of the trace; `error` is null unless its root failed, or a step did and there is no output |
| `input`, `output` | of the root; a text that is a JSON object or list is that value |
| `start`, `duration_ms` | ISO 8601 in UTC; milliseconds |
| `metadata`, `tags`, `session`, `user`, `version` | as the tool has them |
| `attributes` | of the root span, under the names of the file; vectors of embeddings are left out |
| `spans` | all steps in the order of their start: `span_id, parent_id, name, kind, input, output, status, error, start, duration_ms, attributes` |
| `retrievals` | `name, query, documents, duration_ms, error`; a document is `{id, text, score, metadata}` |
| `rerankings` | the same, and `input_documents` |
| `llms` | `name, model, input, text, usage, duration_ms, error` |
| `documents` | what the model saw: of the last reranker, else of all retrievers in their order; null where a step does not say |
| `lacks` | in words, what the trace does not record of that |
| `usage`, `timings` | token counts and the price; milliseconds by stage (`retrieval`, `rerank`, `generation`, `total`) |
| `scores` | `name, value, source, comment`; a value that is no number is `{unreadable: text}` |
| `expectations` | what the tool holds as wanted, by name |

`retrievals`, `rerankings` and `llms` are null where the trace has no such step; steps inside an evaluator are left out of them.
Tokens are added over the outermost model calls that count them; where none does, the root's count. A trace without a root span
(an export that was cut) has null for what the root would say. Where the root is a step of another layer, a web server's, and has
neither input nor output, those of the outermost steps below it that have some count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ragpipe.datasets.expression_functions import json_or_text, verdict
from ragpipe.extras.traces.attribute_spans import metadata_of
from ragpipe.extras.traces.span import EVALUATOR, LLM, RERANKER, RETRIEVER, SPAN, Span, Trace
from ragpipe.extras.traces.span_values import are_documents, documents

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
        "retrievals": [_search(span) for span in steps[RETRIEVER]] or None,
        "rerankings": [{**_search(span), "input_documents": span.input_documents} for span in steps[RERANKER]] or None,
        "llms": [_answer(span) for span in steps[LLM]] or None,
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
        by_id = {span.span_id: span for span in spans}
        self.spans = sorted(by_id.values(), key=lambda span: (span.start_ms is None, span.start_ms or 0))
        self._by_id = by_id
        self._read_generic_documents()
        self.root = self._root()

    def outermost(self, kind: str) -> list[Span]:
        """The spans of a kind that lie below no span of the same kind and below no evaluator."""
        return [
            span
            for span in self.spans
            if span.kind == kind and not any(above.kind in (kind, EVALUATOR) for above in self._above(span))
        ]

    def found(self, span: Span) -> list[dict[str, Any]] | None:
        """The documents of a step, or of the steps of its kind right below it that it wraps; None where they are not recorded."""
        if span.documents is not None:
            return span.documents
        inner = [below for below in self.spans if below.kind == span.kind and span in self._above(below)]
        inner = [below for below in inner if below.documents is not None]
        return [item for below in inner for item in below.documents or ()] if inner else None

    def said(self) -> tuple[Span | None, Span | None]:
        """The spans whose input is the trace's, and whose output."""
        root = self.root
        if root is None or root.input is not None or root.output is not None:
            return root, root
        below = [
            span
            for span in self.spans
            if span.kind not in _NO_ANSWER and span.input is not None and span.output is not None
        ]
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
        if len(orphans) == 1 and orphans[0].kind not in _NOT_A_ROOT:
            return orphans[0]
        return None

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
        durations = [span.duration_ms for span in steps[kind] if span.duration_ms is not None]
        if durations:
            timings[stage] = round(sum(durations), 3)
    return timings if total is None else {**timings, "total": total}


def _evaluations(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The scores that evaluators inside the trace gave: their output's `score`."""
    scores = []
    for span in spans:
        output = json_or_text(span.output)
        if span.kind == EVALUATOR and isinstance(output, dict) and "score" in output:
            value = verdict(output["score"])
            comment = output.get("explanation") or output.get("label")
            scores.append({"name": span.name, "value": value, "source": "span", "comment": comment})
    return scores


def _step(span: Span) -> dict[str, Any]:
    return {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "input": span.input,
        "output": span.output,
        "status": span.status,
        "error": span.error,
        "start": _iso(span.start_ms),
        "duration_ms": span.duration_ms,
        "attributes": span.attributes,
    }


def _search(span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "query": span.query,
        "documents": span.documents,
        "duration_ms": span.duration_ms,
        "error": span.error,
    }


def _answer(span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "model": span.model,
        "input": span.input,
        "text": span.text,
        "usage": span.usage,
        "duration_ms": span.duration_ms,
        "error": span.error,
    }


def _iso(milliseconds: float | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
