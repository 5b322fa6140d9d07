"""A Python callable as the system under test: how it is called, and what is made of its result."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.datasets.path_expressions import Expression
from ragpipe.schema.sample import Sample
from ragpipe.systems.framework_answers import fields_of_result, is_message, text_of_message
from ragpipe.systems.settings import PythonSystem, question_fields
from ragpipe.systems.system_failures import SystemFailure

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
        started = time.monotonic()
        if inspect.iscoroutinefunction(self._function) or inspect.isasyncgenfunction(self._function):
            result = self._function(value)
        else:
            result = await _in_thread(lambda: _taken_whole(self._function(value), started))
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, _Pieces):
            return self._checked(result.output())
        if (generator := _generator_of(result)) is not None:
            pieces = _Pieces(started, result)
            if isinstance(generator, AsyncIterator):
                async for piece in generator:
                    pieces.add(piece)
            else:
                await _in_thread(lambda: pieces.take(generator))
            result = pieces.output()
        return self._checked(result)

    def _checked(self, result: Any) -> Mapping[str, Any]:
        output = fields_of_result(result)
        if not isinstance(output, Mapping):
            what = f"{type(result).__name__}: {str(result)[:100]!r}"
            raise SystemFailure(
                "not_an_api_answer",
                f"the system returned {type(result).__name__}, expected a text or a mapping",
                permanent=True,
                problem=Problem(f"what {self._settings.callable} returns", "type", what, _EXPECTED, _FIX),
            )
        if "answer" in output and output["answer"] is None and not (output.get("abstained") or output.get("error")):
            message = "the system returned the answer None, expected a text, or no key `answer` at all"
            raise SystemFailure("not_an_api_answer", message, permanent=True)
        return output

    async def close(self) -> None:
        """Nothing is open."""


class _Pieces:
    """The pieces of a streamed answer: texts, messages, or mappings whose texts are put together name by name."""

    def __init__(self, started: float, whole: Any = None):
        self._started = started
        self._whole = whole  # an object whose text is streamed and that has its sources beside it
        self._texts: list[str] = []
        self._fields: dict[str, Any] = {}
        self._message: Any = None
        self._first_token: float | None = None

    def take(self, generator: Iterator[Any]) -> _Pieces:
        for piece in generator:
            self.add(piece)
        return self

    def add(self, piece: Any) -> None:
        text = ""
        if isinstance(piece, str):
            text = piece
            self._texts.append(text)
        elif is_message(piece):
            text = text_of_message(piece)
            self._message = piece if self._message is None else self._message + piece
        elif isinstance(piece, Mapping):
            for name, value in piece.items():
                text = text or (value if name == "answer" and isinstance(value, str) else "")
                self._fields[name] = _joined(self._fields.get(name), value)
        else:
            name = type(piece).__name__
            problem = Problem("what the generator gives", "type", name, "texts, messages or mappings", _FIX)
            raise SystemFailure("not_an_api_answer", f"a piece of type {name}", permanent=True, problem=problem)
        if text and self._first_token is None:
            self._first_token = round((time.monotonic() - self._started) * 1000, 3)

    def output(self) -> Any:
        """All pieces as one result, with `timings.first_token` in milliseconds."""
        fields: dict[str, Any] = dict(fields_of_result(self._fields)) if self._fields else {}
        if self._message is not None:
            fields |= fields_of_result(self._message)
        if self._texts:
            fields["answer"] = "".join(self._texts)
        if self._whole is not None and hasattr(self._whole, "source_nodes"):
            from ragpipe.systems.framework_answers import documents_as_chunks

            fields["chunks"] = documents_as_chunks(self._whole.source_nodes or ())
        fields.setdefault("answer", "")
        if self._first_token is not None:
            fields["timings"] = {"first_token": self._first_token, **(fields.get("timings") or {})}
        return fields


def _joined(before: Any, value: Any) -> Any:
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if is_message(before) and is_message(value):
        return before + value
    return value


def _generator_of(result: Any) -> Iterator[Any] | AsyncIterator[Any] | None:
    """The generator that a result is, or that a streaming response of LlamaIndex has; None for a whole result."""
    if inspect.isasyncgen(result) or inspect.isgenerator(result):
        return result
    for name in ("response_gen", "async_response_gen"):
        generator = getattr(result, name, None)
        generator = generator() if inspect.ismethod(generator) else generator
        if generator is not None and hasattr(result, "source_nodes") and getattr(result, "response", None) is None:
            return generator  # type: ignore[no-any-return]
    if isinstance(result, Mapping | str | list | tuple) or is_message(result):
        return None
    if isinstance(result, Iterator | AsyncIterator):
        return result
    return None


def _taken_whole(result: Any, started: float) -> Any:
    """A result of a thread, with the pieces of a synchronous generator taken in that thread."""
    generator = _generator_of(result)
    if generator is None or isinstance(generator, AsyncIterator):
        return result
    return _Pieces(started, result).take(generator)


def _imported(settings: PythonSystem, plugins: Sequence[str]) -> Any:
    """What `callable` names. Raises ConfigError when it cannot be had."""
    module, _, name = settings.callable.partition(":")
    if not any(module == root or module.startswith(root + ".") for root in (*plugins, _EXAMPLE)):
        raise _unusable(
            settings,
            f"a function below a package listed in plugins: {list(plugins)}",
            f"plugins=[{module.split('.')[0]}]",
        )
    try:
        return attrgetter(name)(importlib.import_module(module))
    except Exception as error:  # the user's module may fail in any way while it is imported
        expected = f"an importable function ({type(error).__name__}: {error})"
        raise _unusable(settings, expected, "is its folder on PYTHONPATH?") from error


def _method_to_call(target: Any, name: str) -> Callable[[Any], Any]:
    """What is called with each question: a function itself; of an object that cannot be called, one of `METHODS`."""
    if inspect.isclass(target):
        try:
            target = target()
        except Exception as error:
            problem = Problem(
                "system",
                "system.callable",
                f"the class {name}",
                f"a class that needs no arguments ({error})",
                "name an object of it, or a function",
            )
            raise ConfigError("the system under test cannot be used", [problem]) from error
    if inspect.isroutine(target):
        return target
    for method in METHODS:
        if callable(function := getattr(target, method, None)):
            return function  # type: ignore[no-any-return]
    if callable(target):
        return target  # type: ignore[no-any-return]
    expected = f"something that can be called, or that has one of the methods {', '.join(METHODS)}"
    problem = Problem(
        "system", "system.callable", f"{name}, of type {type(target).__name__}", expected, "name a function"
    )
    raise ConfigError("the system under test cannot be used", [problem])


def _unusable(settings: PythonSystem, expected: str, fix: str) -> ConfigError:
    problem = Problem("system", "system.callable", settings.callable, expected, fix)
    return ConfigError("the system under test cannot be used", [problem])


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Call it in a thread of its own."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if answered.done():
            return  # nobody waits any more
        if error is None:
            answered.set_result(result)
        else:
            answered.set_exception(error)

    def call() -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = function()
        except StopIteration as raised:  # no future takes one
            error = RuntimeError(f"StopIteration: {raised}")
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit and the like end an answer, not the run
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=call, name="ragpipe-system", daemon=True).start()
    return await answered
