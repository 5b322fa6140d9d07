"""`task=view`: a local page over all runs of an output folder, served to this machine until Ctrl-C: its keys, its routes, who may ask."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import logging
import os
import re
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from markupsafe import Markup
from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.core.text import escape_unprintable
from ragpipe.extras.view.index_document import index_document, index_page, progress_document
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.extras.view.page_bar import page_bar, run_address, with_bar
from ragpipe.extras.view.run_changes import RunChange, RunChanges
from ragpipe.extras.view.run_files import opened_below
from ragpipe.extras.view.run_index import Listing, RunIndex
from ragpipe.report.compare_page import compare_script
from ragpipe.report.console import Console
from ragpipe.report.label_page import label_script
from ragpipe.report.page_file import content_hash, page_html
from ragpipe.report.run_page import report_script
from ragpipe.runs.run_list import find_named_run
from ragpipe.store.files import json_bytes

LOOPBACK = "127.0.0.1"
SHUTDOWN_S = 0.5
"""Answers that are being sent get so long to end."""
_SILENT = logging.Logger("ragpipe.view", logging.CRITICAL + 1)  # of requests that are no HTTP; our own faults are reported
_CHUNK = 1 << 20
_SIDE_FILE_MAX = 512 << 20  # of 200,000 cases all side files have 350 MB
_KEY = r"[\s\S]+"  # names of folders may hold a newline
_SIDE_FILE = r"{file:[A-Za-z0-9_-]+\.js}"


@dataclass(frozen=True)
class ViewOptions:
    """What is served. `run` is the key of the run whose report the address leads to; empty for the list of all."""

    root: Path
    port: int = 0
    run: str = ""


_TITLE = "task=view cannot start"


class ViewSettings(Settings):
    """What is served and to whom. The server listens on 127.0.0.1 alone."""

    port: int = Field(default=0, ge=0, le=65535, description="Port on 127.0.0.1. 0: any free one.")


class Keys(Settings):
    """`run` names the run that the address leads to, `output_dir` the folder that is served."""

    output_dir: str = Field(min_length=1, description="Folder that holds the runs. Nothing is written into it.")
    run: str | None = Field(default=None, min_length=1, description="Run whose report is opened first. null: the list.")
    view: ViewSettings = Field(default_factory=ViewSettings, description="Port of the server.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> ViewOptions:
    """Check the keys of this task. Raises ConfigError, also for an `output_dir` that is no folder; a first run may
    still make it. DataError for a run that is not there."""
    origins = origins or NoOrigins()
    settings = task_settings(Keys, plain, origins, title=_TITLE)
    root = Path(settings.output_dir)
    if root.exists() and not root.is_dir():
        place, fix = origins.location("output_dir"), "output_dir=FOLDER names another"
        raise ConfigError(_TITLE, [Problem(place, "output_dir", f"{root}: no folder", "a folder of runs", fix)])
    if not settings.run:
        return ViewOptions(root, settings.view.port)
    run = find_named_run(settings.run, root).root
    if not run.resolve().is_relative_to(root.resolve()):
        place, fix = origins.location("run"), f"output_dir={run.parent.parent}"
        raise ConfigError(_TITLE, [Problem(place, "run", str(run), f"a run below {root}, which is served", fix)])
    return ViewOptions(root, settings.view.port, run.resolve().relative_to(root.resolve()).as_posix())


def run(options: ViewOptions, console: Console) -> int:
    """Print the address and serve until Ctrl-C. Returns 0. Raises ConfigError for a port that is in use."""

    def announce(address: str) -> None:
        if not options.root.is_dir():
            console.say(f"{options.root}: no such folder yet; the page shows its runs as soon as there are any")
        console.say(f"runs of {options.root}: {address}")
        console.say("for this machine alone, to whoever has this address; Ctrl-C ends it")

    asyncio.run(serve_until_stopped(options, announce))
    return 0


class ViewServer:
    """The pages over one output folder. `token` is the secret of this start."""

    def __init__(self, options: ViewOptions):
        self.options, self.token = options, secrets.token_urlsafe(24)
        self.index, self.changes = RunIndex(options.root), RunChanges()
        self._documents: dict[str, bytes] = {}

    def application(self, port: int) -> web.Application:
        """The routes behind their guards, for a server on this port."""
        landing = f"/{run_address(self.options.run, 'report.html')}" if self.options.run else "/"
        guards = Guards(self.token, f"ragpipe-view-{port}", landing)
        app = web.Application(middlewares=[guards.middleware()])
        app.router.add_get("/", self._index)
        app.router.add_get("/index.json", self._index_json)
        app.router.add_get("/progress", self._progress)
        run = "/runs/{key:" + _KEY + "}"
        app.router.add_get(run + r"/{folder:(report|compare)\.data}/" + _SIDE_FILE, self._run_side_file)
        app.router.add_get("/runs/{path:" + _KEY + "}", self._file)
        app.router.add_get("/shared", self._shared)
        app.on_response_prepare.append(_add_headers)
        app.on_cleanup.append(self._stop)
        return app

    async def _stop(self, _: web.Application) -> None:
        self.changes.stop()

    async def _listing(self) -> Listing:
        return await asyncio.to_thread(self.index.listing)

    def _now(self) -> tuple[Listing, Mapping[str, RunChange | None], str]:
        """The listing, the differences, and the revision of both."""
        listing = self.index.listing()
        changes, known = self.changes.of(listing.runs)
        return listing, changes, f"{listing.revision}-{known}"

    def _document(self) -> bytes:
        """`index.json`, made again only where something has changed."""
        listing, changes, revision = self._now()
        if revision not in self._documents:
            document = index_document(self.options.root, listing, changes, revision)
            self._documents = {revision: json_bytes(document)}
        return self._documents[revision]

    async def _index(self, request: web.Request) -> web.Response:
        listing, changes, revision = await asyncio.to_thread(self._now)
        document = index_document(self.options.root, listing, changes, revision)
        html = page_html(index_page(document, is_live=True))
        return web.Response(text=html, content_type="text/html", headers={"Content-Security-Policy": _OWN_POLICY})

    async def _index_json(self, request: web.Request) -> web.Response:
        return web.Response(body=await asyncio.to_thread(self._document), content_type="application/json")

    async def _progress(self, request: web.Request) -> web.Response:
        listing, _, revision = await asyncio.to_thread(self._now)
        return web.json_response(progress_document(listing, revision))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """A page of a run, of a comparison or of a sweep, or of a name: those that the index lists, and no other."""
        path, listing = request.match_info["path"], await self._listing()
        if (found := listing.file(path)) is None:
            raise web.HTTPNotFound
        file = _opened(found[0], *found[1])
        if not path.endswith(".html"):
            return await _sent(request, file, "text/plain")
        return await _sent(request, file, "text/html", bar=partial(page_bar, listing, path, root=self.options.root))

    async def _shared(self, request: web.Request) -> web.Response:
        """How many samples two runs of the index share."""
        listing = await self._listing()
        runs = [listing.by_key.get(request.query.get(side, "")) for side in ("a", "b")]

        def ids(run: ListedRun) -> set[str]:
            with opened_below(run.root, ["samples.parquet"]) as file:
                return set(pq.read_table(file, columns=["id"])["id"].to_pylist())

        try:
            both = await asyncio.to_thread(lambda: [ids(run) for run in runs if run])
        except (DataError, pa.ArrowException, OSError) as error:
            raise web.HTTPNotFound(reason="no samples that can be read") from error
        if len(both) < 2:
            raise web.HTTPNotFound
        return web.json_response({"shared": len(both[0] & both[1])})

    async def _run_side_file(self, request: web.Request) -> web.StreamResponse:
        """A file of `report.data` or `compare.data`, beside the page of a run or of a comparison."""
        key, folder, listing = request.match_info["key"], request.match_info["folder"], await self._listing()
        run = listing.by_key.get(key)
        root = run.root if run and folder == "report.data" else listing.comparisons.get(key)
        if root is None:
            raise web.HTTPNotFound
        return await _side_file(root, folder, request.match_info["file"])


_OWN_POLICY = "frame-ancestors 'none'"  # the page has the rest in itself


def _opened(root: Path, *parts: str) -> BinaryIO:
    """A file of a folder of the index. Raises HTTPNotFound for one that is not there, or is no regular file."""
    try:
        return opened_below(root, parts)
    except DataError as error:
        raise web.HTTPNotFound(reason=error.problems[0].found[:80].splitlines()[0]) from error


async def _side_file(root: Path, folder: str, name: str) -> web.Response:
    """A side file of a page, if it holds data blocks and nothing else: it is run as a script of our origin."""

    def checked() -> bytes | None:
        with _opened(root, folder, name) as file:
            content = file.read(_SIDE_FILE_MAX + 1)
        return content if len(content) <= _SIDE_FILE_MAX and is_side_file(content) else None

    content = await asyncio.to_thread(checked)
    if content is None:
        raise web.HTTPNotFound(reason="no data blocks")
    return web.Response(body=content, content_type="text/javascript", charset="utf-8")


async def _sent(
    request: web.Request, file: BinaryIO, kind: str, *, bar: Callable[..., Markup] | None = None
) -> web.StreamResponse:
    """Send a file piece by piece; a page, which has a `bar`, with the policy that it may have."""
    with file:
        length = os.fstat(file.fileno()).st_size
        piece = await asyncio.to_thread(file.read, _CHUNK)
        policy, before = page_policy(piece[:HEAD]) if bar else "", len(piece)
        if bar:
            piece = with_bar(piece, bar(is_own=_SANDBOX not in policy))
        length += len(piece) - before
        response = web.StreamResponse(headers={"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(length)})
        if bar:
            response.headers["Content-Security-Policy"] = policy
        with contextlib.suppress(ConnectionResetError):  # the tab was closed before all was sent
            await response.prepare(request)
            sent = 0
            while piece and request.method == "GET" and sent < length:
                await response.write(piece[: length - sent])  # a file that grows meanwhile is cut where it was
                sent += len(piece)
                piece = await asyncio.to_thread(file.read, _CHUNK)
            await response.write_eof()
        return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if "sandbox" in response.headers["Content-Security-Policy"]:
        del response.headers["Cross-Origin-Opener-Policy"]  # browsers refuse a sandboxed page that asks for it


@asynccontextmanager
async def view_serving(server: ViewServer) -> AsyncIterator[int]:
    """Serve inside; gives the port. Raises ConfigError for a port that is in use."""
    bound = _bound_socket(server.options.port)
    port: int = bound.getsockname()[1]
    application = server.application(port)
    runner = web.AppRunner(application, access_log=None, logger=_SILENT, handle_signals=False, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        yield port
    finally:
        await runner.cleanup()


def _bound_socket(port: int) -> Any:
    """A socket on the loopback address alone."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left may be taken again
        bound.bind((LOOPBACK, port))
    except OSError as error:
        bound.close()
        reasons = {errno.EADDRINUSE: "another program is using it", errno.EACCES: "this user may not use it"}
        reason = reasons.get(error.errno or 0, str(error))
        fix = "view.port=0 takes any free one"
        problem = Problem(f"{LOOPBACK}:{port}", "view.port", f"{port}: {reason}", "a free port", fix)
        raise ConfigError("task=view cannot serve", [problem]) from error
    return bound


async def serve_until_stopped(options: ViewOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `announce` gets the address with its token, once it can be opened."""
    server, stopped = ViewServer(options), asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    for number in numbers:
        with contextlib.suppress(NotImplementedError):  # Windows: KeyboardInterrupt ends the loop
            loop.add_signal_handler(number, stopped.set)
    try:
        async with view_serving(server) as port:
            announce(f"http://{LOOPBACK}:{port}/?token={server.token}")
            await stopped.wait()
    finally:
        for number in numbers:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


log = logging.getLogger(__name__)
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names under which the server may be asked, with any port (`ssh -L`)."""
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
    """The rules for one server. `token` is its secret, `cookie` the name of the cookie that holds it, and `landing` where the address with
    the token leads."""

    def __init__(self, token: str, cookie: str, landing: str = "/"):
        self.token, self.cookie, self.landing = token, cookie, landing

    def middleware(self) -> Any:
        """The rules as a middleware of aiohttp; answers get `HEADERS`."""

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
        if request.method not in _METHODS:
            return web.Response(status=405, text="Only GET and HEAD: nothing is written.\n", headers={"Allow": "GET, HEAD"})
        if not self._is_known_host(request):
            return web.Response(status=403, text=f"Unknown host name. Known: {', '.join(HOSTS)}.\n")
        if not _is_own_page(request):
            return web.Response(status=403, text="Requests of other pages are not answered: open the address itself.\n")
        return None

    def entry(self, request: web.Request) -> web.Response | None:
        """`/?token=...` becomes a cookie and leaves the address; 401 without either. None for a request with the cookie."""
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
        return match is not None and match[1].lower() in HOSTS


def _is_own_page(request: web.Request) -> bool:
    """Whether the request comes from a page of this server, or from no page."""
    if request.headers.get("Sec-Fetch-Site") not in _FROM:
        return False
    if (origin := request.headers.get("Origin")) is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == request.headers.get("Host", "").lower()


HEAD = 4096
"""Bytes of a page in which its own policy stands."""
_SCRIPT = re.compile(rb"script-src '(sha256-[A-Za-z0-9+/]{43}=)'( 'self')?;")
_DATA_BLOCKS = re.compile(rb'(?:ragpipeBlock\("[a-z]+\d*","[A-Za-z0-9+/=]*"\);\n)+')
_REST = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SANDBOX = "sandbox allow-scripts allow-downloads allow-modals; script-src 'unsafe-inline'"


def page_policy(head: bytes) -> str:
    """The Content-Security-Policy of a page of a run, from its first bytes."""
    match = _SCRIPT.search(head)
    if match is None or match[1].decode() not in own_scripts():
        return f"{_REST}; {_SANDBOX}"
    return f"{_REST}; script-src '{match[1].decode()}'{(match[2] or b'').decode()}"


def is_side_file(content: bytes) -> bool:
    """Whether a script beside a page holds data blocks (`pages.side_files`) and nothing else."""
    return _DATA_BLOCKS.fullmatch(content) is not None


@cache
def own_scripts() -> frozenset[str]:
    """The hashes of the scripts of ragpipe's pages, as this version writes them."""
    return frozenset(map(content_hash, (compare_script(), report_script(), label_script(), "")))
