"""The native form: a record whose names are the fields of Sample and Output; every mapping ends here too.

    {"id": "q1", "question": "...", "reference": "...", "method": "a", "answer": "...", "contexts": ["...", "..."]}
    {"id": "q2", "question": "...", "outputs": [{"method": "a", "answer": "..."}, {"method": "b", "answer": "..."}]}
    {"id": "q3", "question": "only a question"}

`reference` is short for `references` of one, `contexts` for `chunks`. No `answer` or no `contexts`, or null in its place,
says that it is not recorded; `""` and `[]` say that nothing was answered or retrieved. A chunk's `rank` is its position, its `id` is
`c<rank>`, unless given. A context that is an object is a chunk when it has `text` and no name that a chunk has not;
otherwise the object is the text. A text that is an object is written as `name: value` lines in the order of
`dataset.chunk_text`, else as canonical JSON.

A record without `id` gets the hash of what it asks: `content_id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.sample import Chunk, Output, Sample
from ragpipe.core.text import shorten
from ragpipe.core.text_forms import is_blank
from ragpipe.data.faults import Faults, named_fields, shown_value
from ragpipe.data.settings import OUTPUT_FIELDS, SAMPLE_FIELDS

Flat = dict[str, Any]
M = TypeVar("M", bound=BaseModel)

_CHUNK_FIELDS = frozenset(Chunk.model_fields)
_TOP_FIELDS = SAMPLE_FIELDS | OUTPUT_FIELDS | {"outputs"}
_DEFAULTS: dict[str, Any] = {
    name: value
    for name, field in Output.model_fields.items()
    if not field.is_required() and (value := field.get_default(call_default_factory=True)) is not None
}
_NEAR = 0.75  # `anwser` is 0.83 like `answer`; `retrieved_contexts` and `retrieves`, 0.67, mean different things
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TEXT_SHOWN = 60  # characters of a context in a fix
_TO_NUMBER = "number(...)"
_TEXT_FOR = {
    "float_type": _TO_NUMBER,
    "int_type": _TO_NUMBER,
    "recorded": _TO_NUMBER,
    "bool_type": "map: {'true': true, 'false': false}",
    "list_type": "parse(...)",
    "dict_type": "parse(...)",
}
"""What makes the value of a pydantic error out of a text, by the type of the error."""


def split_record(record: Mapping[str, Any], where: str, faults: Faults) -> tuple[Flat, list[Flat]] | None:
    """The sample's fields and those of each output, None (and a fault) when names do not fit."""
    sample = {name: value for name, value in record.items() if name in SAMPLE_FIELDS}
    flat = {name: value for name, value in record.items() if name in OUTPUT_FIELDS}
    known = len(sample) + len(flat) + ("outputs" in record)
    if known != len(record):
        for name in record:
            if name not in _TOP_FIELDS:
                _unknown(name, named_fields(where, record), faults)
        return None
    if "outputs" not in record:
        return sample, [flat] if any(_says_something(value) for value in flat.values()) else []
    outputs = record["outputs"]
    if flat:
        names = ", ".join(sorted(flat))
        faults.add(named_fields(where, record), "outputs", f"`outputs` and {names} beside it", "one of the two forms")
        return None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        faults.add(named_fields(where, record), "outputs", shown_value(outputs), "a list of objects")
        return None
    return sample, outputs


def _says_something(value: Any) -> bool:
    """Whether a field of an output is there: null, and an object without any value, is not. An empty list is a finding."""
    return any(_says_something(part) for part in value.values()) if isinstance(value, dict) else value is not None


def sample_of(fields: Flat, where: str, faults: Faults) -> Sample | None:
    """The sample, None (and faults) when it is wrong. Without an id it gets that of its content."""
    place = named_fields(where, fields)
    if "reference" in fields:
        if "references" in fields:
            faults.add(place, "reference", "`reference` and `references`", "one of the two")
            return None
        fields = dict(fields)
        if (reference := fields.pop("reference")) is not None:
            fields["references"] = [reference]
    fields = {name: value for name, value in fields.items() if value is not None or name == "question"}
    if isinstance(gains := fields.get("gains"), dict):  # a struct of Parquet has the names of all rows
        fields["gains"] = {name: value for name, value in gains.items() if value is not None}
    if "id" not in fields:
        fields["id"] = content_id(fields)
    sample = _read(Sample, fields, place, "", faults)
    if sample is None or any([_blank(name, getattr(sample, name), place, faults) for name in ("id", "question")]):
        return None
    return sample


def flat_id(fields: Mapping[str, Any]) -> Any:
    """The id of a sample by its flat fields, before they are checked: the one that they hold, else that of the content."""
    if fields.get("id") is not None:
        return fields["id"]
    reference = fields.get("reference")
    return content_id({**fields, "references": [reference]} if reference is not None else fields)


def content_id(fields: Mapping[str, Any]) -> str:
    """`h` and the first 12 hex digits of the sha256 over question, history and references: what makes a sample another one.

    Labels are no part of it, and neither are the outputs, so that several methods on one question share its id.
    """
    return "h" + sha256([fields.get("question"), fields.get("history") or [], fields.get("references") or []])[:12]


def _blank(name: str, text: str, where: str, faults: Faults) -> bool:
    """Whether the text shows nothing; then it is a fault, as if it were missing."""
    if not is_blank(text):
        return False
    faults.add(where, name, f"a blank text ({text[:20]!a})", "a text", "give it, or leave the record out")
    return True


def output_of(fields: Flat, sample_id: str, order: Sequence[str] | None, where: str, faults: Faults) -> Output | None:
    """The output for a sample; None, and faults, where it is wrong. Chunks are put in the order of their ranks. `order` has the fields
    that the text of an object shows, in this order; None for the object as JSON."""
    where = named_fields(where, {"id": sample_id})
    name = "contexts" if "contexts" in fields else "chunks"
    if name == "contexts" and "chunks" in fields:
        faults.add(where, "contexts", "`contexts` and `chunks`", "one of the two")
        return None
    ready = {name: value for name, value in fields.items() if value is not None}
    for figures in ("timings", "usage"):
        if isinstance(ready.get(figures), dict):
            ready[figures] = {name: value for name, value in ready[figures].items() if value is not None}
    items = ready.pop(name, None)
    if items is not None:
        if not isinstance(items, list):
            faults.add(where, name, shown_value(items), "a list", _as_list(items))
            return None
        ready["chunks"] = [_chunk(item, rank, name == "contexts", order) for rank, item in enumerate(items, 1)]
    if "sample_id" in ready:
        _unknown("sample_id", where, faults)
        return None
    ready["sample_id"] = sample_id
    output = _read(Output, ready, where, name, faults)
    if output is None or _blank("method", output.method, where, faults):
        return None
    if output.chunks and not output.retrieves:
        actual = f"false, and {len(output.chunks)} chunks of method {output.method!r}"
        faults.add(where, "retrieves", actual, "no chunks where nothing is retrieved", "leave out one of the two")
        return None
    chunks = output.chunks or []
    ranks = [chunk.rank for chunk in chunks]
    if ranks != sorted(ranks):
        output = output.model_copy(update={"chunks": sorted(chunks, key=lambda chunk: chunk.rank)})
    return output


def as_filtered(fields: Flat, order: Sequence[str] | None) -> Flat:
    """The fields of a case as a filter sees them, before they are checked: with the defaults of an output, and a short form in its
    long one too (`reference` in `references`, `contexts` in `chunks`). An id that is absent stays so."""
    seen = _DEFAULTS | {name: value for name, value in fields.items() if value is not None or name not in _DEFAULTS}
    if seen.get("references") is None and seen.get("reference") is not None:
        seen["references"] = [seen["reference"]]
    if seen.get("chunks") is None and isinstance(contexts := seen.get("contexts"), list):
        seen["chunks"] = [_chunk(item, rank, True, order) for rank, item in enumerate(contexts, 1)]
    return seen


def _as_list(items: Any) -> str:
    """How to write as a list what stands where chunks are expected."""
    if isinstance(items, str) and items.lstrip()[:1] == "[":
        return "write the list itself, not its text; in a mapping: parse(...)"
    if isinstance(items, str) and items.strip():
        return f"write a list of texts: [{json.dumps(shorten(items, _TEXT_SHOWN), ensure_ascii=False)}]"
    if isinstance(items, dict):
        return "write a list, also around one object: [{...}]"
    return "write [] when nothing was retrieved"


def _chunk(item: Any, rank: int, context: bool, order: Sequence[str] | None) -> Any:
    if context and not (isinstance(item, dict) and "text" in item and item.keys() <= _CHUNK_FIELDS):
        item = {"text": item}
    if not isinstance(item, dict):
        return item
    chunk = {"rank": rank, **item}
    if chunk["rank"] is None:
        chunk["rank"] = rank
    if chunk.get("id") is None:
        chunk["id"] = f"c{chunk['rank']}"
    if isinstance(chunk.get("text"), dict):
        chunk["text"] = rendered(chunk["text"], order)
    return chunk


def rendered(text: Mapping[str, Any], order: Sequence[str] | None) -> str:
    """An object as the text of a chunk: `name: value` lines in the declared order (absent ones left out), else JSON."""
    if order is None:
        return canonical_json(text)
    lines = [(name, text[name]) for name in order if text.get(name) is not None]
    return "\n".join(f"{name}: {value if isinstance(value, str) else canonical_json(value)}" for name, value in lines)


def _read(noun: type[M], fields: Flat, where: str, chunks: str, faults: Faults) -> M | None:
    try:
        return noun.model_validate(fields)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            key = _key(fault["loc"], chunks)
            if fault["type"] == "extra_forbidden":
                _unknown(key, where, faults)
                continue
            actual, expected = shown_value(fault["input"]), fault["msg"].removeprefix("Input should be ")
            if fault["type"] == "missing":
                actual, expected = "it is absent", "a field of this name"
            faults.add(where, key, actual, expected, _fix(fault))
        return None


def _key(loc: Sequence[int | str], chunks: str) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    text = "".join(parts).removeprefix(".") or "record"
    return f"{chunks}{text.removeprefix('chunks')}" if chunks and text.startswith("chunks") else text


def _fix(fault: Mapping[str, Any]) -> str:
    kind, value = fault["type"], fault["input"]
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "write it in quotes; in a mapping: to_string(...)"
    if value is None and fault["loc"] == ("question",):
        return "correct its path; or leave records without a question out by dataset.filter=question"
    if kind == "string_type" and value is None:
        return 'write "" for an empty text; in a mapping: default'
    way = _TEXT_FOR.get(kind) if isinstance(value, str) else None
    if way and (way != _TO_NUMBER or _NUMBER.fullmatch(value.strip())):
        return f"as in CSV, where every cell is a text: in a mapping {way}"
    return ""


def _unknown(name: str, where: str, faults: Faults) -> None:
    own, inside = name.rpartition(".")[2], "." in name
    known = _CHUNK_FIELDS if inside else _TOP_FIELDS
    near = get_close_matches(own, sorted(known), 1, _NEAR)
    fix = "put labels of your own under `meta`, or map the record by dataset.fields"
    if not inside and (meant := field_meant(own)):
        fix = f"the native form calls it {meant!r}; a file of another tool is mapped by dataset.fields"
    elif near:
        fix = f"did you mean {near[0]!r}?"
    faults.add(where, name[:80], "a name that no sample, output or chunk has", "a known field", fix)


_SAME_MEANING = {
    "id": ("question_id", "query_id", "qid", "case_id", "sample_id", "example_id", "uid", "uuid", "_id"),
    "question": (
        "query", "user_input", "input", "prompt", "user_query", "user_question", "q", "questions", "user_prompt", "user_message", "query_text",
        "question_text", "customer_question", "search_query",
    ),
    "answer": (
        "response", "output", "actual_output", "generated_answer", "completion", "prediction", "result", "reply", "answer_text",
        "model_response", "bot_answer", "pred", "predicted", "predictions", "responses", "outputs", "completions", "generation", "generated_text",
        "hypothesis", "assistant",
    ),
    "contexts": (
        "context", "retrieved_contexts", "retrieval_context", "retrieved_context", "source_documents", "documents", "passages",
        "retrieved_documents", "retrieved_chunks", "chunks", "sources", "docs", "hits", "evidence", "retrieved", "ctxs", "snippets",
        "source_nodes", "search_results", "nodes", "retrievals", "paragraphs", "retriever_resources", "grounding_chunks",
    ),
    "reference": (
        "ground_truth", "expected_output", "expected_answer", "reference_answer", "gold_answer", "gt_answer", "ideal_answer",
        "gold", "expected", "correct_answer", "target", "reference_output", "answer_key", "label_answer", "long_answer",
    ),
    "references": ("ground_truths", "gold_answers", "reference_answers", "correct_answers", "targets", "answers", "possible_answers", "answer_aliases"),
    "method": ("system", "variant", "pipeline", "retriever", "model"),
    "recorded": ("scores", "grades", "feedback", "evaluation"),
    "timings": ("latency", "latency_ms", "duration", "duration_ms"),
}  # fmt: skip
_ANSWERS = {"answer", "response", "output", "reply", "completion", "prediction", "generation", "text", "message", "result"}
_SYSTEMS = re.compile(
    r"bot|chatbot|assistant|ai|llm|model|system|rag|agent|chatgpt|gpt\w*|claude\w*|gemini\w*|llama\w*|mistral\w*|generated|predicted|actual|final|our|student"
)
_RIGHT = re.compile(r"gold|golden|correct|expected|reference|ref|true|truth|ground|ideal|target|right|gt|human|standard")
_PASSAGES = re.compile(r"(?:retriev|search|rag|kb|knowledge|source|context|found|top)\w*")
_TEXTS = re.compile(r"(?:context|passage|chunk|snippet|document|doc|source|node|result|text|hit|content|paragraph)s?")
_NUMBERED = re.compile(
    r"(?:\w+_)?(?:context|passage|chunk|snippet|document|doc|source|hit|retrieved)_?(\d+)(?:_(?:text|content))?"
)


def _plain(name: str) -> str:
    """The name in small letters and digits: `actualOutput` and `actual_output` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> list[str]:
    """The words of a name: `KB snippets`, `kb_snippets` and `kbSnippets` have the same two."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


_MEANS = {_plain(name): field for field, names in _SAME_MEANING.items() for name in (field, *names)}


def field_meant(name: str) -> str | None:
    """The field of the native form that a name means in other tools, or is itself; None where it is not known."""
    if meant := _MEANS.get(_plain(name)):
        return meant
    words = _words(name)
    if len(words) < 2:
        return None
    before, last = words[:-1], words[-1]
    if last.removesuffix("s") in _ANSWERS and any(_RIGHT.fullmatch(word) for word in before):
        return "references" if last.endswith("s") else "reference"
    if last.removesuffix("s") in _ANSWERS and any(_SYSTEMS.fullmatch(word) for word in before):
        return "answer"
    is_of_search = any(map(_PASSAGES.fullmatch, before)) and not {"gold", "reference", "relevant"} & set(before)
    return "contexts" if _TEXTS.fullmatch(last) and is_of_search else None


def passage_number(name: str) -> int | None:
    """The place that a column has among those of one passage each: 2 of `context_2`; None for any other name."""
    match = _NUMBERED.fullmatch("_".join(_words(name)))
    return int(match[1]) if match else None
