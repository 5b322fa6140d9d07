"""Systems that are asked while the run goes on: a Python callable, an HTTP endpoint."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ragpipe.errors import ConfigError, Problem, RagpipeError
from ragpipe.judging.secrecy import Scrubber
from ragpipe.schema.sample import Sample
from ragpipe.systems.settings import HttpSystem, LiveSystem, PythonSystem

ANSWER_LIMIT = 16 << 20  # bytes of one HTTP answer
_SENT = ("id", "question", "history", "meta")


class System(Protocol):
    """Gives the raw output of one sample: a mapping with the keys of an output. Raises whatever went wrong."""

    async def answer(self, sample: Sample) -> Mapping[str, Any]: ...
    async def close(self) -> None: ...


def open_system(settings: LiveSystem, plugins: Sequence[str]) -> System:
    """The system that the settings describe. Raises ConfigError when it cannot be had."""
    return _Python(settings, plugins) if isinstance(settings, PythonSystem) else _Http(settings)


def _shown(sample: Sample) -> dict[str, Any]:
    """What a system may see of a sample: no reference, no label."""
    return sample.model_dump(mode="json", include=set(_SENT))


class _Python:
    def __init__(self, settings: PythonSystem, plugins: Sequence[str]):
        module, _, name = settings.callable.partition(":")
        if not any(module == root or module.startswith(root + ".") for root in plugins):
            raise _bad("callable", settings.callable, f"a function below a package listed in plugins: {list(plugins)}",
                       f"plugins=[{module.split('.')[0]}]")  # fmt: skip
        try:
            self._function: Callable[[dict[str, Any]], Any] = getattr(importlib.import_module(module), name)
        except Exception as error:  # the user's module may fail in any way while it is imported
            expected = f"an importable function ({type(error).__name__}: {error})"
            raise _bad("callable", settings.callable, expected, "is its folder on PYTHONPATH?") from error

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        shown = _shown(sample)
        if inspect.iscoroutinefunction(self._function):
            found = await self._function(shown)
        else:
            found = await _in_thread(self._function, shown)
        if isinstance(found, str):
            return {"answer": found}
        if not isinstance(found, Mapping):
            raise RagpipeError(f"the system returned {type(found).__name__}, expected a text or a mapping")
        return found

    async def close(self) -> None:
        pass


async def _in_thread(function: Callable[[dict[str, Any]], Any], shown: dict[str, Any]) -> Any:
    """Call it in a thread of its own. Not in asyncio's pool: that has few threads, and the process waits for its last
    one, so that a callable that hangs would keep the run from ending long after its time is up."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(found: Any, error: Exception | None) -> None:
        if answered.done():
            return  # nobody waits any more
        if error is None:
            answered.set_result(found)
        else:
            answered.set_exception(error)

    def call() -> None:
        found: Any = None
        error: Exception | None = None
        try:
            found = function(shown)
        except StopIteration as raised:  # no future takes one
            error = RuntimeError(f"StopIteration: {raised}")
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit and the like end an answer, not the run
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=call, name="ragpipe-system", daemon=True).start()
    return await answered


class _Http:
    def __init__(self, settings: HttpSystem):
        import jmespath

        self._url = settings.url
        self._body = {key: jmespath.compile(path) for key, path in settings.body.items()}
        self._fields = {key: jmespath.compile(path) for key, path in settings.fields.items()}
        self._headers = {}
        for header, variable in settings.headers_env.items():
            if variable not in os.environ:
                raise _bad(
                    f"headers_env.{header}",
                    f"no environment variable {variable}",
                    "its name, with the variable set",
                    f"export {variable}=...",
                )
            self._headers[header] = os.environ[variable]
        words = [word for value in self._headers.values() for word in (value, *value.split())]  # `Bearer` and the token
        self._scrub = Scrubber(words)
        self._session: Any = None

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        import aiohttp

        from ragpipe.strict_json import loads

        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        shown = _shown(sample)
        body = {key: path.search(shown) for key, path in self._body.items()}
        async with self._session.post(self._url, json=body, allow_redirects=False) as response:
            raw = b""
            async for piece in response.content.iter_any():  # `read(n)` would give what has arrived so far
                raw += piece
                if len(raw) > ANSWER_LIMIT:
                    raise RagpipeError(f"more than {ANSWER_LIMIT >> 20} MiB from {self._url}")
            if response.status != 200:
                told = self._scrub(raw.decode("utf-8", "replace"))[:200]
                raise RagpipeError(f"HTTP {response.status} from {self._url}: {told!r}")
        found = loads(self._scrub(raw.decode("utf-8")))  # some servers repeat what they were sent
        return {key: value for key, path in self._fields.items() if (value := path.search(found)) is not None}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _bad(key: str, found: str, expected: str, mend: str) -> ConfigError:
    return ConfigError(
        "the system under test cannot be used", [Problem("system", f"system.{key}", found, expected, mend)]
    )
