"""The one HTTP layer under all clients: it sends a request once and gives the whole answer, or says why none came.

No answer holds more than `MAX_BODY` decoded bytes: they are counted as they come. It follows no redirects (the key stays
with the host it is meant for), keeps no cookies, verifies TLS, and goes through the user's proxy to public addresses.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from ragpipe.judging.clients.client import CONNECT_S, AttemptError
from ragpipe.judging.clients.proxies import Proxy, proxy_for

MAX_BODY = 32 << 20  # bytes; an answer of a judge is some kilobytes
_PROXY_REFUSED = 407


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole HTTP answer, decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Connections of one event loop. `width` is how many may be open at once."""

    def __init__(self, width: int):
        self._width = width
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request. Raises AttemptError when no whole answer came: `connect` where there was no connection at all."""
        proxy = proxy_for(url)
        if proxy is not None and not proxy.spoken:
            raise AttemptError(
                "unreachable",
                f"the proxy {proxy} is no HTTP proxy: it must begin with http:// or https://",
                connect=True,
            )
        asked = {**headers, "Accept-Encoding": "gzip, deflate"}
        fault: AttemptError
        try:
            async with self._open().request(
                method, url, data=body, headers=asked, allow_redirects=False, proxy=proxy.url if proxy else None
            ) as response:
                found = HttpResponse(response.status, response.headers, await _body(response))
        except AttemptError as known:
            fault = known
        except Exception as error:  # no library's exception leaves here: it may hold headers, and so the key
            fault = _fault(error, url, proxy)
        else:
            if found.status != _PROXY_REFUSED:
                return found
            fault = AttemptError(
                "unreachable", f"the proxy {proxy or 'on the way'} wants another user or password (status 407)"
            )
        raise fault from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._width),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the total deadline is the caller's
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,  # it would take passwords from ~/.netrc, too
                raise_for_status=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Decoder:
    """A body's bytes, decoded as they come and never more than `MAX_BODY` of them."""

    def __init__(self, encoding: str):
        self._encoding = encoding
        self._pieces: list[bytes] = []
        self._size = 0
        self._inflate = self._new(first=True)

    def feed(self, piece: bytes) -> None:
        while piece:
            if self._inflate is None:
                found, piece = piece, b""
            else:
                found, piece = self._inflated(piece)
            self._size += len(found)
            if self._size > MAX_BODY:
                raise AttemptError("not_an_api_answer", f"an answer of more than {MAX_BODY:,} bytes", final=True)
            self._pieces.append(found)

    def whole(self) -> bytes:
        if self._inflate is not None and self._pieces and not self._inflate.eof:
            raise AttemptError("network", f"the connection broke: the answer's {self._encoding} stream was cut")
        return b"".join(self._pieces)

    def _new(self, *, first: bool = False):  # type: ignore[no-untyped-def]
        if self._encoding in ("", "identity"):
            return None
        if self._encoding in ("gzip", "x-gzip"):
            return zlib.decompressobj(31)
        if self._encoding == "deflate":
            return zlib.decompressobj(15 if first else -15)
        raise AttemptError(
            "not_an_api_answer",
            f"an answer in the encoding {self._encoding[:40]!r}: gzip or deflate was asked for "
            "(Accept-Encoding), or none",
            final=True,
        )

    def _inflated(self, piece: bytes) -> tuple[bytes, bytes]:
        """Some decoded bytes, and what of the piece is still to be decoded."""
        if self._inflate.eof:  # another member of a gzip stream follows
            self._inflate = self._new()
        room = MAX_BODY - self._size + 1
        try:
            found = self._inflate.decompress(piece, room)
        except zlib.error as error:
            if self._encoding == "deflate" and not self._pieces:  # some servers leave zlib's header out
                self._pieces.append(b"")
                self._inflate = self._new()
                return b"", piece
            raise AttemptError("not_an_api_answer", f"an answer that is no {self._encoding} stream: {error}") from None
        return found, self._inflate.unused_data or self._inflate.unconsumed_tail


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if (response.content_length or 0) > MAX_BODY:
        raise AttemptError("not_an_api_answer", f"an answer of {response.content_length:,} bytes", final=True)
    decoder = _Decoder(response.headers.get("Content-Encoding", "").strip().lower())
    async for piece in response.content.iter_any():
        decoder.feed(piece)
    return decoder.whole()


def _fault(error: Exception, url: str, proxy: Proxy | None) -> AttemptError:
    """What an exception of the library means. `aiohttp`'s own texts hold host and port only."""
    way = f" through the proxy {proxy}" if proxy else ""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return AttemptError(
            "unreachable",
            f"the proxy {proxy} does not let this through: status {error.status} {_cause(error)}",
            connect=True,
        )
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return AttemptError("network", f"no connection to the proxy {proxy}: {_cause(error)}", connect=True)
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return AttemptError("unreachable", f"TLS{way}: {_cause(error)}{_tls_hint(error)}", connect=True)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return AttemptError("network", f"no connection{way}: {_cause(error)}", connect=True)
    if isinstance(error, aiohttp.ClientResponseError) and url.startswith("http:") and _is_alert(error):
        return AttemptError("unreachable", "a TLS server: its address begins with https://", connect=True)
    if isinstance(error, aiohttp.InvalidURL):
        return AttemptError("unreachable", f"no URL that can be asked: {_cause(error)}", connect=True)
    if isinstance(error, aiohttp.ClientError | OSError):
        return AttemptError("network", f"the connection broke{way}: {_cause(error)}")
    return AttemptError("network", f"the connection broke{way}: {type(error).__name__}")


def _tls_hint(error: Exception) -> str:
    text = str(error)
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return " (a server without TLS? Its address then begins with http://)"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return " (for an authority of your own: the environment variable SSL_CERT_FILE names its certificate)"
    return ""


def _is_alert(error: aiohttp.ClientResponseError) -> bool:
    """Whether what came is a TLS alert (its first bytes are 0x15 0x03), as TLS servers send it to plain HTTP."""
    return "\\x15\\x03" in str(error.message) or "\x15\x03" in str(error.message)


def _cause(error: BaseException) -> str:
    """What went wrong, in one line."""
    return (str(error) or type(error).__name__).split("\n")[0][:300]
