"""Who may ask the server: the browser of the person who has the token, and no page of another origin.

In this order: method (405), name of the host (403: DNS rebinding), where the request comes from (403: other pages), token (401).
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragpipe.core.safe_text import escape_unprintable

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names under which the server may be asked, with any port (`ssh -L`); `view.hosts` adds more."""
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_METHODS = ("GET", "HEAD")
_FROM = (None, "none", "same-origin")
"""Values of Sec-Fetch-Site that are answered: none is an address that was typed, or opened from outside the browser."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
"""Headers of every answer; a page sets its own policy."""
UNKNOWN_TOKEN = (
    "This page needs the address that task=view printed, with its token.\n"
    "A server that was started again has a new one: look at its terminal.\n"
)
Handler = Callable[[Any], Awaitable[Any]]


class Guards:
    """The rules for one server. `token` is its secret, `cookie` the name of the cookie that holds it, `hosts` further names, and
    `landing` where the address with the token leads."""

    def __init__(self, token: str, cookie: str, hosts: Sequence[str] = (), landing: str = "/"):
        self.token, self.cookie, self.landing = token, cookie, landing
        self.hosts = frozenset(host.lower() for host in (*HOSTS, *hosts))

    def middleware(self) -> Any:
        """The rules as a middleware of aiohttp; answers get `HEADERS`."""
        from aiohttp import web

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                response: web.StreamResponse = self.refusal(request) or self.entry(request) or await handler(request)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=f"{error.status} {error.reason}\n")
            except Exception as error:
                fault = escape_unprintable(f"{request.method} {request.path}: {type(error).__name__}: {error}")
                log.error("%s", fault, exc_info=error if log.isEnabledFor(logging.DEBUG) else None)
                response = web.Response(status=500, text="500 the server failed here; its terminal says why\n")
            return response

        return guarded

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that may not be asked, whatever its token; None for one that may."""
        from aiohttp import web

        if request.method not in _METHODS:
            return web.Response(
                status=405, text="Only GET and HEAD: nothing is written.\n", headers={"Allow": "GET, HEAD"}
            )
        if not self._is_known_host(request):
            names = ", ".join(sorted(self.hosts))
            return web.Response(status=403, text=f"Unknown host name. Known: {names}; view.hosts=[NAME] adds one.\n")
        if not _is_own_page(request):
            return web.Response(status=403, text="Requests of other pages are not answered: open the address itself.\n")
        return None

    def entry(self, request: web.Request) -> web.Response | None:
        """`/?token=...` becomes a cookie and leaves the address; 401 without either. None for a request with the cookie."""
        from aiohttp import web

        if request.path == "/" and "token" in request.query:
            if not self._is_token(request.query["token"]):
                return web.Response(status=401, text=UNKNOWN_TOKEN)
            response = web.Response(status=303, headers={"Location": self.landing})
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
            return response
        if not self._is_token(request.cookies.get(self.cookie, "")):
            return web.Response(status=401, text=UNKNOWN_TOKEN)
        return None

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.token.encode())

    def _is_known_host(self, request: web.Request) -> bool:
        names = request.headers.getall("Host", [])
        match = _HOST.fullmatch(names[0]) if len(names) == 1 else None
        return match is not None and match[1].lower() in self.hosts


def _is_own_page(request: web.Request) -> bool:
    """Whether the request comes from a page of this server, or from no page."""
    if request.headers.get("Sec-Fetch-Site") not in _FROM:
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == request.headers.get("Host", "").lower()
