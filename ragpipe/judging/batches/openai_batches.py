"""The Batch API of OpenAI, and of servers that are compatible with it: an input file, a batch over it, two files of results.

Its requests go over ragpipe's own HTTP layer and not through litellm, whose calls for batches open a client of the openai
library each time: one that follows redirects and knows other rules for proxies (docs/decisions/0050-batches-on-disk.md).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ragpipe.judging.batches.batch_api import BatchLine, BatchStatus
from ragpipe.judging.batches.batch_http import BatchHttp, count
from ragpipe.judging.clients.client import ApiResponse, AttemptError
from ragpipe.judging.settings import JudgeSettings

_OPENAI = "https://api.openai.com/v1"
_ENDPOINT = "/v1/chat/completions"
_TOKEN = "ragpipe"
"""The name of the token in a batch's metadata."""
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_PAGE = 100  # batches of one page of the list
_CLOCK_S = 300.0  # seconds by which the provider's clock may be behind


class OpenAIBatches:
    """Batches of chat completions at an OpenAI-compatible server."""

    carries_token = True

    def __init__(self, settings: JudgeSettings, key: str | None):
        self._model = settings.name
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._http = BatchHttp(settings.api_base or _OPENAI, headers, settings.timeout_s)

    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        """One line of the input file."""
        line = {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": {"model": self._model, **body}}
        return json.dumps(line).encode("ascii")

    def join(self, requests: Sequence[bytes]) -> bytes:
        """The input file."""
        return b"\n".join(requests) + b"\n"

    async def upload(self, body: bytes) -> str | None:
        """Upload the input file; its id."""
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="ragpipe.jsonl"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        form = head.encode("ascii") + body + f"\r\n--{boundary}--\r\n".encode("ascii")
        data = await self._http.object_of("POST", "/files", form, f"multipart/form-data; boundary={boundary}")
        return _text(data, "id")

    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        """Make a batch of an uploaded file."""
        request = {
            "input_file_id": upload,
            "endpoint": _ENDPOINT,
            "completion_window": "24h",
            "metadata": {_TOKEN: token},
        }
        return _status(await self._http.json("POST", "/batches", request))

    async def batches_since(self, since: float) -> list[tuple[str | None, BatchStatus]]:
        """The batches made since then, newest first. Pages are read until an older batch comes."""
        found: list[tuple[str | None, BatchStatus]] = []
        after: str | None = None
        while True:
            query = {"limit": _PAGE} | ({} if after is None else {"after": after})
            page = await self._http.json("GET", f"/batches?{urlencode(query)}")
            batches = [entry for entry in page.get("data") or () if isinstance(entry, dict)]
            for entry in batches:
                status = _status(entry)
                if status.created_at is not None and status.created_at < since - _CLOCK_S:
                    return found
                metadata = entry.get("metadata")
                token = metadata.get(_TOKEN) if isinstance(metadata, dict) else None
                found.append((token if isinstance(token, str) else None, status))
            last = _text(batches[-1], "id") if batches else None
            if not page.get("has_more") or last is None or last == after:
                return found
            after = last

    async def status(self, batch: str) -> BatchStatus:
        """The batch now."""
        return _status(await self._http.json("GET", f"/batches/{quote(batch, safe='')}"))

    async def cancel(self, batch: str) -> None:
        """Ask for its end."""
        await self._http.json("POST", f"/batches/{quote(batch, safe='')}/cancel", {})

    async def results(self, file: str) -> bytes:
        """The bytes of a file of results."""
        return await self._http.content(f"/files/{quote(file, safe='')}/content")

    def line(self, data: dict[str, Any]) -> BatchLine | None:
        """The outcome of one request, from the file of outputs or that of errors."""
        key, response, error = data.get("custom_id"), data.get("response"), data.get("error")
        if not isinstance(key, str):
            return None
        if isinstance(response, dict) and isinstance(response.get("status_code"), int):
            body = response.get("body")
            return BatchLine(key, ApiResponse(response["status_code"], {}, body, json.dumps(body)[:4000]))
        words = _error_text(error) or "no response and no error"
        return BatchLine(key, AttemptError("server_error", f"the batch has no reply to it: {words}", unbilled=True))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _status(data: Mapping[str, Any]) -> BatchStatus:
    state = str(data.get("status") or "unknown")
    counts = data.get("request_counts")
    counts = counts if isinstance(counts, dict) else {}
    files = (data.get("output_file_id"), data.get("error_file_id"))
    named = tuple(file for file in files if isinstance(file, str) and file)
    errors = data.get("errors")
    entries = errors.get("data") if isinstance(errors, dict) else None
    words = [_error_text(entry) for entry in entries or () if isinstance(entry, dict)]
    return BatchStatus(
        _text(data, "id"),
        state,
        ended=state in _ENDED,
        refused=state == "failed" and not named,
        done=count(counts, "completed") + count(counts, "failed"),
        total=count(counts, "total"),
        created_at=_seconds(data.get("created_at")),
        expires_at=_seconds(data.get("expires_at")),
        files=named,
        message="; ".join(dict.fromkeys(filter(None, words)))[:500],
    )


def _error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)[:200] if error else ""
    return ": ".join(str(error[name])[:200] for name in ("code", "message") if error.get(name))


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _text(data: Mapping[str, Any], name: str) -> str:
    """A text that an answer must have. Raises AttemptError."""
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise AttemptError("not_an_api_answer", f"an answer of a Batch API without {name!r}: {str(dict(data))[:200]}")
    return value
