"""The direct client: OpenAI-compatible endpoints over aiohttp, with about a tenth of litellm's CPU time per call."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ragpipe.judging.clients.client import ApiResponse, PreparedRequest
from ragpipe.judging.clients.http_layer import HttpConnections
from ragpipe.judging.settings import JudgeSettings

_OPENAI = "https://api.openai.com/v1"


class DirectClient:
    """Sends chat completions to one OpenAI-compatible endpoint."""

    def __init__(self, settings: JudgeSettings, key: str | None):
        self._model = settings.name
        self._url = (settings.api_base or _OPENAI) + "/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._http = HttpConnections(settings.concurrency + 1)

    def prepare(self, body: dict[str, Any]) -> PreparedRequest:
        """Build a request from a body without the model's name."""
        encoded = json.dumps({"model": self._model, **body}).encode("ascii")
        return PreparedRequest(encoded, hashlib.sha256(encoded).hexdigest())

    async def send(self, request: PreparedRequest) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP response came."""
        response = await self._http.send("POST", self._url, headers=self._headers, body=request.body)
        try:
            data = json.loads(response.body)
        except (ValueError, RecursionError):
            data = None
        if response.status == 200 and isinstance(data, dict):
            return ApiResponse(
                response.status, response.headers, data
            )  # aiohttp's mapping ignores upper and lower case
        headers = {name.lower(): value for name, value in response.headers.items()}
        return ApiResponse(response.status, headers, data, response.body[:4000].decode("utf-8", "replace"))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
