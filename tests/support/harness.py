"""Runs ragpipe as a user would, in a process of its own, against the local server, and counts from the server's log."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.testing.openai_server import SERVER
from tests.support.waiting import HANGS_AFTER_S, wait_for_hang_up, wait_until

ROOT = Path(__file__).resolve().parents[2]
VOLATILE = ("latency_ms", "attempts", "judge_duration_ms")


@dataclass
class Server:
    """The OpenAI-compatible server as a subprocess; `requests()` is its own log."""

    log: Path
    options: Sequence[str] = ()
    prefix: Sequence[str] = ()
    """What its command begins with: `ip netns exec NAME`."""
    url: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def __enter__(self) -> Server:
        command = [*self.prefix, *SERVER, "--port", "0", "--log", str(self.log.resolve()), *self.options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        self.url = next(word for word in line.split() if word.startswith("http"))
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def requests(self) -> list[dict[str, Any]]:
        *lines, _ = self.log.read_bytes().split(b"\n") if self.log.exists() else [b""]
        found = [json.loads(line) for line in lines]
        return [r for r in found if "body" in r]

    def bodies(self) -> Counter[str]:
        return Counter(r["body"] for r in self.requests())


def write_cases(path: Path, count: int, *, chunks: int = 3, words: int = 40) -> Path:
    """A native data file of distinct cases; answers hold two sentences, so that claims fan out."""
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            contexts = [
                f"Passage {k} of case {i}: " + " ".join(f"word{(i * 7 + k * 3 + w) % 97}" for w in range(words)) for k in range(chunks)
            ]
            record = {
                "id": f"q{i:05d}", "question": f"What does case {i} say?", "reference": f"Case {i} says {i * 3}.",
                "answer": f"Case {i} says {i * 3} things. It also names word{i % 97}.", "contexts": contexts,
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    return path


def arguments(
    data: Path, out: Path, url: str, *extra: str, concurrency: int = 8, metrics: str = "faithfulness,chunk_faithfulness"
) -> list[str]:
    """The command line of a run with a chain and a fan-out metric on the local server."""
    return [
        "dataset=jsonl", f"dataset.path={data}", f"metrics=[{metrics}]", "judge=llm", "judge.model=openai/test-model-2026-01-01",
        f"judge.api_base={url}", "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY", f"judge.concurrency={concurrency}",
        "judge.max_calls=100000", "name=torture", f"output_dir={out}", *extra,
    ]  # fmt: skip


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "RAGPIPE_TEST_KEY": "sk-sentinel-4242", "PYTHONPATH": str(ROOT), **extra}


def start(args: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None, **popen: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *args], cwd=cwd, env=environment(**(env or {})), text=True, stdin=subprocess.DEVNULL,
        stdout=popen.pop("stdout", subprocess.PIPE), stderr=subprocess.STDOUT, **popen,
    )  # fmt: skip


def finish(args: Sequence[str], cwd: Path) -> tuple[int, str]:
    process = start(args, cwd)
    text, _ = process.communicate(timeout=HANGS_AFTER_S)
    return process.returncode, text


def kill_after(args: Sequence[str], cwd: Path, server: Server, calls: int) -> float | None:
    """Start, wait until the server has seen `calls` more requests, kill -9. Returns the moment, None when it had ended."""
    before = len(server.requests())
    process = start(args, cwd, stdout=subprocess.DEVNULL)
    wait_until(lambda: process.poll() is not None or len(server.requests()) - before >= calls)
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_hang_up(server.url)
    return None if ended else time.time()


def run_folder(out: Path) -> Path:
    latest = out / "torture" / "latest"
    return latest.resolve() if latest.is_symlink() or latest.is_dir() else latest


def rows(path: Path) -> list[dict[str, Any]]:
    table = pq.read_table(path)
    return table.drop_columns([c for c in VOLATILE if c in table.column_names]).to_pylist()


def surplus(server: Server) -> int:
    """Requests beyond the first with the same body: what was paid twice."""
    return sum(n - 1 for n in server.bodies().values())


def committed(out: Path) -> frozenset[str]:
    """Bodies whose replies stand in the call store at this moment, under the hash that the server's log knows them by."""
    path = out / ".store" / "calls.sqlite"
    if not path.exists():
        return frozenset()
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone():
            return frozenset()
        return frozenset(row[0].hex() for row in db.execute("SELECT wire_hash FROM calls WHERE status = 'ok'"))


def asked_again(requests: Sequence[dict[str, Any]], kills: Sequence[tuple[float, frozenset[str]]]) -> list[str]:
    """Bodies that were asked for after a kill although their replies stood in the store when it came. Store and log must know a
    request by the same name, or nothing could be found."""
    known = {r["body"] for r in requests}
    for _, done in kills:
        assert done <= known, "the store names requests that the server has never seen"
    return [r["body"] for r in requests for moment, done in kills if r["arrived"] > moment and r["body"] in done]
