"""The litellm client: every provider that litellm knows. One attempt per call: litellm's own retries are off.

litellm is imported by the first call, because that takes seconds. Two side effects of its import are prevented: it would
download its price map, and read a `.env` file with unchecked addresses, proxies and keys into the environment.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.judging.clients.client import ApiResponse, AttemptError, PreparedRequest
from ragpipe.judging.clients.http_layer import HttpResponse
from ragpipe.judging.clients.http_responses import billed_usage
from ragpipe.judging.settings import JudgeSettings

_IMPORT_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
_ENVIRONMENT_LOCK = threading.Lock()
_NO_KEY = "none"  # the openai library requires one, and would otherwise send OPENAI_API_KEY to another host


class LitellmClient:
    """Sends chat completions through litellm."""

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
        """Build a request from a body without the model's name."""
        self._open()  # here and not in `send`: importing litellm takes seconds, and a deadline runs there
        return PreparedRequest(body, sha256({"model": self._settings.model, **body}))

    async def send(self, request: PreparedRequest) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP response came."""
        result, headers = await self._sent("acompletion", **self._fixed, **request.body)
        return result if isinstance(result, ApiResponse) else ApiResponse(200, headers, _as_json(result), "")

    async def _sent(self, function: str, **arguments: Any) -> tuple[Any, Mapping[str, str]]:
        """litellm's response and its headers, or the ApiResponse behind its exception."""
        from ragpipe.judging.clients.litellm_http import attempt_errors, responses

        litellm, errors, received = self._open(), list[AttemptError](), list[HttpResponse]()
        attempt_errors.set(errors)
        responses.set(received)
        try:
            result = await getattr(litellm, function)(**arguments)
        except Exception as error:  # litellm hides what happened: the whole chain of causes is examined
            cause = errors[0] if errors else translate_exception(error)
        else:
            answer = _chat_answer(received)
            return (result, received[-1].headers if received else {}) if answer is None else (answer, answer.headers)
        if (answer := _chat_answer(received)) is not None:
            return answer, answer.headers
        if isinstance(cause, AttemptError):
            cause.partial = cause.partial or _usage_in(received)
            raise cause  # outside of the except block: the library's exception may contain the key
        return _with_details(cause, received), cause.headers

    def _open(self) -> Any:
        if self._litellm is None:
            litellm = quiet_litellm()
            from ragpipe.judging.clients.litellm_http import connections

            connections.acquire(litellm)
            self._litellm = litellm
        return self._litellm

    async def close(self) -> None:
        """Close the connections."""
        if self._litellm is not None:
            from ragpipe.judging.clients.litellm_http import connections

            await connections.release(self._litellm)
            self._litellm = None


def quiet_litellm() -> Any:
    """The module litellm, imported without a download and without the user's `.env`, and silent."""
    with _in_environment(_IMPORT_ENVIRONMENT):
        import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its error lines repeat requests
    return litellm


def anthropic_request(model: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The request of Anthropic's own API for the body of a chat completion, as litellm makes it."""
    config = quiet_litellm().AnthropicConfig()
    parameters = {name: value for name, value in body.items() if name != "messages"}
    optional = config.map_openai_params(parameters, {}, model, drop_params=False)
    optional.pop("json_mode", None)  # for litellm alone: the API refuses it
    return dict(config.transform_request(model, list(body["messages"]), optional, {}, {}))


def anthropic_completion(message: Mapping[str, Any], *, json_mode: bool) -> Any:
    """A message of Anthropic's API as the JSON of a chat completion. `json_mode`: the answer was asked for by a schema."""
    litellm = quiet_litellm()
    import httpx

    raw, reply = httpx.Response(200, json=dict(message)), litellm.ModelResponse()
    return _as_json(litellm.AnthropicConfig().transform_parsed_response(dict(message), raw, reply, json_mode=json_mode))


def _usage_in(received: list[HttpResponse]) -> Mapping[str, Any]:
    """The usage that the last good response names, for an attempt that failed all the same: the provider bills it."""
    data = next((_json(response) for response in reversed(received) if response.status == 200), None)
    return (billed_usage(data) or {}) if isinstance(data, dict) else {}


def _chat_answer(received: list[HttpResponse]) -> ApiResponse | None:
    """The last response where it is in OpenAI's own form: then it is read as the direct client reads it, and not as litellm does,
    which rewrites finish reasons and refuses what it does not expect. None for other providers' forms."""
    response = received[-1] if received else None
    if response is None or not 200 <= response.status < 300:
        return None
    data = _json(response)
    if not isinstance(data, dict) or not (isinstance(data.get("choices"), list) or data.get("error")):
        return None
    return ApiResponse(response.status, {name.lower(): value for name, value in response.headers.items()}, data)


def _json(response: HttpResponse) -> Any:
    """The JSON of a body; None where it is none."""
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def _with_details(failure: ApiResponse, received: list[HttpResponse]) -> ApiResponse:
    """The response behind litellm's exception with what litellm leaves out: its headers, its usage, and Google's `details` of an error."""
    response = next((response for response in reversed(received) if response.status == failure.status), None)
    if response is None:
        return failure
    headers = {name.lower(): value for name, value in response.headers.items()} | dict(failure.headers)
    data = _json(response)
    error = (data[0] if isinstance(data, list) and len(data) == 1 else data) if data else None
    details = (
        error["error"].get("details") if isinstance(error, dict) and isinstance(error.get("error"), dict) else None
    )
    known = failure.data["error"]
    usage = {"usage": data["usage"]} if isinstance(data, dict) and "usage" in data else {}
    return replace(
        failure, headers=headers, data={"error": {**known, "details": details} if details else known, **usage}
    )


@contextmanager
def _in_environment(names: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables, and restore the previous values afterwards."""
    with _ENVIRONMENT_LOCK:
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


def _as_json(response: Any) -> Any:
    """litellm's response as the JSON of an OpenAI-compatible response, as far as it is used."""
    choices = getattr(response, "choices", None)
    if not isinstance(choices, list):
        return response if isinstance(response, dict) else str(response)[:500]
    return {
        "choices": [_choice(choice) for choice in choices[:1]],
        "model": getattr(response, "model", None),
        "system_fingerprint": getattr(response, "system_fingerprint", None),
        "usage": _usage(getattr(response, "usage", None)),
    }


def _choice(choice: Any) -> dict[str, Any]:
    message = getattr(choice, "message", None)
    fields: dict[str, Any] = {"finish_reason": getattr(choice, "finish_reason", None)}
    if message is not None:
        provider_fields = getattr(message, "provider_specific_fields", None) or {}
        refusal = getattr(message, "refusal", None) or provider_fields.get("refusal")
        fields["message"] = {"content": getattr(message, "content", None), "refusal": refusal}
    return fields


def _usage(usage: Any) -> dict[str, Any] | None:
    if usage is None:
        return None
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return {
        "prompt_tokens": getattr(usage, "prompt_tokens", None),
        "completion_tokens": getattr(usage, "completion_tokens", None),
        "prompt_tokens_details": {
            name: getattr(prompt_details, name, None) for name in ("cached_tokens", "cache_creation_tokens")
        },
        "completion_tokens_details": {"reasoning_tokens": getattr(completion_details, "reasoning_tokens", None)},
    }


_CODES = {"ContextWindowExceededError": "context_length_exceeded", "ContentPolicyViolationError": "content_filter"}
_CONNECTION_BROKE = frozenset(
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
_NO_CONNECTION = frozenset(
    {"ConnectError", "ConnectTimeout", "ClientConnectorError", "ClientConnectorDNSError", "ConnectionRefusedError"}
)
_TIMED_OUT = frozenset({"Timeout", "APITimeoutError", "TimeoutException"})
_LITELLM_PREFIX = re.compile(r"\A(litellm\.\w+: )?(\w+Error: )?(\w+Exception - )?")


def translate_exception(error: Exception) -> ApiResponse | AttemptError:
    """The HTTP response behind litellm's exception, or an error without one.

    litellm gives every broken connection and every unreadable response an invented status of 500. Only an exception of the
    libraries below it (openai, httpx) shows that a response came.
    """
    chain = _chain(error)
    text = _provider_text(error)
    status = _status([link for link in chain if type(link).__module__.split(".")[0] in ("openai", "httpx")])
    if not status:
        if connection_error := _connection_error(chain, text):
            return connection_error
        status = _status(chain)
        if not status or status >= 500:
            return AttemptError("not_an_api_answer", f"not an API answer (a proxy?): {text[:200]}")
    body = {"error": {"message": text, "code": _code(chain), "param": _param(chain)}}
    headers = {str(k).lower(): str(v) for k, v in dict(getattr(error, "litellm_response_headers", None) or {}).items()}
    if 300 <= status < 400:
        headers["location"] = next((str(v) for v in map(_location, chain) if v), "")
    return ApiResponse(status, headers, body, text[:4000])


def _connection_error(chain: list[BaseException], text: str) -> AttemptError | None:
    """What the names of the exceptions say about the connection; None where they say nothing."""
    names = {type(link).__name__ for link in chain}
    if any("SSL" in name or "Certificate" in name for name in names):
        return AttemptError("unreachable", f"TLS: {text[:300]}", no_connection=True)
    if names & _CONNECTION_BROKE:
        return AttemptError("network", f"the connection broke: {_innermost_text(chain)}")
    if names & _NO_CONNECTION:
        return AttemptError("network", f"no connection: {_innermost_text(chain)}", no_connection=True)
    if names & _TIMED_OUT:
        return AttemptError("deadline", "no whole answer in time")
    return None


def _provider_text(error: Exception) -> str:
    """The provider's words, without litellm's wrapping, pages and tracebacks."""
    text = _LITELLM_PREFIX.sub("", str(getattr(error, "message", None) or error)).partition("Traceback (most recent")[0]
    return "" if text.lstrip().startswith("<") else text


def _code(chain: list[BaseException]) -> str | None:
    by_class = (_CODES.get(type(link).__name__) for link in chain)
    by_attribute = (getattr(link, "code", None) for link in chain)
    return next((code for code in (*by_class, *by_attribute) if isinstance(code, str)), None)


def _param(chain: list[BaseException]) -> str | None:
    return next((p for p in (getattr(link, "param", None) for link in chain) if isinstance(p, str)), None)


def _location(link: BaseException) -> str | None:
    headers = getattr(getattr(link, "response", None), "headers", None)
    return headers.get("location") if headers is not None else None


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and its causes, from the outermost in."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain and len(chain) < 12:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _status(chain: list[BaseException]) -> int | None:
    """The status of the innermost exception that has one: the provider's, before litellm renamed it."""
    for link in reversed(chain):
        for holder in (link, getattr(link, "response", None)):
            status = getattr(holder, "status_code", None)
            if isinstance(status, int):
                return status
    return None


def _innermost_text(chain: list[BaseException]) -> str:
    return next((str(link) for link in reversed(chain) if str(link)), type(chain[0]).__name__).split("\n")[0][:200]
