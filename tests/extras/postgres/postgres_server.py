"""A PostgreSQL server of our own, in a temporary folder, on a free port of the loopback address."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragpipe.extras.postgres.database import PostgresDatabase
from tests.support.waiting import HANGS_AFTER_S

_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
_SETTINGS = ("max_connections=60", "shared_buffers=64MB", "unix_socket_directories=", "logging_collector=off")


def server_programs() -> Path | None:
    """The folder of initdb and postgres, the newest where there are several; None where there is none."""
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0]))
    places = [Path(on_path)] if on_path else debian[-1:]
    return places[0].resolve().parent if places else None


@dataclass
class PostgresServer:
    """The server. `url` is that of its one database, without a schema."""

    folder: Path
    programs: Path
    settings: Sequence[str] = _QUICK
    address: str = "127.0.0.1"
    prefix: Sequence[str] = ()
    """What each command begins with: `ip netns exec NAME` for a server in a network namespace."""
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}:{self.port}/postgres"

    def place(self) -> PostgresDatabase:
        return PostgresDatabase(self.url, f"s{uuid.uuid4().hex[:12]}")

    def make(self) -> None:
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        data = self.folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
        with open(data / "postgresql.conf", "a", encoding="utf-8") as file:
            lines = [*_SETTINGS, *self.settings, f"listen_addresses={self.address}", f"port={self.port}"]
            file.writelines(f"{name} = '{value}'\n" for name, _, value in (line.partition("=") for line in lines))
        with open(data / "pg_hba.conf", "a", encoding="utf-8") as file:
            file.write("host all all samenet trust\n")

    def start(self) -> None:
        command = [*self.prefix, str(self.programs / "postgres"), "-D", str(self.folder / "data")]
        log = open(self.folder / "log", "ab")  # noqa: SIM115
        user = _user()
        self.process = subprocess.Popen([*self.prefix, *_as_user(command[len(self.prefix) :])], stdout=log, stderr=log, cwd=self.folder)
        log.close()
        deadline = time.monotonic() + HANGS_AFTER_S
        while time.monotonic() < deadline and self.process.poll() is None:
            ready = [*self.prefix, str(self.programs / "pg_isready"), "-q", "-h", self.address, "-p", str(self.port)]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"PostgreSQL did not start as {user}: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` in order, `immediate` as a crash would."""
        self._run("pg_ctl", "stop", "-D", str(self.folder / "data"), "-m", mode, "-w", "-t", "30")
        if self.process is not None:
            self.process.wait(HANGS_AFTER_S)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            _as_user([str(self.programs / program), *words]), capture_output=True, text=True, cwd=self.folder, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _user() -> str | None:
    """The user that runs the server: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None


def _as_user(command: list[str]) -> list[str]:
    name = _user()
    if name is None:
        return command
    entry = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--", *command]


@contextmanager
def postgres_server(
    *, settings: Sequence[str] = _QUICK, address: str = "127.0.0.1", port: int = 0, prefix: Sequence[str] = ()
) -> Iterator[PostgresServer]:
    """A running server; the test is skipped with a reason where there is none to run."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine (Debian: apt-get install postgresql)")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv to run it as another user")
    folder = Path(tempfile.mkdtemp(prefix="ragpipe-postgres-"))
    name = _user()
    if name is not None:
        os.chown(folder, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
    server = PostgresServer(folder, programs, settings, address, prefix, port)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
