"""The litellm client: every provider that litellm knows. One try per call: litellm's own retries are off.

litellm is imported by the first call (it costs seconds), without what it does to a process: it would download its price map,
and read a `.env` file into the environment, with addresses, proxies and keys that nobody has checked.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.judging.clients.client import ApiResponse, AttemptError, PreparedRequest
from ragpipe.judging.clients.http_responses import billed
from ragpipe.judging.settings import JudgeSettings

_IMPORTED_WITH = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
_ENVIRONMENT = threading.Lock()
_NO_KEY = "none"  # openai's library wants one, and would else take OPENAI_API_KEY to somebody else's host


class LitellmClient:
    def __init__(self, settings: JudgeSettings, key: str | None):
        self._settings = settings
        self._fixed: dict[str, Any] = {
            "model": settings.model,
            "timeout": settings.timeout_s,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": False,
        }
        if settings.api_base:
            self._fixed["api_base"] = settings.api_base
        if key or settings.api_base:
            self._fixed["api_key"] = key or _NO_KEY
        self._litellm: Any = None

    def prepare(self, body: dict[str, Any]) -> PreparedRequest:
        self._open()  # here and not in `send`: importing litellm takes seconds, and a deadline runs there
        return PreparedRequest(body, sha256({"model": self._settings.model, **body}))

    async def send(self, prepared: PreparedRequest) -> ApiResponse:
        found = await self._sent("acompletion", **self._fixed, **prepared.content)
        return found if isinstance(found, ApiResponse) else ApiResponse(200, {}, _plain(found), "")

    async def _sent(self, verb: str, **asked: Any) -> Any:
        """litellm's response, or the ApiResponse that its exception really was. Raises AttemptError when no HTTP answer came."""
        from ragpipe.judging.clients.litellm_http import answered, met

        litellm, faults, bodies = self._open(), list[AttemptError](), list[bytes]()
        met.set(faults)
        answered.set(bodies)
        try:
            return await getattr(litellm, verb)(**asked)
        except Exception as error:  # litellm blurs what happened: everything is looked at in its chain of causes
            found = faults[0] if faults else translate_exception(error)
        if isinstance(found, AttemptError):
            found.reply = found.reply or _bill_of(bodies)
            raise found  # outside of the except block: the library's exception may hold the key
        return found

    def _open(self) -> Any:
        if self._litellm is None:
            with _in_environment(_IMPORTED_WITH):
                import litellm

            from ragpipe.judging.clients.litellm_http import connections

            litellm.suppress_debug_info = True
            litellm.telemetry = False
            for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # its error lines repeat requests
            connections.hold(litellm)
            self._litellm = litellm
        return self._litellm

    async def close(self) -> None:
        if self._litellm is not None:
            from ragpipe.judging.clients.litellm_http import connections

            await connections.let_go(self._litellm)
            self._litellm = None


def _bill_of(bodies: list[bytes]) -> Mapping[str, Any]:
    """The usage that the last answer names, nothing where it names none: it is on the provider's bill all the same."""
    try:
        data = json.loads(bodies[-1]) if bodies else None
    except (ValueError, RecursionError):
        return {}
    return (billed(data) or {}) if isinstance(data, dict) else {}


@contextmanager
def _in_environment(names: Mapping[str, str]) -> Iterator[None]:
    """These environment variables for a while, and then what was there before."""
    with _ENVIRONMENT:
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(names)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _plain(response: Any) -> Any:
    """The parts of litellm's response that are read, as the JSON of an OpenAI-compatible answer."""
    choices = getattr(response, "choices", None)
    if not isinstance(choices, list):
        return response if isinstance(response, dict) else str(response)[:500]
    found = []
    for choice in choices[:1]:
        message = getattr(choice, "message", None)
        one: dict[str, Any] = {"finish_reason": getattr(choice, "finish_reason", None)}
        if message is not None:
            refusal = getattr(message, "refusal", None) or (
                getattr(message, "provider_specific_fields", None) or {}
            ).get("refusal")
            one["message"] = {"content": getattr(message, "content", None), "refusal": refusal}
        found.append(one)
    return {
        "choices": found,
        "model": getattr(response, "model", None),
        "system_fingerprint": getattr(response, "system_fingerprint", None),
        "usage": _usage(getattr(response, "usage", None)),
    }


def _usage(usage: Any) -> dict[str, Any] | None:
    if usage is None:
        return None
    into = getattr(usage, "prompt_tokens_details", None)
    out = getattr(usage, "completion_tokens_details", None)
    return {
        "prompt_tokens": getattr(usage, "prompt_tokens", None),
        "completion_tokens": getattr(usage, "completion_tokens", None),
        "prompt_tokens_details": {"cached_tokens": getattr(into, "cached_tokens", None)},
        "completion_tokens_details": {"reasoning_tokens": getattr(out, "reasoning_tokens", None)},
    }


_CODES = {
    "ContextWindowExceededError": "context_length_exceeded",
    "ContentPolicyViolationError": "content_filter",
}
_BROKEN = frozenset(
    {
        "ReadError",
        "RemoteProtocolError",
        "WriteError",
        "CloseError",
        "ReadTimeout",
        "ClientPayloadError",
        "ServerDisconnectedError",
        "ConnectionResetError",
        "ClientConnectionResetError",
        "BrokenPipeError",
        "ConnectionAbortedError",
        "IncompleteReadError",
    }
)
_UNCONNECTED = frozenset(
    {"ConnectError", "ConnectTimeout", "ClientConnectorError", "ClientConnectorDNSError", "ConnectionRefusedError"}
)
_LATE = frozenset({"Timeout", "APITimeoutError", "TimeoutException"})
_WRAPPING = re.compile(r"\A(litellm\.\w+: )?(\w+Error: )?(\w+Exception - )?")


def translate_exception(error: Exception) -> ApiResponse | AttemptError:
    """What litellm's exception really was: an HTTP answer, or a fault without one.

    litellm gives every broken connection and every unreadable answer a made-up 500; only an exception of the libraries
    below it (openai, httpx) tells of an answer that came.
    """
    chain = _chain(error)
    names = {type(link).__name__ for link in chain}
    text = _told(error)
    real = _status([link for link in chain if type(link).__module__.split(".")[0] in ("openai", "httpx")])
    status = real or _status(chain)
    if not real:
        if any("SSL" in name or "Certificate" in name for name in names):
            return AttemptError("unreachable", f"TLS: {text[:300]}", connect=True)
        if names & _BROKEN:
            return AttemptError("network", f"the connection broke: {_last(chain)}")
        if names & _UNCONNECTED:
            return AttemptError("network", f"no connection: {_last(chain)}", connect=True)
        if names & _LATE:
            return AttemptError("deadline", "no whole answer in time")
    if not status or (not real and status >= 500):
        return AttemptError("not_an_api_answer", f"not an API answer (a proxy?): {text[:200]}")
    headers = getattr(error, "litellm_response_headers", None) or {}
    found = {str(k).lower(): str(v) for k, v in dict(headers).items()}
    if 300 <= status < 400:
        found |= {"location": next((str(v) for v in map(_location, chain) if v), "")}
    body = {"error": {"message": text, "code": _code(chain), "param": _param(chain)}}
    return ApiResponse(status, found, body, text[:4000])


def _told(error: Exception) -> str:
    """The provider's words, without litellm's wrapping, pages and tracebacks."""
    text = _WRAPPING.sub("", str(getattr(error, "message", None) or error)).partition("Traceback (most recent")[0]
    return "" if text.lstrip().startswith("<") else text


def _code(chain: list[BaseException]) -> str | None:
    named = (_CODES.get(type(link).__name__) for link in chain)
    given = (getattr(link, "code", None) for link in chain)
    return next((c for c in (*named, *given) if isinstance(c, str)), None)


def _param(chain: list[BaseException]) -> str | None:
    return next((p for p in (getattr(link, "param", None) for link in chain) if isinstance(p, str)), None)


def _location(link: BaseException) -> str | None:
    headers = getattr(getattr(link, "response", None), "headers", None)
    return headers.get("location") if headers is not None else None


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in found and len(found) < 12:
        found.append(link)
        link = link.__cause__ or link.__context__
    return found


def _status(chain: list[BaseException]) -> int | None:
    """The status of the innermost exception that has one: the provider's, before litellm renamed it."""
    for link in reversed(chain):
        for holder in (link, getattr(link, "response", None)):
            status = getattr(holder, "status_code", None)
            if isinstance(status, int):
                return status
    return None


def _last(chain: list[BaseException]) -> str:
    return next((str(link) for link in reversed(chain) if str(link)), type(chain[0]).__name__).split("\n")[0][:200]
