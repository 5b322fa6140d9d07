"""Requests to a Batch API over ragpipe's own HTTP layer: its proxies, its limits, no redirects, one attempt each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ragpipe.judging.clients.client import ApiResponse, AttemptError
from ragpipe.judging.clients.http_layer import HttpConnections, HttpResponse
from ragpipe.judging.clients.http_responses import parse_response

MOST_RESULT_BYTES = 1 << 30
"""Bytes of one file of results. A batch has at most 250 MB, and replies are mostly shorter than questions."""
_TRANSFER_S = 900.0  # seconds for a file


class BatchHttp:
    """The connections to one Batch API.

    Args:
        base: the URL that paths are appended to.
        headers: sent with every request; the key is among them.
        timeout_s: seconds for one answer; a file has 900.
    """

    def __init__(self, base: str, headers: Mapping[str, str], timeout_s: float):
        self._base, self._headers, self._timeout_s = base.rstrip("/"), dict(headers), timeout_s
        self._http = HttpConnections(4, MOST_RESULT_BYTES)

    async def json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The JSON object of an answer with status 200. Raises AttemptError for any other."""
        encoded = b"" if body is None else json.dumps(body).encode("ascii")
        return await self.object_of(method, path, encoded, "application/json", self._timeout_s)

    async def object_of(
        self,
        method: str,
        path: str,
        body: bytes,
        kind: str,
        seconds: float = _TRANSFER_S,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """As `json`, for a body of any kind.

        Args:
            method: of the request.
            path: below the base.
            body: its bytes.
            kind: their content type.
            seconds: that the answer may take.
            headers: of this request alone.
        """
        response = await self._send(method, path, body, kind, seconds, headers)
        try:
            data = json.loads(response.body)
        except (ValueError, RecursionError):
            data = None
        if response.status != 200 or not isinstance(data, dict):
            _raise_status(response, data)
        assert isinstance(data, dict)
        return data

    async def content(self, path: str) -> bytes:
        """The bytes of a file. Raises AttemptError where there are none."""
        response = await self._send("GET", path, b"", "application/json", _TRANSFER_S)
        if response.status != 200:
            try:
                data = json.loads(response.body)
            except (ValueError, RecursionError):
                data = None
            _raise_status(response, data)
        return response.body

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        kind: str,
        seconds: float,
        extra: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpResponse:
        headers = {**self._headers, **extra, **({"Content-Type": kind} if body else {})}
        try:
            async with asyncio.timeout(seconds):
                return await self._http.send(method, self._base + path, headers=headers, body=body)
        except TimeoutError:
            raise AttemptError("deadline", f"no whole answer within {seconds:g} s") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _raise_status(response: HttpResponse, data: Any) -> None:
    """Raise the AttemptError of an answer that is none of a Batch API."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    text = response.body[:4000].decode("utf-8", "replace")
    if response.status == 200:
        raise AttemptError("not_an_api_answer", f"not an answer of a Batch API (a proxy?): {text[:200]}")
    parse_response(ApiResponse(response.status, headers, data, text))


def count(values: Mapping[str, Any] | None, name: str) -> int:
    """A count that an API names; 0 where it does not."""
    value = (values or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
