"""What LangChain and LlamaIndex return, as the keys of an output. Told by the attributes that objects have: neither is imported.

| object | recognised by | becomes |
|---|---|---|
| LangChain `Document`, or its dict | `page_content`, `metadata` | a chunk |
| LlamaIndex `NodeWithScore` | `node`, `score` | a chunk, with its score |
| LlamaIndex node | `node_id`, `get_content` | a chunk |
| LangChain message (`AIMessage`) | `content`, `type`, `additional_kwargs` | answer, usage |
| LlamaIndex response | `response` or a generator of it, `source_nodes` | answer, chunks |
| a pair `(answer, documents)` | a tuple of a text and documents or nodes | answer, chunks |
| LangChain chain results | a mapping with `input` or `query` | answer, chunks |
| a mapping without `contexts` and `chunks` | documents or texts under `context`, `source_documents` or `documents` | answer, chunks |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

_CHAINS = (
    ({"input", "answer"}, {"input", "answer", "context", "chat_history"}, "answer", "context"),
    ({"query", "result"}, {"query", "result", "source_documents"}, "result", "source_documents"),
    ({"question", "answer"}, {"question", "answer", "source_documents", "chat_history"}, "answer", "source_documents"),
    ({"input", "output"}, {"input", "output", "chat_history", "intermediate_steps"}, "output", ""),
)
"""Of each chain: keys that tell it, keys that it may have, where its answer and its documents stand."""
_DOCUMENT_KEYS = ("context", "source_documents", "documents")
_ECHOES = frozenset({"input", "query", "question", "chat_history"})
"""What chains repeat of what they were asked."""
_CHUNK_PARTS = ("doc_id", "rel_path", "heading_path", "doc_type", "policy")


def fields_of_result(result: Any) -> Any:
    """The result of a callable with the keys of an output, where its form is known; anything else as it is."""
    if isinstance(result, str):
        return {"answer": result}
    if is_message(result):
        return {"answer": text_of_message(result), **_usage(result)}
    if hasattr(result, "source_nodes") and hasattr(result, "response"):
        return {"answer": _response_text(result.response), "chunks": documents_as_chunks(result.source_nodes or ())}
    if isinstance(result, list | tuple) and result and all(is_chunk(item) for item in result):
        return {"chunks": documents_as_chunks(result)}
    if _is_answer_with_chunks(result):
        return {"answer": result[0], "chunks": documents_as_chunks(result[1])}
    if not isinstance(result, Mapping):
        result = _as_mapping(result)
    return _mapping_fields(result) if isinstance(result, Mapping) else result


def _is_answer_with_chunks(result: Any) -> bool:
    """Whether it is a pair of a text and a list of documents or nodes."""
    if not isinstance(result, tuple) or len(result) != 2:
        return False
    answer, items = result
    return isinstance(answer, str) and isinstance(items, list | tuple) and bool(items) and all(map(is_chunk, items))


def is_message(value: Any) -> bool:
    """Whether it is a message of LangChain, or a piece of one."""
    return all(hasattr(value, name) for name in ("content", "type", "additional_kwargs"))


def text_of_message(message: Any) -> str:
    """The text of a message; of content in parts, their texts."""
    content = message.content
    if isinstance(content, str):
        return content
    parts = (part if isinstance(part, str) else part.get("text", "") for part in content)
    return "".join(str(part) for part in parts)


def is_chunk(value: Any) -> bool:
    """Whether it is a document or a node."""
    return _is_document(value) or _is_scored_node(value) or _is_node(value)


def documents_as_chunks(items: Sequence[Any]) -> list[Any]:
    """Documents and nodes as chunks in their order; anything else as it is."""
    return [_chunk(item) for item in items]


def _is_document(value: Any) -> bool:
    if isinstance(value, Mapping):
        return isinstance(value.get("page_content"), str)
    return hasattr(value, "page_content") and hasattr(value, "metadata")


def _is_scored_node(value: Any) -> bool:
    return hasattr(value, "node") and hasattr(value, "score")


def _is_node(value: Any) -> bool:
    return hasattr(value, "node_id") and hasattr(value, "get_content")


def _chunk(item: Any) -> Any:
    if _is_scored_node(item):
        chunk, score = _node_chunk(item.node), number_or_none(item.score)
        return chunk if score is None else {**chunk, "score": score}
    if _is_node(item):
        return _node_chunk(item)
    if not _is_document(item):
        return item
    parts = ("page_content", "metadata", "id")
    document = item if isinstance(item, Mapping) else {name: getattr(item, name, None) for name in parts}
    metadata = dict(document.get("metadata") or {})
    chunk = {"text": document["page_content"], **_from_metadata(metadata)}
    name = document.get("id") or metadata.get("id") or metadata.get("chunk_id")
    if name:
        chunk["id"] = str(name)
    score = number_or_none(metadata.get("score", metadata.get("relevance_score")))
    return chunk if score is None else {**chunk, "score": score}


def _node_chunk(node: Any) -> dict[str, Any]:
    chunk = {"id": str(node.node_id), "text": node.get_content(), **_from_metadata(dict(node.metadata or {}))}
    document = getattr(node, "ref_doc_id", None)
    if document and "doc_id" not in chunk:
        chunk["doc_id"] = str(document)
    return chunk


def _from_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a chunk that metadata name; `source`, `file_path` or `file_name` is the document where `doc_id` is not there."""
    parts = {name: str(metadata[name]) for name in _CHUNK_PARTS if metadata.get(name)}
    source = next((metadata[name] for name in ("source", "file_path", "file_name") if metadata.get(name)), None)
    return parts if source is None or "doc_id" in parts else {"doc_id": str(source), **parts}


def _response_text(response: Any) -> Any:
    if response is None or isinstance(response, str):
        return response
    return response.model_dump_json() if hasattr(response, "model_dump_json") else str(response)


def _usage(message: Any) -> dict[str, Any]:
    usage = getattr(message, "usage_metadata", None)
    return {"usage": dict(usage)} if usage else {}


def _as_mapping(result: Any) -> Any:
    """A pydantic model or a dataclass as a mapping; its documents stay objects."""
    if hasattr(type(result), "model_fields"):
        return {name: getattr(result, name) for name in type(result).model_fields if getattr(result, name) is not None}
    if is_dataclass(result) and not isinstance(result, type):
        return {name: getattr(result, name) for name in asdict(result) if getattr(result, name) is not None}
    return result


def _mapping_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(result)
    for telling, possible, answer, documents in _CHAINS:
        if telling <= fields.keys() <= possible:
            fields = {"answer": fields[answer], **({"contexts": fields[documents]} if documents in fields else {})}
            break
    else:
        fields = _with_documents(fields)
    if is_message(fields.get("answer")):
        message = fields["answer"]
        fields = {**_usage(message), **fields, "answer": text_of_message(message)}
    for name in ("contexts", "chunks"):
        items = fields.get(name)
        if isinstance(items, list | tuple):
            has_objects = any(is_chunk(item) for item in items)
            fields[name] = documents_as_chunks(items) if has_objects else [_plain(item) for item in items]
            if has_objects and name == "contexts":
                fields["chunks"] = fields.pop("contexts")
    return {name: _plain(value) for name, value in fields.items()}


def _with_documents(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with the documents of the one key that holds some as `contexts`; as they are where it is not clear which."""
    names = [name for name in _DOCUMENT_KEYS if name in fields and _are_documents(fields[name])]
    if len(names) != 1 or {"contexts", "chunks"} & fields.keys():
        return fields
    taken = {name: value for name, value in fields.items() if name not in {*names, *_ECHOES}}
    if names == ["source_documents"] and "answer" not in taken and "result" in taken:
        taken["answer"] = taken.pop("result")
    return {**taken, "contexts": fields[names[0]]}


def _are_documents(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) or is_chunk(item) for item in value)


def number_or_none(value: Any) -> float | None:
    """A number, also one of numpy; None for anything else."""
    value = value.item() if hasattr(value, "item") and not isinstance(value, str) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(value: Any) -> Any:
    """A value without models, dataclasses, tuples and numbers of numpy."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", exclude_none=True)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value
