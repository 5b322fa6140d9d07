"""The direct client: OpenAI-compatible endpoints over aiohttp, about a tenth of litellm's CPU time a call.

It follows no redirects (the key stays with the host it is meant for), reads no proxy settings from the environment and
verifies TLS.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from typing import Any

import aiohttp

from ragpipe.judging.clients.base import CONNECT_S, Fault, Prepared, Reply
from ragpipe.judging.settings import JudgeSettings

MAX_BODY = 32 << 20  # bytes; an answer of a judge is some kilobytes
OPENAI = "https://api.openai.com/v1"


class DirectClient:
    def __init__(self, settings: JudgeSettings, key: str | None):
        self._model = settings.name
        self._url = (settings.api_base or OPENAI) + "/chat/completions"
        self._limit = settings.concurrency + 1
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None

    def prepare(self, body: dict[str, Any]) -> Prepared:
        raw = json.dumps({"model": self._model, **body}).encode("ascii")
        return Prepared(raw, hashlib.sha256(raw).hexdigest())

    async def send(self, prepared: Prepared) -> Reply:
        fault: Fault
        try:
            async with self._open().post(self._url, data=prepared.content, allow_redirects=False) as response:
                return await _read(response)
        except aiohttp.ClientSSLError as error:
            fault = Fault("unreachable", f"TLS: {_cause(error)}", connect=True)
        except ssl.SSLError as error:
            fault = Fault("unreachable", f"TLS: {_cause(error)}", connect=True)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            fault = Fault("network", f"no connection: {_cause(error)}", connect=True)
        except (aiohttp.ClientError, OSError) as error:
            fault = Fault("network", f"the connection broke: {_cause(error)}")
        raise fault  # outside of the except blocks: the library's exception may hold headers, and so the key

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=self._limit),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the total deadline is the caller's
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                raise_for_status=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _read(response: aiohttp.ClientResponse) -> Reply:
    if (response.content_length or 0) > MAX_BODY:
        response.close()
        raise Fault("not_an_api_answer", f"an answer of {response.content_length:,} bytes")
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > MAX_BODY:
            response.close()
            raise Fault("not_an_api_answer", f"an answer of more than {MAX_BODY:,} bytes")
        pieces.append(piece)
    raw = b"".join(pieces)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    text = "" if response.status == 200 and isinstance(data, dict) else raw[:4000].decode("utf-8", "replace")
    return Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, data, text)


def _cause(error: BaseException) -> str:
    """What went wrong, without the request's headers (aiohttp's own texts hold host and port only)."""
    return (str(error) or type(error).__name__).split("\n")[0][:300]
