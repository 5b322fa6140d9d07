"""A small server that speaks as much of S3's protocol as s3fs uses, over objects in memory, with faults that a test plants.

GET with Range, HEAD, PUT, DELETE and ListObjectsV2, path-style addresses (`/bucket/key`). Signatures are not
checked; `requests` has every request, with its headers. The same objects can be read over plain HTTP.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class Seen:
    """One request: its method, its path without the query, the bytes that it asks for, its headers by name in lower case, and the status that was planted."""

    method: str
    path: str
    range: str
    headers: dict[str, str]
    status: int


@dataclass
class S3Server:
    """The objects by `bucket/key`, the requests so far, and the faults of coming requests."""

    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Seen] = field(default_factory=list)
    port: int = 0
    cut_after: list[int] = field(default_factory=list)
    """Of the coming GETs of objects, one after another: after how many bytes of the body the connection is closed."""
    statuses: list[int] = field(default_factory=list)
    """Statuses that the coming requests are answered with, whatever they ask."""
    after_get: Callable[[str], None] = lambda key: None
    """Called after each GET of an object: to change it while it is being read."""
    after_put: Callable[[], None] = lambda: None
    """Called after each PUT: to let the next ones fail."""
    has_versions: bool = True
    """Whether the answers have an ETag and a Last-Modified."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def seen(self, method: str, key: str = "") -> list[Seen]:
        """The requests with this method, for this object where one is named."""
        return [seen for seen in self.requests if seen.method == method and (not key or seen.path == key)]


@lru_cache(maxsize=8)
def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


@contextmanager
def s3_server(**objects: bytes) -> Iterator[S3Server]:
    """A server with these objects, on a port of 127.0.0.1, while the block lasts."""
    state = S3Server(dict(objects))
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"state": state}))
    httpd.daemon_threads = True
    state.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: S3Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _begin(self) -> bool:
        """Note the request. False where a planted status answered it."""
        parts = urlsplit(self.path)
        self.key, self.query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        self.body = self._body()
        status = self.state.statuses.pop(0) if self.state.statuses else 0
        seen = Seen(
            self.command, self.key, self.headers.get("Range", ""), {name.lower(): value for name, value in self.headers.items()}, status
        )
        self.state.requests.append(seen)
        if status:
            code = {403: "AccessDenied", 503: "SlowDown"}.get(status, "InternalError")
            self._answer(status, f"<Error><Code>{code}</Code><Message>planted</Message></Error>".encode())
        return not status

    def _body(self) -> bytes:
        """The body, also one that is sent in signed chunks (aws-chunked)."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return raw
        content, at = b"", 0
        while match := re.compile(rb"([0-9a-fA-F]+)[^\r]*\r\n").match(raw, at):
            size = int(match[1], 16)
            content += raw[match.end() : match.end() + size]
            at = match.end() + size + 2
            if not size:
                break
        return content

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # a client may have heard enough
                self.wfile.write(body)

    def _missing(self) -> None:
        self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")

    def do_HEAD(self) -> None:
        if not self._begin():
            return
        if "/" not in self.key.rstrip("/"):  # a bucket
            self._answer(200 if any(key.startswith(self.key.rstrip("/") + "/") for key in self.state.objects) else 404)
            return
        content = self.state.objects.get(self.key)
        if content is None:
            self._missing()
        else:
            self._answer(200, **self._described(content), Content_Length=str(len(content)))

    def _described(self, content: bytes) -> dict[str, str]:
        versions = {"ETag": etag(content), "Last_Modified": formatdate(0, usegmt=True)}
        return {**(versions if self.state.has_versions else {}), "Content_Type": "binary/octet-stream", "Accept_Ranges": "bytes"}

    def do_GET(self) -> None:
        if not self._begin():
            return
        if "list-type" in self.query:
            self._list()
            return
        content = self.state.objects.get(self.key)
        if content is None:
            self._missing()
            return
        start, end, status = 0, len(content), 200
        is_same = self.headers.get("If-Range", etag(content)) == etag(content)
        if is_same and (asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))):
            start, end, status = int(asked[1]), min(len(content), int(asked[2] or len(content)) + 1), 206
            if start >= len(content):
                self._answer(416)
                return
        part = content[start:end]
        cut = self.state.cut_after.pop(0) if self.state.cut_after else None
        ranged = {"Content_Range": f"bytes {start}-{end - 1}/{len(content)}"} if status == 206 else {}
        self._answer(status, part[:cut], **self._described(content), **ranged, Content_Length=str(len(part)))
        if cut is not None:
            self.close_connection = True
        self.state.after_get(self.key)

    def _list(self) -> None:
        bucket, prefix = self.key.rstrip("/"), self.query.get("prefix", [""])[0]
        delimiter = self.query.get("delimiter", [""])[0]
        files, folders = [], dict[str, None]()
        for path, content in sorted(self.state.objects.items()):
            name = path.removeprefix(f"{bucket}/")
            if not path.startswith(f"{bucket}/") or not name.startswith(prefix):
                continue
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders[prefix + rest.split(delimiter)[0] + delimiter] = None
            else:
                files.append((name, content))
        size = int(self.query.get("max-keys", ["1000"])[0])
        begin = int(self.query.get("continuation-token", ["0"])[0])
        shown, cut = files[begin : begin + size], begin + size < len(files)
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>1970-01-01T00:00:00.000Z</LastModified><ETag>{escape(etag(content))}</ETag>"
            f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for name, content in shown
        )
        entries += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        more = f"<NextContinuationToken>{begin + size}</NextContinuationToken>" if cut else ""
        head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown) + len(folders)}</KeyCount>"
        text = f"<ListBucketResult>{head}<IsTruncated>{str(cut).lower()}</IsTruncated>{more}{entries}</ListBucketResult>"
        self._answer(200, text.encode(), Content_Type="application/xml")

    def do_PUT(self) -> None:
        if not self._begin():
            return
        if "/" in self.key.rstrip("/"):
            self.state.objects[self.key] = self.body
        self._answer(200, ETag=etag(self.body))
        self.state.after_put()

    def do_DELETE(self) -> None:
        if self._begin():
            self.state.objects.pop(self.key, None)
            self._answer(204)
