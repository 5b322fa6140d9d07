"""The HTTP layer under all clients: it sends a request once and returns the complete response, or says why none came.

A response has at most `MAX_BODY` decoded bytes, counted as they arrive. The layer follows no redirects (the key stays with
the host it is meant for), keeps no cookies, verifies TLS, and uses the user's proxy for public addresses.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from ragpipe.core.errors import FailureKind
from ragpipe.judging.clients.client import CONNECT_S, AttemptError
from ragpipe.judging.clients.proxies import Proxy, proxy_for

MAX_BODY = 32 << 20  # bytes; a judge's response has a few kilobytes
_PROXY_REFUSED = 407


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete HTTP response, decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnections:
    """The HTTP connections of one event loop. `limit` is how many may be open at once; 0: any number."""

    def __init__(self, limit: int):
        self._limit = limit
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, Proxy | None] = {}  # by scheme and host: a client asks one or two

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request. Raises AttemptError when no complete response came."""
        proxy = self._proxy(url)
        if proxy is not None and not proxy.is_http:
            raise AttemptError(
                "unreachable",
                f"the proxy {proxy} is no HTTP proxy: it must begin with http:// or https://",
                no_connection=True,
            )
        attempt_error: AttemptError
        try:
            response = await self._request(method, url, headers, body, proxy.url if proxy else None)
        except AttemptError as error:
            attempt_error = error
        except Exception as error:  # no library's exception leaves here: it may contain headers, and so the key
            attempt_error = _attempt_error(error, url, proxy)
        else:
            if response.status != _PROXY_REFUSED:
                return response
            attempt_error = AttemptError(
                "unreachable", f"the proxy {proxy or 'on the way'} wants another user or password (status 407)"
            )
        raise attempt_error from None

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, proxy: str | None
    ) -> HttpResponse:
        sent_headers = {**headers, "Accept-Encoding": "gzip, deflate"}
        async with self._open().request(
            method, url, data=body, headers=sent_headers, allow_redirects=False, proxy=proxy
        ) as response:
            return HttpResponse(response.status, response.headers, await _read_body(response))

    def _proxy(self, url: str) -> Proxy | None:
        """The proxy of these connections for the host of a URL, by the environment of the first request to it."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            self._proxies[origin] = proxy_for(url)
        return self._proxies[origin]

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._limit),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the total deadline is the caller's
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,  # it would also take passwords from ~/.netrc
                raise_for_status=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Decoder:
    """Decodes a body as it arrives, up to `MAX_BODY` bytes."""

    def __init__(self, encoding: str):
        self._encoding = encoding
        self._pieces: list[bytes] = []
        self._size = 0
        self._decompressor = self._new_decompressor(first=True)

    def feed(self, piece: bytes) -> None:
        """Decode the next bytes. Raises AttemptError where they are too many or not in the encoding."""
        while piece:
            if self._decompressor is None:
                decoded, piece = piece, b""
            else:
                decoded, piece = self._decompress(piece)
            self._size += len(decoded)
            if self._size > MAX_BODY:
                raise AttemptError("not_an_api_answer", f"an answer of more than {MAX_BODY:,} bytes", permanent=True)
            self._pieces.append(decoded)

    def result(self) -> bytes:
        """The decoded body. Raises AttemptError where the stream was cut."""
        if self._decompressor is not None and self._pieces and not self._decompressor.eof:
            raise AttemptError("network", f"the connection broke: the answer's {self._encoding} stream was cut")
        return b"".join(self._pieces)

    def _new_decompressor(self, *, first: bool = False):  # type: ignore[no-untyped-def]
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
            permanent=True,
        )

    def _decompress(self, piece: bytes) -> tuple[bytes, bytes]:
        """Some decoded bytes, and the rest of the piece that is still encoded."""
        if self._decompressor.eof:  # another member of a gzip stream follows
            self._decompressor = self._new_decompressor()
        room = MAX_BODY - self._size + 1
        try:
            decoded = self._decompressor.decompress(piece, room)
        except zlib.error as error:
            if self._encoding == "deflate" and not self._pieces:  # some servers leave zlib's header out
                self._pieces.append(b"")
                self._decompressor = self._new_decompressor()
                return b"", piece
            raise AttemptError("not_an_api_answer", f"an answer that is no {self._encoding} stream: {error}") from None
        return decoded, self._decompressor.unused_data or self._decompressor.unconsumed_tail


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    if (response.content_length or 0) > MAX_BODY:
        raise AttemptError("not_an_api_answer", f"an answer of {response.content_length:,} bytes", permanent=True)
    decoder = _Decoder(response.headers.get("Content-Encoding", "").strip().lower())
    async for piece in response.content.iter_any():
        decoder.feed(piece)
    return decoder.result()


def _attempt_error(error: Exception, url: str, proxy: Proxy | None) -> AttemptError:
    """What an exception of aiohttp means. Its own texts contain host and port only."""
    unconnected = _connection_error(error, url, proxy)
    if unconnected is not None:
        return AttemptError(*unconnected, no_connection=True)
    cause = _cause(error) if isinstance(error, aiohttp.ClientError | OSError) else type(error).__name__
    return AttemptError("network", f"the connection broke{_through(proxy)}: {cause}")


def _through(proxy: Proxy | None) -> str:
    return f" through the proxy {proxy}" if proxy else ""


def _connection_error(error: Exception, url: str, proxy: Proxy | None) -> tuple[FailureKind, str] | None:
    """Kind and message where no connection could be made at all, else None."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        refusal = f"status {error.status} {_cause(error)}"
        return "unreachable", f"the proxy {proxy} does not let this through: {refusal}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "network", f"no connection to the proxy {proxy}: {_cause(error)}"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "unreachable", f"TLS{_through(proxy)}: {_cause(error)}{_tls_hint(error)}"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "network", f"no connection{_through(proxy)}: {_cause(error)}"
    if isinstance(error, aiohttp.ClientResponseError) and url.startswith("http:") and _is_tls_alert(error):
        return "unreachable", "a TLS server: its address begins with https://"
    if isinstance(error, aiohttp.InvalidURL):
        return "unreachable", f"no URL that can be asked: {_cause(error)}"
    return None


def _tls_hint(error: Exception) -> str:
    text = str(error)
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return " (a server without TLS? Its address then begins with http://)"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return " (for an authority of your own: the environment variable SSL_CERT_FILE names its certificate)"
    return ""


def _is_tls_alert(error: aiohttp.ClientResponseError) -> bool:
    """Whether the response is a TLS alert (its first bytes are 0x15 0x03), as TLS servers send it to plain HTTP."""
    return "\\x15\\x03" in str(error.message) or "\x15\x03" in str(error.message)


def _cause(error: BaseException) -> str:
    """What went wrong, in one line."""
    return (str(error) or type(error).__name__).split("\n")[0][:300]
