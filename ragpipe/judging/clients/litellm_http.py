"""litellm's requests over ragpipe's own HTTP layer: its size limit, its proxies, its errors, no redirects.

litellm takes its connections from two attributes of its module. While a client is open they are replaced by a session and a
cache that lead here; afterwards the previous values are restored.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextvars import ContextVar
from typing import Any

import httpx

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.clients.http_layer import HttpConnections, HttpResponse

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
