"""Vectors by a provider: the judge's live transport, with a client that asks for embeddings.

The client hands the vector on where a chat answer has its text. So retries, rate limits, Retry-After, the breaker, keys
and prices are the judge's, in one place.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ragpipe.core.call import Call, Paid
from ragpipe.core.digest import sha256
from ragpipe.judge.client import ApiResponse, AttemptError
from ragpipe.judge.http_responses import billed_usage
from ragpipe.judge.litellm_client import LitellmClient
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.question import Question
from ragpipe.judge.vectors import vector_text

_LONGEST = 65_536  # numbers of a vector


class EmbeddingClient(LitellmClient):
    """litellm's `aembedding`, one text per request: each vector is its own call with its own key."""

    def prepare(self, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The text stands in the only message of the body."""
        asked: dict[str, Any] = {"input": [body["messages"][0]["content"]], "encoding_format": "float"}
        self._open()
        return asked, sha256({"model": self._settings.model, **asked})

    async def send(self, request: dict[str, Any]) -> ApiResponse:
        fixed = {name: value for name, value in self._fixed.items() if name != "num_retries"}
        response, headers = await self._sent("aembedding", **fixed, **request)
        return response if isinstance(response, ApiResponse) else _as_chat(response, headers)


def _as_chat(response: Any, headers: Mapping[str, str]) -> ApiResponse:
    """The response as an answer in chat form. Raises AttemptError for one that holds no vector."""
    data = getattr(response, "data", None)
    first = data[0] if isinstance(data, list) and len(data) == 1 else None
    values = first.get("embedding") if isinstance(first, dict) else getattr(first, "embedding", None)
    tokens = getattr(getattr(response, "usage", None), "prompt_tokens", None)
    asked = {"prompt_tokens": tokens, "completion_tokens": 0} if tokens is not None else None
    if (vector := _numbers(values)) is None:
        billed = billed_usage({"usage": asked})
        raise AttemptError("not_an_api_answer", "an answer without one vector of finite numbers", partial=billed)
    content = {
        "choices": [{"finish_reason": "stop", "message": {"content": vector_text(vector)}}],
        "model": getattr(response, "model", None),
        "usage": asked,
        "object": "embedding",  # which has no completion tokens
    }
    return ApiResponse(200, headers, content, "")


def _numbers(values: Any) -> Any:
    """float32 numbers, from a list or from base64; None when there are none."""
    if isinstance(values, str):
        try:
            values = np.frombuffer(base64.b64decode(values, validate=True), dtype="<f4").tolist()
        except (binascii.Error, ValueError):
            return None
    if not isinstance(values, list) or not 0 < len(values) <= _LONGEST:
        return None
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in values):
        return None
    vector = np.array(values, dtype=np.float32)
    return vector if np.all(np.isfinite(vector)) else None


class ApiTransport(LiveTransport):
    """The live transport of one embedder."""

    section = "embedder"

    def _open(self) -> Any:
        if self._client is None:
            super()._open()  # says what is wrong with the key
            self._client = EmbeddingClient(self.settings, self._key)
        return self._client

    async def ask(self, question: Question, paid: Paid) -> Call:
        return replace(await super().ask(question, paid), output_mode="vector")
