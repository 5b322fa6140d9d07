"""`task=view` in a process of its own while a run goes on at a slow judge, is killed, and goes on again."""

import json
import re
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.extras.view.viewed_runs import view_process
from tests.support.harness import Server, arguments, finish, start, write_cases
from tests.support.listed_runs import listed_run
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow


def test_a_run_is_live_then_stalled_with_its_command_then_complete(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    out.mkdir()
    data = write_cases(tmp_path / "cases.jsonl", 30)
    with Server(tmp_path / "log.jsonl", ["--latency-ms", "400"]) as server, view_process(out) as view:
        assert view.progress()["live"] == {}
        args = arguments(data, out, server.url, concurrency=4)
        run = start(args, tmp_path, stdout=subprocess.DEVNULL)
        progress = view.when(lambda now: any("done" in live["live"] and live["live"]["share"] for live in now["live"].values()))
        ((key, going),) = progress["live"].items()
        assert going["state"] == "running"
        figures = dict(going["live"]["figures"])
        assert int(figures["sent"]) >= int(figures["answered"]) > 0
        assert re.fullmatch(r"\d+ of 30 cases", going["live"]["done"])
        assert all(question.startswith("What does case") for question, _, _ in going["live"]["cases"])
        run.send_signal(signal.SIGKILL)
        run.wait()
        (stalled,) = view.when(lambda now: [live for live in now["live"].values() if live["state"] == "stalled"])["live"].values()
        assert stalled["reason"] == f"process {run.pid} is gone"
        command = shlex.split(stalled["resume"])
        assert (command[:3], command[3:]) == (["python", "-m", "ragpipe"], args)
        revision = view.progress()["revision"]
        code, text = finish(command[3:], tmp_path)
        assert code == 0, text
        assert view.when(lambda now: not now["live"])["revision"] != revision
        (row,) = json.loads(view.get("/index.json")[1])["rows"]
        assert (row["key"], row["state"], row["cases"]) == (key, "complete", "30 cases")
        assert row["cost"]
        status, page = view.get(f"/{row['links'][0][1]}")
        assert status == 200
        assert re.sub(rb'<nav class="served .*?</nav>\n', b"", page, flags=re.DOTALL) == (out / key / "report.html").read_bytes()


def test_it_ends_though_connections_are_open(tmp_path: Path) -> None:
    listed_run(tmp_path / "outputs" / "a", "0123456789ab", 0.5)
    with view_process(tmp_path / "outputs") as view:
        connections = [socket.create_connection(("127.0.0.1", view.port)) for _ in range(8)]
        for connection in connections[:4]:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")  # a request that does not end
        before = time.monotonic()
        view.process.send_signal(signal.SIGINT)
        assert view.process.wait(timeout=HANGS_AFTER_S) == 0
        took = time.monotonic() - before
        for connection in connections:
            connection.close()
    assert took < 50, f"{took:.1f} s"  # about 0.6 s on an idle machine; aiohttp by itself would wait for a minute


def test_nothing_in_the_folder_changes(tmp_path: Path) -> None:
    for place, name in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb")):
        listed_run(tmp_path / "outputs" / "a", name, 0.5 + place / 10, day=1 + place)
    state = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "outputs").rglob("*"))}
    with view_process(tmp_path / "outputs") as view:
        for path in ("/", "/index.json", "/progress", "/runs/a/aaaaaaaaaaaa/report.html"):
            assert view.get(path)[0] == 200
    assert {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "outputs").rglob("*"))} == state
