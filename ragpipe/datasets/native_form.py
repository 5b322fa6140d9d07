"""The native form: a record whose names are the fields of Sample and Output; every mapping ends here too.

    {"id": "q1", "question": "...", "reference": "...", "method": "a", "answer": "...", "contexts": ["...", "..."]}
    {"id": "q2", "question": "...", "outputs": [{"method": "a", "answer": "..."}, {"method": "b", "answer": "..."}]}
    {"id": "q3", "question": "only a question"}

`reference` is short for `references` of one, `contexts` for `chunks`. No `answer` or no `contexts`, or null in its place,
says that it is not recorded; `""` and `[]` say that nothing was answered or retrieved. A chunk's `rank` is its position, its `id` is
`c<rank>`, unless given. A context that is an object is a chunk when it has `text` and no name that a chunk has not;
otherwise the object is the text. A text that is an object is written as `name: value` lines in the order of
`dataset.chunk_text`, else as canonical JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ragpipe.core.digest import canonical_json
from ragpipe.datasets.fault_list import Faults, named_fields, shown_value
from ragpipe.datasets.settings import OUTPUT_FIELDS, SAMPLE_FIELDS
from ragpipe.schema.blank import is_blank
from ragpipe.schema.sample import Chunk, Output, Sample

Flat = dict[str, Any]
M = TypeVar("M", bound=BaseModel)

_CHUNK_FIELDS = frozenset(Chunk.model_fields)


def split_record(record: Mapping[str, Any], where: str, faults: Faults) -> tuple[Flat, list[Flat]] | None:
    """The sample's fields and those of each output, None (and a fault) when names do not fit."""
    sample = {name: value for name, value in record.items() if name in SAMPLE_FIELDS}
    flat = {name: value for name, value in record.items() if name in OUTPUT_FIELDS}
    known = len(sample) + len(flat) + ("outputs" in record)
    if known != len(record):
        for name in record.keys() - SAMPLE_FIELDS - OUTPUT_FIELDS - {"outputs"}:
            _unknown(name, named_fields(where, record), faults)
        return None
    if "outputs" not in record:
        return sample, [flat] if any(value is not None for value in flat.values()) else []
    outputs = record["outputs"]
    if flat:
        names = ", ".join(sorted(flat))
        faults.add(named_fields(where, record), "outputs", f"`outputs` and {names} beside it", "one of the two forms")
        return None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        faults.add(named_fields(where, record), "outputs", shown_value(outputs), "a list of objects")
        return None
    return sample, outputs


def sample_of(fields: Flat, where: str, faults: Faults) -> Sample | None:
    """The sample, None (and faults) when it is wrong."""
    place = named_fields(where, fields)
    if "reference" in fields:
        if "references" in fields:
            faults.add(place, "reference", "`reference` and `references`", "one of the two")
            return None
        fields = dict(fields)
        if (reference := fields.pop("reference")) is not None:
            fields["references"] = [reference]
    sample = _read(Sample, fields, place, "", faults)
    if sample is not None:
        blank = [name for name in ("id", "question") if _blank(name, getattr(sample, name), place, faults)]
        if blank:
            return None
    return sample


def _blank(name: str, text: str, where: str, faults: Faults) -> bool:
    """Whether the text shows nothing; then it is a fault, as if it were missing."""
    if not is_blank(text):
        return False
    faults.add(where, name, f"a blank text ({text[:20]!a})", "a text", "give it, or leave the record out")
    return True


def output_of(fields: Flat, sample_id: str, order: Sequence[str] | None, where: str, faults: Faults) -> Output | None:
    """The output for a sample; None, and faults, where it is wrong. Chunks are put in the order of their ranks.

    Args:
        fields: the fields of the record that describe the output.
        sample_id: the id of its sample.
        order: the fields that the text of an object shows, in this order; None for the object as JSON.
        where: file and line of the record.
        faults: where faults are added.
    """
    where = named_fields(where, {"id": sample_id})
    name = "contexts" if "contexts" in fields else "chunks"
    if name == "contexts" and "chunks" in fields:
        faults.add(where, "contexts", "`contexts` and `chunks`", "one of the two")
        return None
    ready = dict(fields)
    items = ready.pop(name, None)
    if items is not None:
        if not isinstance(items, list):
            faults.add(where, name, shown_value(items), "a list", "write [] when nothing was retrieved")
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


def _chunk(item: Any, rank: int, context: bool, order: Sequence[str] | None) -> Any:
    if context and not (isinstance(item, dict) and "text" in item and item.keys() <= _CHUNK_FIELDS):
        item = {"text": item}
    if not isinstance(item, dict):
        return item
    chunk = dict(item)
    if chunk.get("rank") is None:
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
            actual = "it is absent" if fault["type"] == "missing" else shown_value(fault["input"])
            expected = fault["msg"].removeprefix("Input should be ")
            faults.add(
                where, key, actual, "a field of this name" if fault["type"] == "missing" else expected, _fix(fault)
            )
        return None


def _key(loc: Sequence[int | str], chunks: str) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    text = "".join(parts).removeprefix(".") or "record"
    return f"{chunks}{text.removeprefix('chunks')}" if chunks and text.startswith("chunks") else text


def _fix(fault: Mapping[str, Any]) -> str:
    if fault["type"] != "string_type":
        return ""
    if isinstance(fault["input"], bool | int | float):
        return "write it in quotes; in a mapping: to_string(...)"
    return 'write "" for an empty text; in a mapping: default' if fault["input"] is None else ""


def _unknown(name: str, where: str, faults: Faults) -> None:
    known = sorted(SAMPLE_FIELDS | OUTPUT_FIELDS | _CHUNK_FIELDS)
    near = get_close_matches(name.rpartition(".")[2], known, 1)
    fix = (
        f"did you mean {near[0]!r}?"
        if near
        else "put labels of your own under `meta`, or map the record by dataset.fields"
    )
    faults.add(where, name[:80], "a name that no sample, output or chunk has", "a known field", fix)
