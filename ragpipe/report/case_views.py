"""Cases of a run as the HTML page shows them: texts with highlights, scores with reasons, and the questions to the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.sample import OUTPUT_KEY, distinct_references
from ragpipe.core.text import MatchableText, on_one_line, quote_pieces
from ragpipe.report.styled_text import plural
from ragpipe.score.chunk_support import CARRIED, ChunkSupport, chunk_support
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import columns_at, count_rows, run_file_error, schema_of
from ragpipe.store.table_rows import CaseOrderedRows, PlacedRows, rows_in_order

_ITEMS_SHOWN = 60  # items of one list, and rows of one table
_QUOTE_KEYS = ("evidence", "quote", "span")  # keys under which metrics keep quotes from a context
MARKS = {
    "contradicts": "contradicts a claim",
    "supports": "supports a claim",
    "quoted": "quoted by a judge",
    "contradicted": "a contradicted claim",
    "unsupported": "a claim without support",
}
"""What is marked in contexts (the first three) and answers, each with its meaning; where marks overlap the first one counts."""
_MARK_ORDER = {mark: place for place, mark in enumerate(MARKS)}
_as_json = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder each time


@dataclass(frozen=True)
class Passage:
    """A quote of a judge, and in words where it occurs."""

    quote: str
    place: str

    def __str__(self) -> str:
        return f'"{self.quote}": {self.place}'


@dataclass(frozen=True)
class ContradictedClaim:
    """A claim of which the judge says that the contexts contradict it, with the passages that it quotes for that."""

    claim: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class DetailBlock:
    """One part of the details: a table (`heads` and `rows`), or a list of `items`. `more` is how many are left out."""

    name: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    items: tuple[str, ...] = ()
    more: int = 0


def detail_blocks(details: Mapping[str, Any]) -> list[DetailBlock]:
    """A table per list of objects, a list per other list, and last one table of all single values. Empty values are left
    out."""
    blocks, single = [], []
    for name, value in details.items():
        if isinstance(value, list) and value:
            blocks.append(_table(name, value) if all(isinstance(item, dict) for item in value) else _list(name, value))
        elif value not in (None, {}, []):
            single.append((name, value if isinstance(value, bool) else _text(value)))
    return [*blocks, DetailBlock("", ("", ""), tuple(single))] if single else blocks


def evidence_quotes(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The quotes behind the verdicts of some scores (`found_in` their details), each with what its passage does: `contradicts`,
    `supports`, or `quoted` for neither and for a judge that does not tell. They are in the order of `MARKS`."""
    quotes: list[tuple[str, str]] = []
    for item in found:
        texts = [passage["quote"] for passage in _quoted(item.get("evidence"))]
        if "places" not in item:  # else it is a quote of the object around it
            values = (item[key] for key in _QUOTE_KEYS if key in item)
            listed = (text for value in values for text in (value if isinstance(value, list) else [value]))
            texts += [text for text in listed if isinstance(text, str) and text.strip()]
        quotes += [(text, passage_mark(item)) for text in texts]
    return sorted(quotes, key=lambda quote: _MARK_ORDER[quote[1]])


def unsupported_claims(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The claims that nothing supports, by some scores, each with its mark: `contradicted` ones first, then `unsupported`."""
    claims = {item["claim"]: "contradicted" for item in found if _is_contradicted(item)}
    for item in found:
        texts = [item.get("claim")] if item.get("supported") is False else []
        listed = item.get("unsupported_claims")
        for text in texts + (listed if isinstance(listed, list) else []):
            if isinstance(text, str):
                claims.setdefault(text, "unsupported")
    return list(claims.items())


def contradicted_claims(found: Iterable[Mapping[str, Any]]) -> Iterator[ContradictedClaim]:
    """The claims that the contexts contradict, in order; none from a judge that does not tell them from the others."""
    for item in found:
        if _is_contradicted(item):
            yield ContradictedClaim(item["claim"], tuple(passages_of(item.get("evidence"))))


def _is_contradicted(item: Mapping[str, Any]) -> bool:
    return item.get("verdict") == "contradicted" and isinstance(item.get("claim"), str)


def passages_of(evidence: Any) -> list[Passage]:
    """The quotes of a claim that were looked up in the contexts; none of any other value."""
    return [Passage(item["quote"], place_words(item.get("places"))) for item in _quoted(evidence)]


def _quoted(evidence: Any) -> list[Mapping[str, Any]]:
    if not isinstance(evidence, list):
        return []
    return [item for item in evidence if isinstance(item, dict) and isinstance(item.get("quote"), str)]


def place_words(places: Any) -> str:
    """Where a quote occurs: `context 2 (chunk c7), characters 10 to 45 and 60 to 72`, or `no context word for word`."""
    stretches: dict[str, list[str]] = {}
    for place in places if isinstance(places, list) else ():
        if isinstance(place, dict):
            name = f"context {place.get('rank')} (chunk {place.get('chunk')})"
            stretches.setdefault(name, []).append(f"{place.get('start')} to {place.get('end')}")
    contexts = (f"{name}, characters {' and '.join(parts)}" for name, parts in stretches.items())
    return "; ".join(contexts) or "no context word for word"


def passage_mark(item: Mapping[str, Any]) -> str:
    """What the passages of a finding do: `contradicts`, `supports`, or `quoted` where the judge says neither."""
    if item.get("verdict") == "contradicted":
        return "contradicts"
    return "supports" if item.get("supported") is True else "quoted"


def found_in(details: Any) -> list[Mapping[str, Any]]:
    """Every object in the details of a score down to five levels, outer ones first."""
    found: list[Mapping[str, Any]] = []
    level: list[Any] = [details]
    for _ in range(5):
        parts: list[Iterable[Any]] = []
        for item in level:
            if isinstance(item, dict):
                found.append(item)
                parts.append(item.values())
            else:
                parts.append(item)
        level = [child for part in parts for child in part if isinstance(child, dict | list)]
    return found


def support_lines(support: ChunkSupport, ranks: Sequence[Any]) -> Iterator[str]:
    """`YES from context 1 on: 2 of 4 claims with context 1, 4 with 3`, as a chain of questions over the contexts would go, and which
    contexts carry nothing. `ranks` are those of the contexts."""
    total = len(support.claims)
    steps = [f"{n} with {ranks[place]}" for place, n in support.chain[1:]]
    for place, n in support.chain[:1]:
        yield ", ".join([f"YES from context {ranks[place]} on: {n} of {total} claims with context {ranks[place]}", *steps])
    if not support.chain:
        yield f"NO to the end: no context carries any of {plural(total, 'claim')}"
    used = set(support.used)
    if unused := [str(rank) for place, rank in enumerate(ranks) if place not in used]:
        yield f"carry nothing: {len(unused)} of {len(ranks)} contexts ({', '.join(unused)})"


def _support_blocks(details: Mapping[str, Any], chunks: Sequence[Any]) -> list[DetailBlock]:
    """Claims down and contexts that carry one across; below it `support_lines`. Empty for a score without claims and quotes."""
    if "claims" not in details:
        return []
    listed = [chunk if isinstance(chunk, dict) else {} for chunk in chunks]
    support = chunk_support(details, [(chunk.get("id"), chunk.get("rank")) for chunk in listed])
    if support is None or not support.n_chunks:
        return []
    ranks = [chunk.get("rank") for chunk in listed]
    used, claims = support.used, support.claims[:_ITEMS_SHOWN]
    rows = tuple(
        (on_one_line(claim.claim), CARRIED[claim.how], *("●" if place in claim.chunks else "" for place in used))
        for claim in claims
    )
    heads = ("claim", "carried by", *(f"context {ranks[place]}" for place in used))
    table = DetailBlock("which context carries which claim", heads, rows, more=len(support.claims) - len(claims))
    return [table, DetailBlock("", items=tuple(support_lines(support, ranks)))]


def _list(name: str, items: Sequence[Any]) -> DetailBlock:
    return DetailBlock(name, items=tuple(map(_text, items[:_ITEMS_SHOWN])), more=max(0, len(items) - _ITEMS_SHOWN))


def _table(name: str, items: Sequence[Mapping[str, Any]]) -> DetailBlock:
    heads = tuple(dict.fromkeys(key for item in items for key in item))
    rows = tuple(
        tuple(v if isinstance(v := item.get(head), bool) else _text(v) for head in heads) for item in items[:_ITEMS_SHOWN]
    )
    return DetailBlock(name, heads, rows, more=max(0, len(items) - _ITEMS_SHOWN))


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if type(value) is int:
        return str(value)
    if passages := passages_of(value):
        return "\n".join(map(str, passages))
    return _as_json(value)


@dataclass(frozen=True)
class TextPart:
    """A piece of a text. `mark` is None for what is not highlighted, else the kind of the quote."""

    text: str
    mark: str | None = None


class Quotes:
    """Quotes that are looked for in many texts: their pieces (`quote_pieces`), made once, each with a kind."""

    def __init__(self, quotes: Iterable[tuple[str, str]]):
        self.kinds: dict[tuple[str, ...], str] = {}
        for quote, kind in quotes:  # a quote that is there already would cover nothing that is not covered
            self.kinds.setdefault(tuple(quote_pieces(quote)), kind)


def highlight(text: str, quotes: Quotes, limit: int | None = None) -> list[TextPart]:
    """The first `limit` characters of a text in pieces; those that a quote covers carry its kind.

    Where two quotes overlap, the earlier one wins. Quotes are looked for in the whole text, in the way in which metrics
    look for them (`core.text.occurs`): what a metric accepts as a quote is highlighted here.
    """
    length = len(text) if limit is None else min(limit, len(text))
    matchable = MatchableText(text) if quotes.kinds else None
    covers = (
        [(kind, span) for pieces, kind in quotes.kinds.items() for span in matchable.find_pieces(pieces)] if matchable else []
    )
    if not covers:
        return [TextPart(text[:length])] if length else []
    kinds = ["", *dict.fromkeys(kind for kind, _ in covers)]
    covered = np.zeros(length, np.int64)
    for kind, (start, end) in reversed(covers):  # the earlier ones last, over the later ones
        covered[start:end] = kinds.index(kind)
    cuts = [0, *(np.flatnonzero(np.diff(covered)) + 1).tolist(), length] if length else []
    return [TextPart(text[start:end], kinds[covered[start]] or None) for start, end in pairwise(cuts)]


TEXT_MAX = 8000  # characters of one text; the tables have it whole
QUOTES_MAX = 1000  # quotes of one case that are looked for in its contexts
BLOCK = 512  # cases in memory at once
ITEMS_MAX = 50  # contexts, questions to the judge, and contradicted claims of one score, of one case


@dataclass(frozen=True)
class ScoreView:
    """What is to be read of one score of a case; its value and verdict are in the page's list."""

    name: str
    reason: str
    contradicted: list[ContradictedClaim] = field(default_factory=list)
    support: list[DetailBlock] = field(default_factory=list)
    blocks: list[DetailBlock] = field(default_factory=list)


@dataclass(frozen=True)
class CaseView:
    """A case of the page in full. `scores` are those with something to read."""

    sample_id: str
    method: str
    repeat: int
    question: str
    answer: list[TextPart] | None
    error: str | None
    labels: list[tuple[str, str]]
    references: list[str]
    history: list[Mapping[str, str]]
    contexts: list[Mapping[str, Any]]
    scores: list[ScoreView]
    calls: list[Mapping[str, Any]]
    modes: list[str]
    diagnosis: list[str]
    left_out: list[str]

    @property
    def marks(self) -> list[str]:
        """The kinds of marks in its answer and its contexts."""
        texts = [self.answer or [], *(context["text"] for context in self.contexts)]
        kinds = {part.mark for text in texts for part in text}
        return [mark for mark in MARKS if mark in kinds]


def case_views(
    run: RunFolder,
    iteration: IterationFolder,
    names: Sequence[str],
    with_prompts: Callable[[int], bool] = lambda place: True,
    places: NDArray[np.int64] | None = None,
) -> Iterator[CaseView]:
    """Cases of an iteration in the order of `records.parquet`, `BLOCK` of them in memory at once. Raises DataError.

    `names` are its scores in their order; `with_prompts` says whether a case, by its number among those that are viewed, has the
    prompts and replies of its questions to the judge, and not only what was asked; `places` are those of the cases in the table,
    rising, None for all.
    """
    known = schema_of(iteration.records).names
    columns = [*_RECORD, *(f"{name}.{part}" for name in names for part in ("reason", "status", "passed"))]
    total = count_rows(iteration.records)
    places = np.arange(total) if places is None else places
    among = None
    if len(places) < total:
        keys = columns_at(iteration.records, places, OUTPUT_KEY)
        among = frozenset(zip(*(keys[name].to_pylist() for name in OUTPUT_KEY), strict=True))
    records = rows_in_order(iteration.records, [name for name in columns if name in known], places)
    outputs = rows_in_order(run.outputs, ("sample_row", "chunks"), places)
    number = 0
    with (
        PlacedRows(run.samples) as samples,
        CaseOrderedRows(iteration.scores, ("score_name", "details"), among=among) as score_rows,
        CaseOrderedRows(iteration.judge_inputs, _CALL, _CALL_CONTENT, among=among) as call_rows,
    ):
        while block := list(islice(records, BLOCK)):
            cases = [tuple(record[name] for name in OUTPUT_KEY) for record in block]
            asked = {case for viewed, case in enumerate(cases, number) if with_prompts(viewed)}
            scores, calls = score_rows.take(cases), call_rows.take(cases, asked)
            for record, case in zip(block, cases, strict=True):
                output = next(outputs, None)
                if output is None:
                    raise run_file_error(run.outputs, f"no row {places[number]}", "a row for each of records.parquet")
                sample = samples.get(output["sample_row"]) or {}
                yield _case_view(record, output["chunks"], sample, scores[case], calls[case], names)
                number += 1
        score_rows.check_end()
        call_rows.check_end()


def _case_view(
    record: Mapping[str, Any],
    retrieved: Any,
    sample: Mapping[str, Any],
    scores: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> CaseView:
    cells = ((score["score_name"], parse_json_cell(score["details"], dict)) for score in scores)
    details = {name: values for name, values in cells if values}
    found = {name: found_in(values) for name, values in details.items()}
    of_all = [item for items in found.values() for item in items]
    quotes, claims = Quotes(evidence_quotes(of_all)[:QUOTES_MAX]), Quotes(unsupported_claims(of_all)[:QUOTES_MAX])
    history = parse_json_cell(sample.get("history"), list)
    chunks = retrieved if isinstance(retrieved, list) else []  # a stranger's table may hold anything
    counts = {"contexts": len(chunks), "questions": len(calls)}
    return CaseView(
        sample_id=record["sample_id"],
        method=record["method"],
        repeat=record["repeat"],
        question=shorten_for_page(record["question"] or ""),
        answer=None if record["answer"] is None else _highlighted(record["answer"], claims),
        error=record["system_error"],
        labels=list(_labels(record, sample)),
        references=[shorten_for_page(text) for text in distinct_references(sample.get("references") or ())],
        history=[
            {key: shorten_for_page(str(turn.get(key, ""))) for key in ("role", "text")}
            for turn in history
            if isinstance(turn, dict)
        ],
        contexts=[_context(chunk, quotes) for chunk in chunks[:ITEMS_MAX]],
        scores=_score_views(record, details, found, names, chunks),
        calls=_calls(calls[:ITEMS_MAX]),
        modes=list(record.get("failure_modes") or ()),
        diagnosis=list(record.get("diagnosis") or ()),
        left_out=[f"{n - ITEMS_MAX} more {what}" for what, n in counts.items() if n > ITEMS_MAX],
    )


def _score_views(
    record: Mapping[str, Any],
    details: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    names: Sequence[str],
    chunks: Sequence[Any],
) -> list[ScoreView]:
    """The scores that have a reason or details: failed ones first, then those that could not be judged."""

    def urgency(name: str) -> int:
        return 0 if record.get(f"{name}.passed") is False else 1 if record[f"{name}.status"] == "error" else 2

    told = (name for name in names if details.get(name) or record.get(f"{name}.reason"))
    views = []
    for name in sorted((name for name in told if f"{name}.status" in record), key=urgency):
        own, reason = details.get(name, {}), shorten_for_page(record.get(f"{name}.reason") or "")
        contradicted = list(islice(contradicted_claims(found.get(name, ())), ITEMS_MAX))
        views.append(ScoreView(name, reason, contradicted, _support_blocks(own, chunks), detail_blocks(own)))
    return views


_LABELS = ("category", "subcategory", "difficulty", "question_type", "vault", "answerable", "abstained")
_RECORD = (*OUTPUT_KEY, "question", "answer", "system_error", "failure_modes", "diagnosis", "tags", "flag_reasons", *_LABELS)


def _labels(record: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Labels of the data set and the system, in a few words each."""
    for name in _LABELS:
        if (value := record.get(name)) is not None:
            yield name, str(value).lower() if isinstance(value, bool) else shorten_for_page(str(value))
    relevant = [*(sample.get("relevant_docs") or ()), *(sample.get("relevant_chunks") or ())]
    for name, values in (("tags", record.get("tags")), ("relevant", relevant), ("flags", record.get("flag_reasons"))):
        if values:
            yield name, ", ".join(map(str, values[:ITEMS_MAX]))


def _context(chunk: Any, evidence: Quotes) -> dict[str, Any]:
    chunk = chunk if isinstance(chunk, dict) else {"text": str(chunk)}
    places = [str(chunk[key]) for key in ("id", "doc_id", "rel_path") if chunk.get(key)]
    return {
        "rank": chunk.get("rank"),
        "score": chunk.get("score"),
        "policy": chunk.get("policy"),
        "id": str(chunk.get("id") or ""),
        "places": list(dict.fromkeys(places)),
        "text": _highlighted(str(chunk.get("text") or ""), evidence),
    }


_CALL = (
    "metric", "step", "turn", "judge", "template", "template_version", "status", "message", "tokens_in", "tokens_out", "output_mode"
)  # fmt: skip
_CALL_CONTENT = ("key", "flags", "messages", "reply")


def _calls(calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The questions to the judge."""
    views, first_number = list[Mapping[str, Any]](), dict[str, int]()
    for number, call in enumerate(calls, 1):
        messages = []
        for message in parse_json_cell(call.get("messages"), list):
            if isinstance(message, dict):
                content = message.get("content")
                content = content if isinstance(content, str) else _as_json(content)
                earlier = first_number.setdefault(content, number)
                text = shorten_for_page(content) if earlier == number else f"(the same as in question {earlier})"
                messages.append((str(message.get("role", "")), text))
        view = {name: call[name] for name in _CALL} | {"computed": call["output_mode"] in ("computed", "local")}
        if "messages" in call:
            view |= {"key": call["key"], "flags": list(call["flags"] or ()), "messages": messages}
            view["reply"] = shorten_for_page(reply_text(call))
        views.append(view)
    return views


def reply_text(call: Mapping[str, Any]) -> str:
    """The reply of a row of `judge_inputs` for reading: the text itself, or the length of a vector."""
    reply = call["reply"] or ""
    if call["step"] != "embed" or call["template"] is not None or call["status"] != "ok":
        return str(reply)
    return f"a vector of {len(reply.rstrip('=')) * 3 // 16:,} numbers; its float32 bytes are in judge_inputs.parquet"


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
    if not text:
        return []
    note = _cut_note(text, TEXT_MAX)
    return [*highlight(text, quotes, TEXT_MAX), *([TextPart(note)] if note else [])]


def _cut_note(text: str, limit: int) -> str:
    return f" … ({len(text) - limit:,} more characters in the tables)" if len(text) > limit else ""
