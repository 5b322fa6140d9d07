"""Anthropic's Message Batches: the requests go with the batch, and one file has the results.

litellm reads such batches but makes none. It translates each request and each message here, as it does for live questions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from ragpipe.judging.batches.batch_api import BatchLine, BatchStatus
from ragpipe.judging.batches.batch_http import BatchHttp, count
from ragpipe.judging.clients.client import ApiResponse, AttemptError
from ragpipe.judging.settings import JudgeSettings

_ANTHROPIC = "https://api.anthropic.com"
_PATH = "/v1/messages/batches"
_PAGE = 100  # batches of one page of the list
_CLOCK_S = 300.0  # seconds by which the provider's clock may be behind
_SCHEMA_BETA = "structured-outputs-2025-11-13"
_STATUS_OF_ERROR = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that a live request gets with each type of error; any other type: 500."""


class AnthropicBatches:
    """Batches of messages at Anthropic. A batch shows no token: it is known by the keys in its results."""

    carries_token = False

    def __init__(self, settings: JudgeSettings, key: str | None):
        self._model = settings.name
        headers = {"Accept": "application/json", "anthropic-version": "2023-06-01"} | (
            {"x-api-key": key} if key else {}
        )
        base = (settings.api_base or _ANTHROPIC).removesuffix("/v1")
        self._http = BatchHttp(base, headers, settings.timeout_s)

    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        """One request of the batch."""
        from ragpipe.judging.clients.litellm_client import anthropic_request

        return json.dumps({"custom_id": key, "params": anthropic_request(self._model, body)}).encode("ascii")

    def join(self, requests: Sequence[bytes]) -> bytes:
        """The body of the batch."""
        return b'{"requests":[' + b",".join(requests) + b"]}"

    async def upload(self, body: bytes) -> str | None:
        """Nothing is uploaded before the batch is made."""
        return None

    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        """Make a batch of these requests."""
        beta = {"anthropic-beta": _SCHEMA_BETA} if b'"output_format":' in body else {}
        return _status(await self._http.object_of("POST", _PATH, body, "application/json", headers=beta))

    async def batches_since(self, since: float) -> list[tuple[str | None, BatchStatus]]:
        """The batches made since then, newest first, without tokens. Pages are read until an older batch comes."""
        found: list[tuple[str | None, BatchStatus]] = []
        after: str | None = None
        while True:
            query = {"limit": _PAGE} | ({} if after is None else {"after_id": after})
            page = await self._http.json("GET", f"{_PATH}?{urlencode(query)}")
            for entry in page.get("data") or ():
                status = _status(entry)
                if status.created_at is not None and status.created_at < since - _CLOCK_S:
                    return found
                found.append((None, status))
            last = page.get("last_id")
            if not page.get("has_more") or not isinstance(last, str) or last == after:
                return found
            after = last

    async def status(self, batch: str) -> BatchStatus:
        """The batch now."""
        return _status(await self._http.json("GET", f"{_PATH}/{quote(batch, safe='')}"))

    async def cancel(self, batch: str) -> None:
        """Ask for its end."""
        await self._http.json("POST", f"{_PATH}/{quote(batch, safe='')}/cancel", {})

    async def results(self, file: str) -> bytes:
        """The results of a batch; `file` is its id. The address that the status names is not asked: it could be anybody's."""
        return await self._http.content(f"{_PATH}/{quote(file, safe='')}/results")

    def line(self, data: dict[str, Any]) -> BatchLine | None:
        """The outcome of one request. `expired` and `canceled` say nothing about it, so it may be asked again."""
        key, result = data.get("custom_id"), data.get("result")
        if not isinstance(key, str) or not isinstance(result, dict):
            return None
        kind, message = result.get("type"), result.get("message")
        if kind == "succeeded" and isinstance(message, dict):
            return BatchLine(key, _response(message))
        if kind == "errored":
            error = result.get("error")
            error = error.get("error", error) if isinstance(error, dict) else {}
            error = error if isinstance(error, dict) else {}
            status = _STATUS_OF_ERROR.get(str(error.get("type")), 500)
            return BatchLine(key, ApiResponse(status, {}, {"error": error}, json.dumps(error)[:4000]))
        return BatchLine(key, AttemptError("server_error", f"the batch has no reply to it: {kind}", unbilled=True))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _response(message: Mapping[str, Any]) -> ApiResponse | AttemptError:
    from ragpipe.judging.clients.litellm_client import anthropic_completion

    blocks = [block for block in message.get("content") or () if isinstance(block, dict)]
    by_tool = any(block.get("type") == "tool_use" for block in blocks)
    try:
        return ApiResponse(200, {}, anthropic_completion(message, json_mode=by_tool), "")
    except Exception as error:
        reason = f"a message that cannot be read: {type(error).__name__}"
    return AttemptError("not_an_api_answer", reason)


def _status(data: Any) -> BatchStatus:
    batch, state = data.get("id"), data.get("processing_status")
    if not isinstance(batch, str) or not isinstance(state, str):
        raise AttemptError("not_an_api_answer", f"an answer of a Batch API without id and status: {str(data)[:200]}")
    counts = data.get("request_counts")
    counts = counts if isinstance(counts, dict) else {}
    ended = [count(counts, name) for name in ("succeeded", "errored", "canceled", "expired")]
    return BatchStatus(
        batch,
        state,
        ended=state == "ended",
        done=sum(ended),
        total=sum(ended) + count(counts, "processing"),
        created_at=_seconds(data.get("created_at")),
        expires_at=_seconds(data.get("expires_at")),
        files=(batch,) if state == "ended" else (),
    )


def _seconds(value: Any) -> float | None:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None
