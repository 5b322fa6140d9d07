"""Systems that are asked while the run goes on: a Python callable, an HTTP endpoint."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.core.secret_detection import looks_random, looks_secret
from ragpipe.datasets.path_expressions import Expression
from ragpipe.judging.clients.proxies import proxy_for
from ragpipe.judging.redaction import Redactor
from ragpipe.schema.sample import Sample
from ragpipe.systems.settings import HttpSystem, LiveSystem, PythonSystem

ANSWER_LIMIT = 16 << 20  # bytes of one HTTP answer
_SENT = ("id", "question", "history", "meta")
_SECRET_HEADER = re.compile(r"(?i)auth|key|token|secret|cookie|passw|credential|signature|session")
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})(?:[-_./](?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19}))*\Z")
_NAMES = re.compile(r"(?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})\d{0,8}(?:[-_./:](?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})\d{0,8})*\Z")


class System(Protocol):
    """Gives the raw output of one sample: a mapping with the keys of an output. Raises whatever went wrong."""

    async def answer(self, sample: Sample) -> Mapping[str, Any]: ...
    async def close(self) -> None: ...


def open_system(settings: LiveSystem, plugins: Sequence[str]) -> _Python | _Http:
    """The system that the settings describe. Raises ConfigError when it cannot be had."""
    return _Python(settings, plugins) if isinstance(settings, PythonSystem) else _Http(settings)


def _shown(sample: Sample) -> dict[str, Any]:
    """What a system may see of a sample: no reference, no label."""
    return sample.model_dump(mode="json", include=set(_SENT))


class _Python:
    notes: Sequence[str] = ()

    def __init__(self, settings: PythonSystem, plugins: Sequence[str]):
        module, _, name = settings.callable.partition(":")
        if not any(module == root or module.startswith(root + ".") for root in plugins):
            raise _bad(
                "callable",
                settings.callable,
                f"a function below a package listed in plugins: {list(plugins)}",
                f"plugins=[{module.split('.')[0]}]",
            )
        try:
            self._function: Callable[[dict[str, Any]], Any] = getattr(importlib.import_module(module), name)
        except Exception as error:  # the user's module may fail in any way while it is imported
            expected = f"an importable function ({type(error).__name__}: {error})"
            raise _bad("callable", settings.callable, expected, "is its folder on PYTHONPATH?") from error

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        fields = _shown(sample)
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(fields)
        else:
            result = await _in_thread(self._function, fields)
        if isinstance(result, str):
            return {"answer": result}
        if not isinstance(result, Mapping):
            raise RagpipeError(f"the system returned {type(result).__name__}, expected a text or a mapping")
        if "answer" in result and result["answer"] is None and not (result.get("abstained") or result.get("error")):
            raise RagpipeError("the system returned the answer None, expected a text, or no key `answer` at all")
        return result

    async def close(self) -> None:
        pass


async def _in_thread(function: Callable[[dict[str, Any]], Any], fields: dict[str, Any]) -> Any:
    """Call it in a thread of its own. Not in asyncio's pool: that has few threads, and the process waits for its last
    one, so that a callable that hangs would keep the run from ending long after its time is up."""
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
            result = function(fields)
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


class _Http:
    def __init__(self, settings: HttpSystem):
        self._url = settings.url
        self._concurrency = settings.concurrency
        self._body = {key: Expression(path) for key, path in settings.body.items()}
        self._fields = {key: Expression(path) for key, path in settings.fields.items()}
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
        self._scrub = Redactor(_secrets(self._headers, in_messages=True))
        self._scrub_answer = Redactor(_secrets(self._headers, in_messages=False))
        self._struck: list[str] = []
        self._session: Any = None
        self._proxy = proxy_for(self._url)
        if self._proxy is not None and not self._proxy.is_http:
            raise _bad(
                "url",
                f"the proxy {self._proxy}",
                "an HTTP proxy, whose URL begins with http:// or https://",
                "correct the variable, or list the endpoint's host in NO_PROXY",
            )

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        import aiohttp

        from ragpipe.core.strict_json import strict_loads

        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=self._concurrency),  # aiohttp's own limit is 100
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the time of an answer is `timeout_s`
                cookie_jar=aiohttp.DummyCookieJar(),  # a session's cookie would tell the endpoint of earlier cases
            )
        fields = _shown(sample)
        body = {key: path(fields) for key, path in self._body.items()}
        proxy = self._proxy.url if self._proxy else None
        refused = None
        try:
            async with self._session.post(self._url, json=body, allow_redirects=False, proxy=proxy) as response:
                raw = await self._body_of(response)
        except aiohttp.ClientProxyConnectionError as error:
            refused = f"no connection to the proxy {self._proxy}: {error.os_error}"
        except aiohttp.ClientHttpProxyError as error:
            refused = f"the proxy {self._proxy} does not let this through: status {error.status}"
        if refused is not None:  # the library's own texts may hold the proxy's URL, and so its password
            raise RagpipeError(refused)
        if response.status != 200:
            excerpt = self._scrub(raw.decode("utf-8", "replace"))[:200]
            where = self._scrub(response.headers.get("Location", ""))[:200]
            moved = f" (a redirect to {where!r}, which is not followed)" if where else ""
            raise RagpipeError(f"HTTP {response.status} from {self._url}{moved}: {excerpt!r}")
        text = raw.decode("utf-8-sig")
        if (clean := self._scrub_answer(text)) != text:  # some servers repeat what they were sent
            self._struck.append(sample.id)
        return self._output(strict_loads(clean))

    async def _body_of(self, response: Any) -> bytes:
        pieces: list[bytes] = []
        size = response.content_length or 0
        if size <= ANSWER_LIMIT:
            size = 0
            async for piece in response.content.iter_any():  # `read(n)` would give what has arrived so far
                pieces.append(piece)
                size += len(piece)
                if size > ANSWER_LIMIT:
                    break
        if size > ANSWER_LIMIT:
            raise RagpipeError(f"more than {ANSWER_LIMIT >> 20} MiB from {self._url}")
        return b"".join(pieces)

    def _output(self, result: Any) -> dict[str, Any]:
        """The fields of the output. Raises RagpipeError when no answer stands where `fields` says, unless the system says
        that it abstained or what went wrong."""
        output = {key: value for key, path in self._fields.items() if (value := path(result)) is not None}
        path = self._fields.get("answer")
        if path is None or "answer" in output or output.get("abstained") or output.get("error"):
            return output
        keys = f"keys {', '.join(map(str, list(result)[:12]))}" if isinstance(result, dict) else type(result).__name__
        raise RagpipeError(f"no answer at `{path.text}`; found {keys}: see system.fields.answer")

    @property
    def notes(self) -> list[str]:
        """What was changed in the answers: header values that were struck out."""
        if not self._struck:
            return []
        first = ", ".join(self._struck[:3]) + (", ..." if len(self._struck) > 3 else "")
        return [
            f"{len(self._struck):,} answers repeat a value of system.headers_env that looks secret; *** stands there "
            f"instead ({first})"
        ]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _secrets(headers: Mapping[str, str], *, in_messages: bool) -> Iterator[str]:
    """What of the headers' values must not be written down, for a Redactor.

    Of a header whose name says that it is secret: every word, also without its scheme (`Bearer`); in answers (not `in_messages`)
    only what is no ordinary word, because `none` and `anything` stand in honest answers. Of another header only what is
    surely random: `X-Tenant: production` and `X-Index: wiki-2018` stand in honest answers, too.
    """
    for header, value in headers.items():
        secret = _SECRET_HEADER.search(header) is not None
        for word in (value, *value.split()):
            random = looks_random(word)
            if secret:
                is_secret = in_messages or random or not (" " in word or _WORDS.match(word))
            else:
                is_secret = random and (looks_secret(word) is not None or not _NAMES.match(word))
            if is_secret:
                yield word


def _bad(key: str, actual: str, expected: str, fix: str) -> ConfigError:
    return ConfigError(
        "the system under test cannot be used", [Problem("system", f"system.{key}", actual, expected, fix)]
    )
