"""The litellm client: every provider that litellm knows. One attempt per call: litellm's own retries are off.

litellm is imported by the first call, because that takes seconds. Two side effects of its import are prevented: it would
download its price map, and read a `.env` file with unchecked addresses, proxies and keys into the environment.

litellm's requests over ragpipe's own HTTP layer: its size limit, its proxies, its errors, no redirects.

litellm takes its connections from two attributes of its module. While a client is open they are replaced by a session and a
cache that lead here; afterwards the previous values are restored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import httpx

from ragpipe.core.digest import sha256
from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http import HttpConnections, HttpResponse, api_response, json_of
from ragpipe.judge.http_responses import billed_usage
from ragpipe.judge.pricing import in_environment
from ragpipe.judge.settings import JudgeSettings

_IMPORT_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
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

    def prepare(self, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """As `Client.prepare`."""
        self._open()  # here and not in `send`: importing litellm takes seconds, and a deadline runs there
        return body, sha256({"model": self._settings.model, **body})

    async def send(self, request: dict[str, Any]) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP response came."""
        result, headers = await self._sent("acompletion", **self._fixed, **request)
        return result if isinstance(result, ApiResponse) else ApiResponse(200, headers, _as_json(result))

    async def _sent(self, function: str, **arguments: Any) -> tuple[Any, Mapping[str, str]]:
        """The provider's response as the direct client reads it, else litellm's; and headers. Raises AttemptError."""
        litellm, errors, received = self._open(), list[AttemptError](), list[HttpResponse]()
        attempt_errors.set(errors)
        responses.set(received)
        result, failure = None, None
        try:
            result = await getattr(litellm, function)(**arguments)
        except Exception as error:  # it may contain the key, and hides what happened
            failure = errors[0] if errors else _failure(error, received)
        if received and _is_read_here(response := api_response(received[-1])):
            return response, response.headers
        if isinstance(failure, AttemptError):
            failure.partial = failure.partial or _usage_in(received)
            raise failure
        return failure or result, received[-1].headers if received else {}

    def _open(self) -> Any:
        if self._litellm is None:
            litellm = quiet_litellm()
            connections.acquire(litellm)
            self._litellm = litellm
        return self._litellm

    async def close(self) -> None:
        if self._litellm is not None:
            await connections.release(self._litellm)
            self._litellm = None


def quiet_litellm() -> Any:
    """The module litellm, imported without a download and without the user's `.env`, and silent."""
    with in_environment(_IMPORT_ENVIRONMENT):
        import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its error lines repeat requests
    return litellm


_SIGNS_IN = frozenset({"chatgpt", "github_copilot", "huggingface", "infinity"})
"""Providers that are asked without a variable: by a sign-in, or on a server of one's own."""
_ALIASES = {"cohere": "CO_", "cohere_chat": "CO_", "openrouter": "OR_", "volcengine": "ARK_"}
"""How other variables begin from which litellm takes a provider's key, where they do not begin with its name."""


def unset_key_variable(settings: JudgeSettings) -> str | None:
    """The environment variable from which litellm would take the key and which is not set. None where one is named in the
    settings, a server of one's own is asked, or a key may come from elsewhere."""
    if settings.key_variable or settings.api_base or settings.provider in _SIGNS_IN:
        return None
    word = re.split("[-_]", settings.provider)[0].upper()
    heads = (word, _ALIASES.get(settings.provider, word))
    if any(value and name.startswith(heads) and re.search("KEY|TOKEN", name) for name, value in os.environ.items()):
        return None
    names = quiet_litellm().validate_environment(settings.model)["missing_keys"]
    return str(names[-1]) if names and all(name.endswith("_API_KEY") for name in names) else None


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
    raw, reply = httpx.Response(200, json=dict(message)), litellm.ModelResponse()
    return _as_json(litellm.AnthropicConfig().transform_parsed_response(dict(message), raw, reply, json_mode=json_mode))


def _usage_in(received: list[HttpResponse]) -> Mapping[str, Any]:
    """The usage that the last good response names, for an attempt that failed all the same: the provider bills it."""
    data = next((json_of(response) for response in reversed(received) if response.status == 200), None)
    return (billed_usage(data) or {}) if isinstance(data, dict) else {}


def _is_read_here(response: ApiResponse) -> bool:
    """Whether a response is an error, or in OpenAI's own form: litellm changes and refuses parts of these."""
    data = response.data
    is_chat = isinstance(data, dict) and (isinstance(data.get("choices"), list) or bool(data.get("error")))
    return is_chat or not 200 <= response.status < 300


def _failure(error: Exception, received: list[HttpResponse]) -> ApiResponse | AttemptError:
    """What litellm's exception says where no provider's response says it."""
    text = str(getattr(error, "message", None) or error).partition("Traceback (most recent")[0]
    text = _LITELLM_PREFIX.sub("", text)
    status = getattr(error, "status_code", None)
    if not received and isinstance(status, int) and 400 <= status < 500:
        return ApiResponse(status, {}, {"error": {"message": text}}, text[:4000])
    return AttemptError("not_an_api_answer", f"not an API answer (a proxy?): {text[:200]}")


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


_LITELLM_PREFIX = re.compile(r"\A(litellm\.\w+: )?(\w+Error: )?(\w+Exception - )?")
_CONNECTION_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
_BODY_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})

attempt_errors: ContextVar[list[AttemptError]] = ContextVar("attempt_errors")
"""The errors of the requests sent in this context: litellm hides what happened."""
responses: ContextVar[list[HttpResponse]] = ContextVar("responses")
"""The responses in this context: litellm passes not all of their headers on, and nothing of a body that it cannot read."""


class _Transport(httpx.AsyncBaseTransport):
    """Sends over the connections of the running event loop."""

    def __init__(self) -> None:
        self.connections: dict[asyncio.AbstractEventLoop, HttpConnections] = {}
        self._litellm_transport: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        http = self.connections.get(loop)
        if http is None:  # litellm is used by other code in this process
            from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

            if self._litellm_transport is None:
                self._litellm_transport = AsyncHTTPHandler.create_async_transport() or httpx.AsyncHTTPTransport()
            return await self._litellm_transport.handle_async_request(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _CONNECTION_HEADERS}
        try:
            response = await http.send(request.method, str(request.url), headers=headers, body=await request.aread())
        except AttemptError as error:
            attempt_errors.get([]).append(error)
            raise
        responses.get([]).append(response)
        kept_headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _BODY_HEADERS]
        return httpx.Response(response.status, headers=kept_headers, content=response.body)


def _client_cache(transport: httpx.AsyncBaseTransport) -> Any:
    """A cache of clients for litellm that uses this transport for all providers that it asks through httpx."""
    from litellm.caching.llm_caching_handler import LLMClientCache
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    handler = AsyncHTTPHandler(transport=transport, follow_redirects=False)

    class Cache(LLMClientCache):
        def get_cache(self, key: Any, *args: Any, **kwargs: Any) -> Any:
            if str(key).startswith("async_httpx_client"):
                return handler
            cache: Any = super()  # its types differ between releases of litellm
            return cache.get_cache(key, *args, **kwargs)

    return Cache()


class LitellmConnections:
    """litellm's connections while any client uses them: one object per process, for any number of event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[asyncio.AbstractEventLoop] = Counter()
        self._transport = _Transport()
        self._previous: dict[str, Any] = {}

    def acquire(self, litellm: Any) -> None:
        """Use the connections in the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._users:
                self._install(litellm)
            self._users[loop] += 1
            if loop not in self._transport.connections:
                self._transport.connections[loop] = HttpConnections(0)  # each client limits its own requests

    async def release(self, litellm: Any) -> None:
        """Close the running loop's connections with its last user; restore litellm's own with the last of all."""
        loop = asyncio.get_running_loop()
        http: HttpConnections | None = None
        with self._lock:
            self._users[loop] -= 1
            if self._users[loop] <= 0:
                del self._users[loop]
                http = self._transport.connections.pop(loop, None)
            if not self._users:
                for name, value in self._previous.items():
                    setattr(litellm, name, value)
        if http is not None:
            await http.close()

    def _install(self, litellm: Any) -> None:
        session = httpx.AsyncClient(transport=self._transport, trust_env=False, follow_redirects=False, timeout=None)
        replacements = {"aclient_session": session, "in_memory_llm_clients_cache": _client_cache(self._transport)}
        self._previous = {name: getattr(litellm, name, None) for name in replacements}
        for name, value in replacements.items():
            setattr(litellm, name, value)


connections = LitellmConnections()
