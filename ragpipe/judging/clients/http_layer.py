"""The HTTP layer under all clients: it sends a request once and returns the complete response, or says why none came.

A response has at most `MAX_BODY` decoded bytes, counted as they arrive. The layer follows no redirects (the key stays with
the host it is meant for), keeps no cookies, verifies TLS, and uses the user's proxy for public addresses.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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


class IncomingResponse:
    """A response whose body is still to come: iterate over `pieces` once, or take all of it with `body`."""

    def __init__(self, response: aiohttp.ClientResponse, most_bytes: int):
        self.status, self.headers = response.status, response.headers
        self._response, self._most_bytes = response, most_bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """The decoded body as it arrives. Raises AttemptError where it is too long or not in its encoding."""
        decoder = self._decoder()
        async for piece in self._response.content.iter_any():
            if decoded := decoder.feed(piece):
                yield decoded
        decoder.close()

    async def body(self) -> bytes:
        """The whole decoded body. Raises as `pieces`."""
        decoder, decoded = self._decoder(), []
        while piece := await self._response.content.readany():
            decoded.append(decoder.feed(piece))
        decoder.close()
        return b"".join(decoded)

    def _decoder(self) -> _Decoder:
        length = self._response.content_length or 0
        if length > self._most_bytes:
            raise AttemptError("not_an_api_answer", f"an answer of {length:,} bytes", permanent=True)
        return _Decoder(self.headers.get("Content-Encoding", "").strip().lower(), self._most_bytes)


class HttpConnections:
    """The HTTP connections of one event loop.

    Args:
        limit: How many may be open at once; 0: any number.
        most_bytes: The longest decoded body that is read.
    """

    def __init__(self, limit: int, most_bytes: int = MAX_BODY):
        self._limit, self._most_bytes = limit, most_bytes
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, Proxy | None] = {}  # by scheme and host: a client asks one or two

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request. Raises AttemptError when no complete response came."""
        # written out instead of in `exchange`: a generator's context costs each judged call a fortieth of its CPU
        try:
            async with self._request(method, url, headers, body) as response:
                incoming = self._incoming(response)
                return HttpResponse(incoming.status, incoming.headers, await incoming.body())
        except AttemptError:
            raise
        except Exception as error:
            attempt_error = _attempt_error(error, url, self._proxy(url))
        raise attempt_error from None

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[IncomingResponse]:
        """Send a request; inside, its response can be read as it arrives. Raises AttemptError when none comes, or while it is
        read."""
        try:
            async with self._request(method, url, headers, body) as response:
                yield self._incoming(response)
                return
        except AttemptError:
            raise
        except Exception as error:  # no library's exception leaves here: it may contain headers, and so the key
            attempt_error = _attempt_error(error, url, self._proxy(url))
        raise attempt_error from None

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        proxy = self._proxy(url)
        if proxy is not None and not proxy.is_http:
            raise AttemptError(
                "unreachable",
                f"the proxy {proxy} is no HTTP proxy: it must begin with http:// or https://",
                no_connection=True,
            )
        sent_headers = {**headers, "Accept-Encoding": "gzip, deflate"}
        return self._open().request(
            method, url, data=body, headers=sent_headers, allow_redirects=False, proxy=proxy.url if proxy else None
        )

    def _incoming(self, response: aiohttp.ClientResponse) -> IncomingResponse:
        if response.status == _PROXY_REFUSED:
            proxy = self._proxy(str(response.request_info.url)) or "on the way"
            raise AttemptError("unreachable", f"the proxy {proxy} wants another user or password (status 407)")
        return IncomingResponse(response, self._most_bytes)

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
    """Decodes a body as it arrives, up to a number of bytes."""

    def __init__(self, encoding: str, most_bytes: int):
        self._encoding, self._most_bytes = encoding, most_bytes
        self._size = 0
        self._began = False
        self._decompressor = self._new_decompressor(first=True)

    def feed(self, piece: bytes) -> bytes:
        """The next bytes, decoded. Raises AttemptError where they are too many or not in the encoding."""
        pieces = []
        while piece:
            if self._decompressor is None:
                decoded, piece = piece, b""
            else:
                decoded, piece = self._decompress(piece)
            self._began = True
            self._size += len(decoded)
            if self._size > self._most_bytes:
                raise AttemptError(
                    "not_an_api_answer", f"an answer of more than {self._most_bytes:,} bytes", permanent=True
                )
            pieces.append(decoded)
        return b"".join(pieces)

    def close(self) -> None:
        """The body has ended. Raises AttemptError where its stream was cut."""
        if self._decompressor is not None and self._began and not self._decompressor.eof:
            raise AttemptError("network", f"the connection broke: the answer's {self._encoding} stream was cut")

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
        room = self._most_bytes - self._size + 1
        try:
            decoded = self._decompressor.decompress(piece, room)
        except zlib.error as error:
            if self._encoding == "deflate" and not self._began:  # some servers leave zlib's header out
                self._began = True
                self._decompressor = self._new_decompressor()
                return b"", piece
            raise AttemptError("not_an_api_answer", f"an answer that is no {self._encoding} stream: {error}") from None
        return decoded, self._decompressor.unused_data or self._decompressor.unconsumed_tail


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
        refusal = f"status {error.status} {' '.join(error.message.split())[:200]}"  # its full text has the proxy's URL
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
