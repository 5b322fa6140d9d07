"""litellm's requests over ragpipe's own HTTP layer: its limit on an answer, its proxies, its faults, no redirects.

litellm takes its connections from two attributes of its module. While a client is open they hold a session and a cache
that lead here, and then what they held before.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextvars import ContextVar
from typing import Any

import httpx

from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.clients.http_layer import Http

_HOPS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
_DECODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})

met: ContextVar[list[AttemptError]] = ContextVar("met")
"""The faults that a request met on its way, for whoever sent it: litellm blurs what happened."""
answered: ContextVar[list[bytes]] = ContextVar("answered")
"""The answers with status 200 that a request had: litellm gives nothing on of one that it cannot read."""


class _Transport(httpx.AsyncBaseTransport):
    """Sends over the connections of the event loop it is used in."""

    def __init__(self) -> None:
        self.open: dict[asyncio.AbstractEventLoop, Http] = {}
        self._litellms: httpx.AsyncBaseTransport | None = None

    def _elsewhere(self) -> httpx.AsyncBaseTransport:
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

        if self._litellms is None:
            self._litellms = AsyncHTTPHandler.create_async_transport() or httpx.AsyncHTTPTransport()
        return self._litellms

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        http = self.open.get(loop)
        if http is None:  # somebody else's use of litellm in this process
            return await self._elsewhere().handle_async_request(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
        try:
            answer = await http.send(request.method, str(request.url), headers=headers, body=await request.aread())
        except AttemptError as fault:
            met.get([]).append(fault)
            raise
        if answer.status == 200:
            answered.get([]).append(answer.body)
        given = [(name, value) for name, value in answer.headers.items() if name.lower() not in _DECODED]
        return httpx.Response(answer.status, headers=given, content=answer.body)


def _one_way(transport: httpx.AsyncBaseTransport) -> Any:
    """A cache of connections for litellm, with this one way for all providers that it asks by httpx."""
    from litellm.caching.llm_caching_handler import LLMClientCache
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    handler = AsyncHTTPHandler(transport=transport, follow_redirects=False)

    class Cache(LLMClientCache):
        def get_cache(self, key: Any, **kwargs: Any) -> Any:
            if str(key).startswith("async_httpx_client"):
                return handler
            return super().get_cache(key, **kwargs)  # type: ignore[no-untyped-call]

    return Cache()


class Connections:
    """What litellm sends through while anybody holds it; one for the process, over any number of event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Counter[asyncio.AbstractEventLoop] = Counter()
        self._transport = _Transport()
        self._before: dict[str, Any] = {}

    def hold(self, litellm: Any) -> None:
        """Take part in the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._held:
                self._install(litellm)
            self._held[loop] += 1
            if loop not in self._transport.open:
                self._transport.open[loop] = Http(0)  # each client bounds its own requests

    async def let_go(self, litellm: Any) -> None:
        """Close the connections of the running loop with its last holder, and give litellm back what it had."""
        loop = asyncio.get_running_loop()
        http: Http | None = None
        with self._lock:
            self._held[loop] -= 1
            if self._held[loop] <= 0:
                del self._held[loop]
                http = self._transport.open.pop(loop, None)
            if not self._held:
                for name, value in self._before.items():
                    setattr(litellm, name, value)
        if http is not None:
            await http.close()

    def _install(self, litellm: Any) -> None:
        session = httpx.AsyncClient(transport=self._transport, trust_env=False, follow_redirects=False, timeout=None)
        instead = {"aclient_session": session, "in_memory_llm_clients_cache": _one_way(self._transport)}
        self._before = {name: getattr(litellm, name, None) for name in instead}
        for name, value in instead.items():
            setattr(litellm, name, value)


connections = Connections()
