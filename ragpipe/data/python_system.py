"""A Python callable as the system under test: how it is called, and what is made of its result. What LangChain and LlamaIndex return
is told by the attributes that objects have: neither is imported.

| object | recognised by | becomes |
|---|---|---|
| LangChain `Document`, or its dict | `page_content`, `metadata` | a chunk |
| LlamaIndex `NodeWithScore` | `node`, `score` | a chunk, with its score |
| LlamaIndex node | `node_id`, `get_content` | a chunk |
| LangChain message (`AIMessage`) | `content`, `type`, `additional_kwargs` | answer, usage |
| LlamaIndex response | `response`, `source_nodes` | answer, chunks |
| a pair `(answer, documents)` | a tuple of a text and documents or nodes | answer, chunks |
| LangChain chain results | a mapping with `input` or `query` | answer, chunks |
| a mapping without `contexts` and `chunks` | documents or texts under `context`, `source_documents` or `documents` | answer, chunks |
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, is_dataclass
from operator import attrgetter
from typing import Any

from ragpipe.core.errors import ConfigError, Problem, user_place
from ragpipe.core.sample import Sample
from ragpipe.core.settings import did_you_mean
from ragpipe.data.expressions import Expression
from ragpipe.data.live_system import SystemFailure
from ragpipe.data.system_settings import PythonSystem, question_fields

_EXAMPLE = "ragpipe.example_rag"  # the package of ragpipe that a callable may be in without being listed
METHODS = ("ainvoke", "invoke", "aquery", "query")
"""Methods by which an object that cannot be called is asked, the first that it has."""
_EXPECTED = "a text, or a mapping with the keys of an output (answer, contexts ...)"
_FIX = "return {'answer': text, 'contexts': [texts]}; a bare text is an answer without contexts"


class PythonCallable:
    """Asks one callable. A synchronous one is called in a thread of its own."""

    notes: Sequence[str] = ()

    def __init__(self, settings: PythonSystem, plugins: Sequence[str]):
        self._settings = settings
        self._function = _method_to_call(_imported(settings, plugins), settings.callable)
        is_framework = getattr(self._function, "__name__", "") in METHODS and inspect.ismethod(self._function)
        default = "question" if is_framework else None
        path = settings.input or default
        self._input = Expression(path) if path is not None else None

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        """The output in the callable's result. Raises SystemFailure for a result that is none, and what the callable raises."""
        fields = question_fields(sample, self._settings.params)
        value = fields if self._input is None else self._input(fields)
        if inspect.iscoroutinefunction(self._function):
            result = self._function(value)
        else:
            result = await _in_thread(lambda: self._function(value))
        if inspect.isawaitable(result):
            result = await result
        output = fields_of_result(result)
        if not isinstance(output, Mapping):
            what = f"{type(result).__name__}: {str(result)[:100]!r}"
            problem = Problem(f"what {self._settings.callable} returns", "type", what, _EXPECTED, _FIX)
            message = f"the system returned {type(result).__name__}, expected a text or a mapping, and no stream of pieces"
            raise SystemFailure("not_an_api_answer", message, permanent=True, problem=problem)
        if "answer" in output and output["answer"] is None and not (output.get("abstained") or output.get("error")):
            message = "the system returned the answer None, expected a text, or no key `answer` at all"
            raise SystemFailure("not_an_api_answer", message, permanent=True)
        return output

    async def close(self) -> None:
        """Nothing is open."""


def _imported(settings: PythonSystem, plugins: Sequence[str]) -> Any:
    """What `callable` names. Raises ConfigError when it cannot be had."""
    module, _, name = settings.callable.partition(":")
    if not any(module == root or module.startswith(root + ".") for root in (*plugins, _EXAMPLE)):
        root = module.split(".")[0]
        expected = f"a function below a package listed in plugins: {list(plugins)}"
        raise _unusable(settings.callable, expected, did_you_mean(root, plugins) or f"plugins=[{root}]")
    names: list[str] = []
    try:
        imported = importlib.import_module(module)
        names = [name for name in vars(imported) if not name.startswith("_")]
        return attrgetter(name)(imported)
    except Exception as error:  # the user's module may fail in any way while it is imported
        expected = f"an importable function ({type(error).__name__}: {error})"
        if names:
            fix = did_you_mean(name, names) or f"name a function of {module}"
        elif isinstance(error, ModuleNotFoundError):
            fix = "is its folder on PYTHONPATH?"
        else:
            fix = f"correct {user_place(error) or module}"
        raise _unusable(settings.callable, expected, fix) from error


def _method_to_call(target: Any, name: str) -> Callable[[Any], Any]:
    """What is called with each question: a function itself; of an object that cannot be called, one of `METHODS`."""
    if inspect.isclass(target):
        try:
            target = target()
        except Exception as error:
            expected, fix = f"a class that needs no arguments ({error})", "name an object of it, or a function"
            raise _unusable(f"the class {name}", expected, fix) from error
    if inspect.isroutine(target):
        return target
    for method in METHODS:
        if callable(function := getattr(target, method, None)):
            return function  # type: ignore[no-any-return]
    if callable(target):
        return target  # type: ignore[no-any-return]
    expected = f"something that can be called, or that has one of the methods {', '.join(METHODS)}"
    raise _unusable(f"{name}, of type {type(target).__name__}", expected, "name a function")


def _unusable(found: str, expected: str, fix: str) -> ConfigError:
    problem = Problem("system", "system.callable", found, expected, fix)
    return ConfigError("the system under test cannot be used", [problem])


async def _in_thread(function: Callable[[], Any]) -> Any:
    answered: Future[Any] = Future()
    answered.set_running_or_notify_cancel()  # what goes on in a thread cannot be cancelled

    def call() -> None:
        try:
            answered.set_result(function())
        except BaseException as error:  # no future takes StopIteration; SystemExit and the like end an answer, not the run
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            answered.set_exception(error if is_plain else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=call, name="ragpipe-system", daemon=True).start()
    return await asyncio.wrap_future(answered)


_DOCUMENT_KEYS = ("context", "source_documents", "documents")
_ANSWER_KEYS = ("answer", "result", "output")
_ECHOES = frozenset({"input", "query", "question", "chat_history", "intermediate_steps"})
"""What chains give beside the answer and the documents."""
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
    fields = _of_chain(dict(result))
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


def _of_chain(fields: dict[str, Any]) -> dict[str, Any]:
    """Answer and documents of a chain's result; the fields as they are where it is not clear which these are."""
    names = [name for name in _DOCUMENT_KEYS if name in fields and _are_documents(fields[name])]
    answer = next((name for name in _ANSWER_KEYS if name in fields), "")
    is_without_documents = bool(_ECHOES & fields.keys()) and fields.keys() - _ECHOES == {answer}
    if {"contexts", "chunks"} & fields.keys() or not (len(names) == 1 or is_without_documents):
        return fields
    taken = {name: value for name, value in fields.items() if name not in {*names, *_ECHOES}}
    if answer:
        taken["answer"] = taken.pop(answer)
    return taken | ({"contexts": fields[names[0]]} if names else {})


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
