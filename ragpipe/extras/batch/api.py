"""The Batch APIs of OpenAI, of servers that are compatible with it, and of Anthropic.

Their requests go over ragpipe's own HTTP layer: its proxies, its limits, no redirects, one attempt each. litellm translates
requests and messages of Anthropic, as it does for live questions (docs/decisions/0050-batches-on-disk.md says why it does no more).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http import HttpConnections, HttpResponse, api_response, json_of
from ragpipe.judge.http_responses import parse_response
from ragpipe.judge.settings import JudgeSettings

MOST_RESULT_BYTES = 1 << 30
"""Bytes of one file of results. A batch has at most 250 MB, and replies are mostly shorter than questions."""
_TRANSFER_S = 900.0  # seconds for a file
_PAGE = 100  # batches of one page of the list
_CLOCK_S = 300.0  # seconds by which the provider's clock may be behind
_JSON = "application/json"

Outcome = ApiResponse | AttemptError
"""What became of one request: the response that a live one would have got, or why there is none."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch as its provider describes it.

    `ended`: no further reply will come. `refused` says why it ended without any, where its input was not accepted. `total`
    counts its requests. `created_at` and `expires_at` are in epoch seconds, None where they are not named. `files` are the names
    of its results, in any number. `token` is None where the provider shows none.
    """

    id: str
    ended: bool
    refused: str = ""
    total: int = 0
    created_at: float | None = None
    expires_at: float | None = None
    files: tuple[str, ...] = ()
    token: str | None = None


class BatchApi(ABC):
    """Makes batches at one provider, and reads them. Every method asks once; each raises AttemptError as a client does.

    Used within one event loop, and closed in it.
    """

    shows_token: ClassVar[bool]
    """Whether the provider shows a batch's token, by which it is found again; where not, its results tell."""
    _path: ClassVar[str]
    _after: ClassVar[str]  # the parameter of the list that names the last batch of the page before

    def __init__(self, settings: JudgeSettings, base: str, headers: Mapping[str, str]):
        self._model, self._timeout_s = settings.name, settings.timeout_s
        self._base, self._headers = base.rstrip("/"), {"Accept": _JSON, **headers}
        self._http = HttpConnections(4, MOST_RESULT_BYTES)

    @abstractmethod
    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        """One request of a batch, from the body of a live one without the model's name."""

    @abstractmethod
    def join(self, requests: Sequence[bytes]) -> bytes:
        """The body of a batch from its requests."""

    async def upload(self, body: bytes) -> str | None:
        """Upload the body and return its name; None where it goes with `create`."""
        return None

    @abstractmethod
    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        """Make a batch. After an error it may exist all the same."""

    async def batches_since(self, since: float) -> list[BatchStatus]:
        """The batches made since then (epoch seconds), newest first. Pages are read until an older batch comes."""
        found: list[BatchStatus] = []
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            page = await self._object("GET", f"{self._path}?{urlencode(query)}")
            for entry in page.get("data") or ():
                status = self._status(entry)
                if status.created_at is not None and status.created_at < since - _CLOCK_S:
                    return found
                found.append(status)
            if not page.get("has_more") or not found or query.get(self._after) == found[-1].id:
                return found
            query[self._after] = found[-1].id

    async def status(self, batch: str) -> BatchStatus:
        """The batch now."""
        return self._status(await self._object("GET", f"{self._path}/{quote(batch, safe='')}"))

    async def cancel(self, batch: str) -> None:
        """Ask for its end; replies that are there are kept."""
        await self._object("POST", f"{self._path}/{quote(batch, safe='')}/cancel", b"{}")

    async def results(self, file: str) -> bytes:
        """The bytes of one of its `files`: JSON lines in any order."""
        return (await self._send("GET", self._results_path(quote(file, safe="")), seconds=_TRANSFER_S)).body

    @abstractmethod
    def outcome(self, data: dict[str, Any]) -> tuple[str, Outcome] | None:
        """The key and the outcome in one line of a result; None where it names no request."""

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    @abstractmethod
    def _status(self, data: Any) -> BatchStatus: ...

    @abstractmethod
    def _results_path(self, file: str) -> str: ...

    async def _object(self, method: str, path: str, body: bytes = b"", **how: Any) -> dict[str, Any]:
        """The JSON object of an answer. Raises AttemptError for any other."""
        response = await self._send(method, path, body, **how)
        if not isinstance(data := json_of(response), dict):
            text = response.body[:200].decode("utf-8", "replace")
            raise AttemptError("not_an_api_answer", f"not an answer of a Batch API (a proxy?): {text}")
        return data

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        kind: str = _JSON,
        seconds: float | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> HttpResponse:
        """The answer to one request, which has status 200. Raises AttemptError for any other."""
        seconds = self._timeout_s if seconds is None else seconds
        sent = {**self._headers, **headers, **({"Content-Type": kind} if body else {})}
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.send(method, self._base + path, headers=sent, body=body)
        except TimeoutError:
            raise AttemptError("deadline", f"no whole answer within {seconds:g} s") from None
        if response.status != 200:
            parse_response(api_response(response))
        return response


class OpenAIBatches(BatchApi):
    """Batches of chat completions at an OpenAI-compatible server: an input file, a batch over it, two files of results."""

    shows_token = True
    _path, _after = "/batches", "after"
    _endpoint = "/v1/chat/completions"
    _token = "ragpipe"  # the name of the token in a batch's metadata

    def __init__(self, settings: JudgeSettings, key: str | None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        super().__init__(settings, settings.api_base or "https://api.openai.com/v1", headers)

    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        line = {"custom_id": key, "method": "POST", "url": self._endpoint, "body": {"model": self._model, **body}}
        return json.dumps(line).encode("ascii")

    def join(self, requests: Sequence[bytes]) -> bytes:
        return b"\n".join(requests) + b"\n"

    async def upload(self, body: bytes) -> str | None:
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="ragpipe.jsonl"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        form = head.encode("ascii") + body + f"\r\n--{boundary}--\r\n".encode("ascii")
        kind = f"multipart/form-data; boundary={boundary}"
        return _text(await self._object("POST", "/files", form, kind=kind, seconds=_TRANSFER_S), "id")

    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        request: dict[str, Any] = {"input_file_id": upload, "endpoint": self._endpoint, "completion_window": "24h"}
        request["metadata"] = {self._token: token}
        return self._status(await self._object("POST", self._path, json.dumps(request).encode("ascii")))

    def outcome(self, data: dict[str, Any]) -> tuple[str, Outcome] | None:
        """From the file of outputs or that of errors."""
        key, response = data.get("custom_id"), data.get("response")
        if not isinstance(key, str):
            return None
        if isinstance(response, dict) and isinstance(response.get("status_code"), int):
            body = response.get("body")
            return key, ApiResponse(response["status_code"], {}, body, json.dumps(body)[:4000])
        return key, _no_reply(_error_text(data.get("error")) or "no response and no error")

    def _results_path(self, file: str) -> str:
        return f"/files/{file}/content"

    def _status(self, data: Any) -> BatchStatus:
        state, name = str(_dict(data).get("status") or "unknown"), _text(data, "id")
        files = tuple(data[key] for key in ("output_file_id", "error_file_id") if isinstance(data.get(key), str))
        errors = [_error_text(entry) for entry in _dict(data.get("errors")).get("data") or ()]
        is_refused = state == "failed" and not any(files)
        token = _dict(data.get("metadata")).get(self._token)
        return BatchStatus(
            name,
            ended=state in ("completed", "failed", "expired", "cancelled"),
            refused=("; ".join(dict.fromkeys(filter(None, errors)))[:500] or state) if is_refused else "",
            total=_count(data.get("request_counts"), "total"),
            created_at=_seconds(data.get("created_at")),
            expires_at=_seconds(data.get("expires_at")),
            files=tuple(filter(None, files)),
            token=token if isinstance(token, str) else None,
        )


class AnthropicBatches(BatchApi):
    """Anthropic's Message Batches: the requests go with the batch, and one file has the results. A batch shows no token: it is
    known by the keys in its results."""

    shows_token = False
    _path, _after = "/v1/messages/batches", "after_id"
    _schema_beta = "structured-outputs-2025-11-13"
    _status_of_error: ClassVar[dict[str, int]] = {
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

    def __init__(self, settings: JudgeSettings, key: str | None):
        headers = {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
        super().__init__(settings, (settings.api_base or "https://api.anthropic.com").removesuffix("/v1"), headers)

    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        from ragpipe.judge.litellm_client import anthropic_request

        return json.dumps({"custom_id": key, "params": anthropic_request(self._model, body)}).encode("ascii")

    def join(self, requests: Sequence[bytes]) -> bytes:
        return b'{"requests":[' + b",".join(requests) + b"]}"

    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        beta = {"anthropic-beta": self._schema_beta} if b'"output_format":' in body else {}
        return self._status(await self._object("POST", self._path, body, seconds=_TRANSFER_S, headers=beta))

    def outcome(self, data: dict[str, Any]) -> tuple[str, Outcome] | None:
        """`expired` and `canceled` say nothing about a request, so it may be asked again."""
        key, result = data.get("custom_id"), data.get("result")
        if not isinstance(key, str) or not isinstance(result, dict):
            return None
        kind, message = result.get("type"), result.get("message")
        if kind == "succeeded" and isinstance(message, dict):
            return key, _message_response(message)
        if kind == "errored":
            error = _dict(result.get("error"))
            error = _dict(error.get("error", error))
            status = self._status_of_error.get(str(error.get("type")), 500)
            return key, ApiResponse(status, {}, {"error": error}, json.dumps(error)[:4000])
        return key, _no_reply(str(kind))

    def _results_path(self, file: str) -> str:
        """`file` is the id of the batch. The address that its status names is not asked: it could be anybody's."""
        return f"{self._path}/{file}/results"

    def _status(self, data: Any) -> BatchStatus:
        batch, ended = _text(data, "id"), _text(data, "processing_status") == "ended"
        counts = ("succeeded", "errored", "canceled", "expired", "processing")
        total = sum(_count(data.get("request_counts"), name) for name in counts)
        created, expires = (_seconds(data.get(name)) for name in ("created_at", "expires_at"))
        files = (batch,) if ended else ()
        return BatchStatus(batch, ended, total=total, created_at=created, expires_at=expires, files=files)


def _message_response(message: Mapping[str, Any]) -> Outcome:
    from ragpipe.judge.litellm_client import anthropic_completion

    blocks = [block for block in message.get("content") or () if isinstance(block, dict)]
    by_tool = any(block.get("type") == "tool_use" for block in blocks)
    try:
        return ApiResponse(200, {}, anthropic_completion(message, json_mode=by_tool), "")
    except Exception as error:
        return AttemptError("not_an_api_answer", f"a message that cannot be read: {type(error).__name__}")


def _no_reply(why: str) -> AttemptError:
    return AttemptError("server_error", f"the batch has no reply to it: {why}", unbilled=True)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)[:200] if error else ""
    return ": ".join(str(error[name])[:200] for name in ("code", "message") if error.get(name))


def _seconds(value: Any) -> float | None:
    """A moment in epoch seconds, of a number or of an ISO date; None for anything else."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value) or None
    except (ValueError, TypeError):
        return None


def _count(counts: Any, name: str) -> int:
    value = _dict(counts).get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def _text(data: Any, name: str) -> str:
    """A text that an answer must have. Raises AttemptError."""
    value = _dict(data).get(name)
    if not isinstance(value, str) or not value:
        raise AttemptError("not_an_api_answer", f"an answer of a Batch API without {name!r}: {str(data)[:200]}")
    return value
