"""The fields of samples and outputs that a profile describes: each as a name, a kind and a value, or None where it is absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ragpipe.schema.sample import Expected, Output, Sample


class FieldValue(NamedTuple):
    """A field of a case.

    `kind` is text (described by its characters), number, label (texts and booleans, described by the most frequent) or list
    (described by the number of entries). `value` is that value, of a list the number of its entries; None where it is absent.
    `each` are values that stand together in one place (the texts of all contexts): then `value` is None.
    """

    name: str
    kind: str
    value: Any
    each: tuple[Any, ...] | None = None


_LABELS = ("recency_conflict_rule", "answerable", "category", "subcategory", "difficulty", "question_type", "vault")
_LISTS = ("relevant_docs", "relevant_chunks", "gains", "anchors", "required_support_groups")


def sample_fields(sample: Sample) -> Iterator[FieldValue]:
    """The fields of a sample; those of `expected` and `meta` by their own names."""
    yield FieldValue("question", "text", sample.question)
    yield _entries("history", sample.history or None)
    yield _entries("references", sample.references or None)
    yield FieldValue("references[]", "text", None, tuple(sample.references))
    for name in _LISTS:
        yield _entries(name, getattr(sample, name))
    if sample.gains:
        yield FieldValue("gains[]", "number", None, tuple(sample.gains.values()))
    for name in _LABELS:
        yield FieldValue(name, "label", getattr(sample, name))
    for name in Expected.model_fields:
        value = getattr(sample.expected, name) if sample.expected else None
        yield _any(f"expected.{name}", value)
    yield _entries("tags", sample.tags or None)
    yield FieldValue("tags[]", "label", None, tuple(sample.tags))
    for name, value in sample.meta.items():
        yield _any(f"meta.{name}", value)


def output_fields(output: Output) -> Iterator[FieldValue]:
    """The fields of an output; those of `timings`, `usage` and `recorded` by their own names."""
    yield FieldValue("answer", "text", output.answer)
    if output.retrieves:
        yield from _chunk_fields(output)
    yield _entries("citations", output.citations)
    for name in ("version", "abstained", "folder_mode", "error"):
        yield FieldValue(name, "label", getattr(output, name))
    yield _entries("selected_folders", output.selected_folders)
    for part in ("timings", "usage"):
        for name, number in getattr(output, part).items():
            yield FieldValue(f"{part}.{name}", "number", number)
    for name, value in output.recorded.items():
        yield from _recorded(f"recorded.{name}", value)


def _chunk_fields(output: Output) -> Iterator[FieldValue]:
    """What the contexts of an output are; their policies and types only where some have one."""
    chunks = output.chunks
    yield _entries("contexts", chunks)
    if not chunks:
        return
    yield FieldValue("contexts[].text", "text", None, tuple(chunk.text for chunk in chunks if chunk.text))
    scores = tuple(chunk.score for chunk in chunks if chunk.score is not None)
    if scores:
        yield FieldValue("contexts[].score", "number", None, scores)
    types = tuple(chunk.doc_type for chunk in chunks if chunk.doc_type)
    if types:
        yield FieldValue("contexts[].doc_type", "label", None, types)
    policies = tuple(chunk.policy for chunk in chunks if chunk.policy != "summarize")
    if policies:
        yield FieldValue("contexts[].policy", "label", None, policies)


def _recorded(name: str, value: Any) -> Iterator[FieldValue]:
    """A recorded value; of several verdicts by name each under its own name, a verdict that cannot be read as a label."""
    if isinstance(value, Mapping) and set(value) != {"unreadable"}:
        for part, verdict in value.items():
            yield from _recorded(f"{name}.{part}", verdict)
    elif isinstance(value, Mapping):
        yield FieldValue(f"{name} (unreadable)", "label", True)
    elif isinstance(value, list):
        yield _entries(name, value)
    else:
        yield _any(name, value)


def _entries(name: str, value: Any) -> FieldValue:
    return FieldValue(name, "list", None if value is None else len(value))


def _any(name: str, value: Any) -> FieldValue:
    """A field of any type by its value."""
    if isinstance(value, list | Mapping):
        return _entries(name, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return FieldValue(name, "number", value)
    return FieldValue(name, "label", value)
