"""A folder to run the files of docs/ci in, as a machine of a forge or cron would."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.pages import ROOT

CI = ROOT / "docs" / "ci"


@dataclass
class Desk:
    """A folder with a `python` on PATH that is this one; `env` is what steps see beside it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def shell(self, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder), "COLUMNS": "200"}
        return subprocess.run(words, cwd=self.folder, env={**kept, **self.env, **env}, capture_output=True, text=True, timeout=110)

    def started(self) -> int:
        log = self.folder / "bin" / "starts"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def last_start(self) -> str:
        return (self.folder / "bin" / "starts").read_text().splitlines()[-1]

    def exit_codes(self, *codes: int) -> None:
        """The next starts of ragpipe end at once with these codes; later ones are real."""
        (self.folder / "bin" / "codes").write_text("".join(f"{code}\n" for code in codes))


_PYTHON = r"""#!/bin/sh
case "$2 $*" in
*--cfg*) ;; # composes, and asks nothing
ragpipe\ *)
    echo "$*" >>"{bin}/starts"
    if [ -s "{bin}/codes" ]; then
        code=$(head -n 1 "{bin}/codes")
        sed -i 1d "{bin}/codes"
        exit "$code"
    fi
    ;;
esac
exec "{python}" "$@"
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "desk"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(_PYTHON.format(bin=folder / "bin", python=sys.executable))
    python.chmod(0o755)
    return Desk(folder)


@dataclass
class Receiver:
    """A local HTTP server that keeps what is posted to it; it refuses while `status` is no success."""

    url: str = ""
    status: int = 200
    posts: list[tuple[str, Mapping[str, str], str]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            state.posts.append((self.path, dict(self.headers), body))
            self.send_response(state.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()
