"""The direct client: OpenAI-compatible endpoints over aiohttp, about a tenth of litellm's CPU time per call."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ragpipe.judging.clients.client import ApiResponse, PreparedRequest
from ragpipe.judging.clients.http_layer import Http
from ragpipe.judging.settings import JudgeSettings

OPENAI = "https://api.openai.com/v1"


class DirectClient:
    def __init__(self, settings: JudgeSettings, key: str | None):
        self._model = settings.name
        self._url = (settings.api_base or OPENAI) + "/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._http = Http(settings.concurrency + 1)

    def prepare(self, body: dict[str, Any]) -> PreparedRequest:
        raw = json.dumps({"model": self._model, **body}).encode("ascii")
        return PreparedRequest(raw, hashlib.sha256(raw).hexdigest())

    async def send(self, prepared: PreparedRequest) -> ApiResponse:
        answer = await self._http.send("POST", self._url, headers=self._headers, body=prepared.content)
        try:
            data = json.loads(answer.body)
        except (ValueError, RecursionError):
            data = None
        whole = answer.status == 200 and isinstance(data, dict)
        text = "" if whole else answer.body[:4000].decode("utf-8", "replace")
        return ApiResponse(answer.status, {k.lower(): v for k, v in answer.headers.items()}, data, text)

    async def close(self) -> None:
        await self._http.close()
