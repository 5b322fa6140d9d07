"""A run that is killed again and again: no case is lost, and none asked twice whose answer was kept.

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
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.waiting import HANGS_AFTER_S, wait_until

QUESTIONS = 80


class _Echo(BaseHTTPRequestHandler):
    """Answers with the question; `log` has the hash of each body."""

    log: list[str]

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.02)
        self.log.append(hashlib.sha256(raw).hexdigest())
        body = json.dumps({"answer": json.loads(raw)["question"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str]]]:
    """Its address and its log."""
    log: list[str] = []
    server = ThreadingHTTPServer(("localhost", 0), type("_Bound", (_Echo,), {"log": log}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/ask", log
    server.shutdown()
    server.server_close()


@pytest.mark.thorough
def test_a_run_that_is_killed_asks_no_finished_question_twice(tmp_path: Path, endpoint: tuple[str, list[str]]) -> None:
    """What was under way at a kill may be asked again, and was not finished: at most `concurrency` questions per kill."""
    url, log = endpoint
    lines = (json.dumps({"id": f"q{i:03d}", "question": f"What is {i}?"}) for i in range(QUESTIONS))
    (tmp_path / "q.jsonl").write_text("".join(f"{line}\n" for line in lines))
    concurrency, kills, kept_at_kills = 4, 0, []
    words = [
        sys.executable, "-m", "ragpipe", "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[format]", "name=killed",
        "system=http", f"system.url={url}", f"system.concurrency={concurrency}",
    ]  # fmt: skip
    for finished in (10, 30, 50):
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda least=finished + 3 * kills: len(log) >= least)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        kept = sum(path.read_text().count('"sample_id"') for path in tmp_path.glob("outputs/killed/*/*.journal.jsonl"))
        assert kept < QUESTIONS, "killed while answers were collected"
        hashes, before = _hashes_of_kept(tmp_path), Counter(log)
        assert hashes, "some answers were kept before the kill"
        assert hashes <= before.keys(), "the hash of a body is that of the server's log"
        kept_at_kills.append((hashes, before))
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 0, done.stderr
    asked = Counter(log)
    assert len(asked) == QUESTIONS
    for hashes, before in kept_at_kills:
        assert all(asked[key] == before[key] for key in hashes), "a question whose answer was kept was asked again"
    assert sum(asked.values()) <= QUESTIONS + kills * concurrency
    outputs = pq.read_table(tmp_path / "outputs" / "killed" / "latest" / "outputs.parquet").to_pylist()
    assert len({row["sample_id"] for row in outputs}) == QUESTIONS


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
