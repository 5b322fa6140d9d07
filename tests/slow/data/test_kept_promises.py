"""A system that fails, a run that is killed, an endpoint with sessions: no case is lost, none asked twice, no answer changed.

Requests are counted from the server's own log, by the question in their body.
"""

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.waiting import HANGS_AFTER_S, wait_until

QUESTIONS = 80


class Endpoint:
    """A server whose `reply` gives status, headers and answer for each body; `log` has (body hash, status) of each request."""

    def __init__(self, reply: Callable[[dict[str, Any], str], tuple[int, dict[str, str], Any]]):
        self.log: list[tuple[str, int]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, answer = reply(json.loads(raw), self.headers.get("Cookie", ""))
                endpoint.log.append((hashlib.sha256(raw).hexdigest(), status))
                body = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}/ask"  # cookies of plain IP addresses are never kept
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    opened: list[Endpoint] = []

    def start(reply: Any) -> Endpoint:
        opened.append(Endpoint(reply))
        return opened[-1]

    yield start
    for server in opened:
        server.close()


def write_questions(folder: Path, numbers: list[int]) -> None:
    lines = (json.dumps({"id": f"q{i:03d}", "question": f"What is {i}?"}) for i in numbers)
    (folder / "q.jsonl").write_text("".join(f"{line}\n" for line in lines))


def command(url: str, name: str, *words: str) -> list[str]:
    return [
        sys.executable, "-m", "ragpipe", "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[format]", f"name={name}",
        "system=http", f"system.url={url}", *words,
    ]  # fmt: skip


def run(folder: Path, *args: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), cwd=folder, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


def answers(folder: Path, name: str) -> dict[str, str]:
    table = pq.read_table(folder / "outputs" / name / "latest" / "outputs.parquet").to_pylist()
    return {row["sample_id"]: row["answer"] for row in table}


@pytest.mark.thorough
def test_a_run_that_is_killed_again_and_again_asks_no_finished_question_twice(tmp_path: Path, endpoint: Callable[..., Endpoint]) -> None:
    """What was under way at a kill may be asked again, and was not finished: at most `concurrency` questions per kill."""

    def reply(body: dict[str, Any], _: str) -> tuple[int, dict[str, str], Any]:
        time.sleep(0.02)
        return 200, {}, {"answer": body["question"]}

    server = endpoint(reply)
    write_questions(tmp_path, list(range(QUESTIONS)))
    concurrency, kills, kept_at_kills = 4, 0, []
    words = command(server.url, "killed", f"system.concurrency={concurrency}")
    for finished in (10, 30, 50):
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda least=finished + 3 * kills: len(server.log) >= least)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        kept = sum(path.read_text().count('"sample_id"') for path in tmp_path.glob("outputs/killed/*/*.journal.jsonl"))
        assert kept < QUESTIONS, "killed while answers were collected"
        hashes, before = _hashes_of_kept(tmp_path), Counter(key for key, _ in server.log)
        assert hashes, "some answers were kept before the kill"
        assert hashes <= before.keys(), "the hash of a body is that of the server's log"
        kept_at_kills.append((hashes, before))
    done = run(tmp_path, server.url, "killed", f"system.concurrency={concurrency}")
    assert done.returncode == 0, done.stderr
    asked = Counter(key for key, _ in server.log)
    assert len(asked) == QUESTIONS
    for hashes, before in kept_at_kills:
        assert all(asked[key] == before[key] for key in hashes), "a question whose answer was kept was asked again"
    assert sum(asked.values()) <= QUESTIONS + kills * concurrency
    assert len(answers(tmp_path, "killed")) == QUESTIONS


def _hashes_of_kept(folder: Path) -> set[str]:
    """The body hashes of the questions whose answers are in the journal (its last line may be torn)."""
    hashes = set()
    for path in folder.glob("outputs/killed/*/outputs.journal.jsonl"):
        for line in path.read_text().splitlines()[1:]:
            try:
                output = json.loads(json.loads(line)["output"])
            except ValueError:
                continue
            body = json.dumps({"question": output["answer"], "history": []}, separators=(",", ":"))
            hashes.add(hashlib.sha256(body.encode()).hexdigest())
    return hashes
