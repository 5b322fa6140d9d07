"""Cases of a run as the HTML page shows them: texts with highlights, scores with reasons, and the questions to the judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ragpipe.reports.highlight import Quotes, TextPart, highlight
from ragpipe.reports.lowest_cases import select_cases
from ragpipe.reports.score_details import (
    MARKS,
    ContradictedClaim,
    DetailBlock,
    contradicted_claims,
    detail_blocks,
    evidence_quotes,
    unsupported_claims,
)
from ragpipe.schema.reference_answers import distinct_references
from ragpipe.schema.sample import CaseKey
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import rows_at, rows_of_cases, run_file_error

TEXT_MAX = 8000  # characters of one text; the tables have it whole
QUOTES_MAX = 1000  # quotes of one case that are looked for in its contexts
ITEMS_MAX = 50  # contexts, questions to the judge, and contradicted claims of one score, of one case


@dataclass(frozen=True)
class ScoreView:
    """One score of a case. `value` is in the native scale, `score` 0..1; either may be None."""

    name: str
    value: float | None
    score: float | None
    passed: bool | None
    status: str | None
    reason: str
    contradicted: list[ContradictedClaim] = field(default_factory=list)
    blocks: list[DetailBlock] = field(default_factory=list)


@dataclass(frozen=True)
class CaseView:
    """A case of the page. `row` is its place in the data (from 0); `sampled` cases were drawn, the others are the lowest."""

    row: int
    sampled: bool
    sample_id: str
    method: str
    repeat: int
    question: str
    answer: list[TextPart]
    record: Mapping[str, Any]
    labels: list[tuple[str, str]]
    references: list[str]
    history: list[Mapping[str, str]]
    contexts: list[Mapping[str, Any]]
    scores: list[ScoreView]
    calls: list[Mapping[str, Any]]
    overall: float | None
    passed: bool | None
    failed_by: list[str]
    modes: list[str]
    diagnosis: list[str]
    left_out: list[str]

    @property
    def marks(self) -> list[tuple[str, str]]:
        """The kinds of marks in its answer and its contexts, each with what it means."""
        texts = [self.answer, *(context["text"] for context in self.contexts)]
        kinds = {part.mark for text in texts for part in text}
        return [(mark, meaning) for mark, meaning in MARKS.items() if mark in kinds]


def read_cases(run: RunFolder, iteration: IterationFolder, names: Sequence[str], count: int) -> list[CaseView]:
    """At most `count` cases of an iteration: the worst ones first, then a sample of the others (`select_cases`).

    `names` are its scores in their order. Memory is bounded by what is shown. Raises DataError.
    """
    worst, sampled = select_cases(iteration.records, count)
    records = rows_at(iteration.records, [*worst, *sampled])
    outputs = rows_at(run.outputs, records, ("sample_row", "chunks"))
    if missing := records.keys() - outputs.keys():
        raise run_file_error(run.outputs, f"no row {min(missing)}", "a row for each of records.parquet")
    samples = rows_at(run.samples, {row["sample_row"] for row in outputs.values()})
    cases = [CaseKey.of(row) for row in records.values()]
    scores = rows_of_cases(iteration.scores, cases, (*CaseKey._fields, "score_name", "details"))
    calls = rows_of_cases(iteration.judge_inputs, cases, (*CaseKey._fields, *_CALL, *_CALL_CONTENT))
    views = []
    for row in (*worst, *sampled):
        record, output = records[row], outputs[row]
        case, sample = CaseKey.of(record), samples.get(output["sample_row"], {})
        rows = _CaseRows(record, output, sample, scores[case], calls[case])
        views.append(_case_view(row, rows, names, sampled=row in sampled))
    return views


@dataclass(frozen=True)
class _CaseRows:
    """The rows of one case in every table of the run."""

    record: Mapping[str, Any]
    output: Mapping[str, Any]
    sample: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]
    calls: Sequence[Mapping[str, Any]]


def _case_view(row: int, rows: _CaseRows, names: Sequence[str], *, sampled: bool) -> CaseView:
    record, sample = rows.record, rows.sample
    details = {score["score_name"]: parse_json_cell(score["details"], dict) for score in rows.scores}
    quotes = Quotes(evidence_quotes(*details.values())[:QUOTES_MAX])
    claims = Quotes(unsupported_claims(*details.values())[:QUOTES_MAX])
    chunks, history = parse_json_cell(rows.output["chunks"], list), parse_json_cell(sample.get("history"), list)
    scores = (_score_view(name, record, details.get(name, {})) for name in names if f"{name}.status" in record)
    return CaseView(
        row=row,
        sampled=sampled,
        sample_id=record["sample_id"],
        method=record["method"],
        repeat=record["repeat"],
        question=shorten_for_page(record["question"] or ""),
        answer=_highlighted(record["answer"] or "", claims),
        record=record,
        labels=list(_labels(record, sample)),
        references=[shorten_for_page(text) for text in distinct_references(sample.get("references") or ())],
        history=[{key: shorten_for_page(str(value)) for key, value in turn.items()} for turn in history],
        contexts=[_context(chunk, quotes) for chunk in chunks[:ITEMS_MAX]],
        scores=sorted(scores, key=_urgency),
        calls=_calls(rows.calls[:ITEMS_MAX]),
        overall=record["overall_score"],
        passed=record["overall_passed"],
        failed_by=_texts(record, "failed_by"),
        modes=_texts(record, "failure_modes"),
        diagnosis=_texts(record, "diagnosis"),
        left_out=list(_left_out(contexts=len(chunks), questions=len(rows.calls))),
    )


def _texts(record: Mapping[str, Any], column: str) -> list[str]:
    """A list column of a record; empty for a null and for a run without the column."""
    return list(record.get(column) or ())


def _left_out(**counts: int) -> Iterator[str]:
    return (f"{n - ITEMS_MAX} more {what}" for what, n in counts.items() if n > ITEMS_MAX)


def _score_view(name: str, record: Mapping[str, Any], details: Mapping[str, Any]) -> ScoreView:
    get = record.get
    return ScoreView(
        name,
        record[name],
        get(f"{name}.score"),
        get(f"{name}.passed"),
        get(f"{name}.status"),
        shorten_for_page(get(f"{name}.reason") or ""),
        list(islice(contradicted_claims(details), ITEMS_MAX)),
        detail_blocks(details),
    )


def _urgency(score: ScoreView) -> int:
    """Sort key: failed scores first, then those that could not be judged."""
    return 0 if score.passed is False else 1 if score.status == "error" else 2


_LABELS = ("category", "subcategory", "difficulty", "question_type", "vault", "answerable", "abstained", "system_error")


def _labels(record: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Labels of the data set and the system, in a few words each."""
    for name in _LABELS:
        if (value := record.get(name)) is not None:
            yield name, str(value).lower() if isinstance(value, bool) else shorten_for_page(str(value))
    for name, values in (("tags", record.get("tags")), ("relevant", _relevant(sample))):
        if values:
            yield name, ", ".join(map(str, values[:ITEMS_MAX]))


def _relevant(sample: Mapping[str, Any]) -> list[str]:
    return [*(sample.get("relevant_docs") or ()), *(sample.get("relevant_chunks") or ())]


def _context(chunk: Any, evidence: Quotes) -> dict[str, Any]:
    chunk = chunk if isinstance(chunk, dict) else {"text": str(chunk)}
    places = [str(chunk[key]) for key in ("id", "doc_id", "rel_path") if chunk.get(key)]
    return {
        "rank": chunk.get("rank"),
        "score": chunk.get("score"),
        "policy": chunk.get("policy"),
        "places": list(dict.fromkeys(places)),
        "text": _highlighted(str(chunk.get("text") or ""), evidence),
    }


_CALL = ("metric", "step", "turn", "judge", "template", "template_version", "status", "message", "finish_reason", "key")
_CALL_CONTENT = ("flags", "messages", "reply", "tokens_in", "tokens_out", "output_mode")


def _calls(calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The questions to the judge. A message of an earlier question of the case is referred to, not repeated."""
    views, first_number = list[Mapping[str, Any]](), dict[str, int]()
    for number, call in enumerate(calls, 1):
        messages = []
        for message in parse_json_cell(call["messages"], list):
            if isinstance(message, dict):
                content = _content(message.get("content"))
                earlier = first_number.setdefault(content, number)
                text = shorten_for_page(content) if earlier == number else f"(the same as in question {earlier})"
                messages.append((str(message.get("role", "")), text))
        views.append(
            {name: call[name] for name in _CALL}
            | {
                "flags": list(call["flags"] or ()),
                "messages": messages,
                "reply": shorten_for_page(reply_text(call)),
                "tokens_in": call["tokens_in"],
                "tokens_out": call["tokens_out"],
                "computed": call["output_mode"] in ("computed", "local"),
            }
        )
    return views


def reply_text(call: Mapping[str, Any]) -> str:
    """The reply of a row of `judge_inputs` for reading: the text itself, or the length of a vector."""
    reply = call["reply"] or ""
    if call["step"] != "embed" or call["template"] is not None or call["status"] != "ok":
        return str(reply)
    return f"a vector of {len(reply.rstrip('=')) * 3 // 16:,} numbers; its float32 bytes are in judge_inputs.parquet"


def _content(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def parse_json_cell(text: str | None, kind: type[Any]) -> Any:
    """A cell of JSON text; an empty `kind` for a null and for what is no such JSON."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, kind) else kind()


def shorten_for_page(text: str, limit: int = TEXT_MAX) -> str:
    """The text, at most about `limit` characters of it, with a note of how many are left out."""
    return text[:limit] + _cut_note(text, limit)


def _highlighted(text: str, quotes: Quotes) -> list[TextPart]:
    """The text as `shorten_for_page` leaves it, with its quotes highlighted."""
    note = _cut_note(text, TEXT_MAX)
    return [*highlight(text, quotes, TEXT_MAX), *([TextPart(note)] if note else [])]


def _cut_note(text: str, limit: int) -> str:
    return f" … ({len(text) - limit:,} more characters in the tables)" if len(text) > limit else ""
