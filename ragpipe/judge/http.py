"""The HTTP layer under all clients: it sends a request once and returns the complete response, or says why none came.

A response has at most `MAX_BODY` decoded bytes, counted as they arrive. The layer follows no redirects (the key stays with
the host it is meant for), keeps no cookies, verifies TLS, and uses the user's proxy for public addresses.

Which proxy a request goes through, by the environment variables that every tool reads.

`HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` (or in lower case) name it; `NO_PROXY` lists the exceptions. A loopback address
never goes through a proxy. A private host (a private or link-local IP address, a name without a dot, `.local`, `.internal`)
does so only where `NO_PROXY` is set and does not list it.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import to_json

from ragpipe.core.errors import FailureKind
from ragpipe.judge.client import CONNECT_S, ApiResponse, AttemptError
from ragpipe.judge.settings import JudgeSettings

MAX_BODY = 32 << 20  # bytes; a judge's response has a few kilobytes
_PROXY_REFUSED = 407


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete HTTP response, decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnections:
    """The HTTP connections of one event loop: at most `limit` open at once (0: any number), and decoded bodies of at most
    `most_bytes`."""

    def __init__(self, limit: int, most_bytes: int = MAX_BODY):
        self._limit, self._most_bytes = limit, most_bytes
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, Proxy | None] = {}  # by scheme and host: a client asks one or two

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send a request. Raises AttemptError when no complete response came, or one that is too long or cannot be decoded."""
        proxy = self._proxy(url)
        if proxy is not None and not proxy.is_http:
            found = f"the proxy {proxy} is no HTTP proxy: it must begin with http:// or https://"
            raise AttemptError("unreachable", found, no_connection=True)
        sent_headers = {**headers, "Accept-Encoding": "gzip, deflate"}
        via = proxy.url if proxy else None
        try:
            async with self._open().request(
                method, url, data=aiohttp.BytesPayload(body), headers=sent_headers, allow_redirects=False, proxy=via
            ) as response:
                if response.status == _PROXY_REFUSED:
                    found = f"the proxy {proxy or 'on the way'} wants another user or password (status 407)"
                    raise AttemptError("unreachable", found)
                return HttpResponse(response.status, response.headers, await self._body(response))
        except AttemptError:
            raise
        except Exception as error:  # no library's exception leaves here: it may contain headers, and so the key
            attempt_error = _attempt_error(error, url, proxy)
        raise attempt_error from None

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if (length := response.content_length or 0) > self._most_bytes:
            raise AttemptError("not_an_api_answer", f"an answer of {length:,} bytes", permanent=True)
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._most_bytes:
                found = f"an answer of more than {self._most_bytes:,} bytes"
                raise AttemptError("not_an_api_answer", found, permanent=True)
        return bytes(body)

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
                trust_env=False,  # it would also take passwords from ~/.netrc
                raise_for_status=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _attempt_error(error: Exception, url: str, proxy: Proxy | None) -> AttemptError:
    """What an exception of aiohttp means. Its own texts contain host and port only."""
    if "content-encoding" in str(error):  # another encoding than was asked for is not asked for again
        is_other = isinstance(error, aiohttp.ClientResponseError)
        return AttemptError(
            "not_an_api_answer", f"an answer that is not decoded: {' '.join(str(error).split())[:200]}", permanent=is_other
        )
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
    is_alert = isinstance(error, aiohttp.ClientResponseError) and ("\\x15\\x03" in error.message or "\x15\x03" in error.message)
    if is_alert and url.startswith("http:"):  # a TLS alert begins with 0x15 0x03: so TLS servers answer plain HTTP
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


def _cause(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0].replace(" ssl:default", "")[:300]  # said of http too


@dataclass(frozen=True)
class Proxy:
    """A proxy and the variable that names it. Print it, not its `url`, which may contain a password."""

    url: str = field(repr=False)
    variable: str

    @property
    def address(self) -> str:
        """Host and port."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @property
    def is_http(self) -> bool:
        """Whether it is an HTTP proxy, the only kind that can be used."""
        return urlsplit(self.url).scheme in ("http", "https")

    def __str__(self) -> str:
        return f"{self.address} (environment variable {self.variable})"


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy for a request to `url`; None for a direct connection."""
    environ = os.environ if environ is None else environ
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    no_proxy = environ.get("no_proxy", environ.get("NO_PROXY"))
    if is_loopback(host) or (is_private(host) and no_proxy is None) or _is_exempt(host, parts.port, no_proxy or ""):
        return None
    for variable in (f"{parts.scheme}_proxy", f"{parts.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        is_header = variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ  # under CGI a client can set it by `Proxy`
        if not is_header and (value := environ.get(variable, "").strip()):
            return Proxy(value if "://" in value else f"http://{value}", variable)
    return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def is_private(host: str) -> bool:
    """Whether a host is in a private network, as far as its name or address tells."""
    address = _address(host)
    if address is not None:
        return address.is_private or address.is_link_local
    return "." not in host or host.endswith((".local", ".internal", ".localdomain", ".lan"))


def _is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether `NO_PROXY` lists a host: `*`, names (with their subdomains), addresses, networks (`10.0.0.0/8`)."""
    address = _address(host)
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        name = entry.removeprefix("*").removeprefix(".")
        if entry == "*":
            return True
        if not name:
            continue
        if "/" in name and address is not None and _within(address, name):
            return True
        if name in (host, f"{host}:{port}") or host.endswith(f".{name}"):
            return True
    return False


def _within(address: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def json_of(response: HttpResponse) -> Any:
    """The JSON of a body; None where it is none."""
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def api_response(response: HttpResponse) -> ApiResponse:
    """The response of a provider's API."""
    status, data = response.status, json_of(response)
    if status == 200 and isinstance(data, dict):
        return ApiResponse(status, response.headers, data)  # aiohttp's mapping ignores upper and lower case
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ApiResponse(status, headers, data, response.body[:4000].decode("utf-8", "replace"))


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

    def prepare(self, body: dict[str, Any]) -> tuple[bytes, str]:
        """The bytes of a request by its body without the model's name, and their sha256."""
        encoded = to_json({"model": self._model, **body})
        return encoded, hashlib.sha256(encoded).hexdigest()

    async def send(self, request: bytes) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP response came."""
        return api_response(await self._http.send("POST", self._url, headers=self._headers, body=request))

    async def close(self) -> None:
        await self._http.close()
