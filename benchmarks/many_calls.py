"""Judged calls of a large run, with replies made in the process that asks: what is left is ragpipe's own work and its call store.

    python benchmarks/many_calls.py [--cases 5000] [--kills 0] [--folder DIR] [--latency-ms MS]

Six questions per case. Printed: seconds by the clock and of CPU, calls per second, the highest memory, bytes of the store per call, and
the questions that were asked twice, by a log that the stand-in for the provider writes. With `--kills`, the run is killed so often on
the way, and started again.

With `--latency-ms` a local server in a process of its own answers instead, and its CPU is printed too: it needs a core of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HASH_BYTES = 16
PLUGIN = f'''
"""Replies in the process that asks, and a log with a hash of each question."""
import json, os
from ragpipe import Computed, Score
from ragpipe.judge.client import ApiResponse
from ragpipe.judge.http import DirectClient
from ragpipe.judge import live_transport
from ragpipe.testing.openai_faults import chat_reply

class OwnReplies(DirectClient):
    """All cases have one shape, so that the reply to one of them is an answer to all: the stand-in takes little of the time."""

    log = None
    replies = {{}}

    async def send(self, request):
        if self.log is None:
            OwnReplies.log = open(f"{{os.environ['REPLIES_LOG']}}/{{os.getpid()}}", "ab", buffering=0)
        self.log.write(bytes.fromhex(request.wire_hash)[:{HASH_BYTES}])
        form = request.body[request.body.rindex(b'"response_format"'):]
        if form not in self.replies:
            self.replies[form] = chat_reply(json.loads(request.body))
        text = self.replies[form]
        data = {{"model": self._model, "choices": [{{"message": {{"content": text}}, "finish_reason": "stop"}}],
                "usage": {{"prompt_tokens": len(request.body) // 4, "completion_tokens": len(text) // 4}}}}
        return ApiResponse(200, {{}}, data)

if "REPLIES_LOG" in os.environ:
    live_transport.make_client = OwnReplies

class Length(Computed):
    """Characters of the answer."""

    def compute(self, cases):
        return [Score(float(len(case.answer or "") > 40)) for case in cases]
'''
METRICS = "faithfulness,answer_relevance,context_precision,context_recall,correctness"
WORDS = [
    "dataset=jsonl", "dataset.path=cases.jsonl", f"metrics=[{METRICS}]", "plugins=[own_replies]",
    "+metrics.length.class=own_replies.Length", "judge=llm", "judge.model=openai/test-2026-01-01", "judge.api_base=http://127.0.0.1:9/v1",
    "judge.endpoint=test", "judge.api_key_env=NO_KEY", "judge.concurrency=64", "judge.max_calls=100000000", "name=run",
    "report.formats=[terminal]",
]  # fmt: skip


def write_cases(path: Path, count: int) -> None:
    """Recorded cases with three short contexts each."""
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            contexts = [
                f"Passage {k} of case {i}: " + " ".join(f"word{draw.randrange(999)}" for _ in range(30)) for k in range(3)
            ]
            record = {
                "id": f"q{i:07d}", "question": f"What does case {i} say?", "reference": f"Case {i} says {i * 3}.",
                "answer": f"Case {i} says {i * 3} things. It also names word{i % 97}.", "contexts": contexts,
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")


def start(work: Path, words: list[str], log: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{work}", "NO_KEY": "none"}
    if not any(word.startswith("judge.api_base") for word in words):
        environment["REPLIES_LOG"] = str(log)
    command = [sys.executable, "-m", "ragpipe", *WORDS, *words]
    return subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(work: Path, words: list[str], log: Path, kills: int, calls: int) -> str:
    """The output of a run that is killed so often on the way, at even distances."""
    for number in range(1, kills + 1):
        process = start(work, words, log)
        while process.poll() is None and asked(log) < calls * number // (kills + 1):
            time.sleep(0.5)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        print(f"  killed after {asked(log):,} calls")
    process = start(work, words, log)
    out, _ = process.communicate()
    if process.returncode not in (0, 4):
        sys.exit(f"exit code {process.returncode}\n{out}")
    return out


def hashes(path: Path) -> list[bytes]:
    """The hashes of the requests in a log."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return [bytes.fromhex(json.loads(line)["body"])[:HASH_BYTES] for line in data.splitlines()]
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


def asked(log: Path) -> int:
    """How many requests were sent so far."""
    by_server = sum(path.read_bytes().count(b"\n") for path in log.glob("*.jsonl"))
    return by_server + sum(path.stat().st_size for path in log.glob("[0-9]*")) // HASH_BYTES


def asked_twice(log: Path) -> int:
    """How many requests were sent again."""
    counts: Counter[bytes] = Counter()
    for path in log.iterdir():
        counts.update(hashes(path))
    return sum(counts.values()) - len(counts)


class _Server:
    """A local server in a process of its own."""

    def __init__(self, log: Path, latency_ms: float):
        command = [sys.executable, "-m", "ragpipe.testing.local_server", "--port", "0", "--log", str(log / "server.jsonl")]
        self.process = subprocess.Popen(
            [*command, "--latency-ms", str(latency_ms)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = next(word for word in self.process.stdout.readline().split() if word.startswith("http"))

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        cells = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(cells[11]) + int(cells[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(log: Path, latency_ms: float | None) -> Iterator[_Server | None]:
    if latency_ms is None:
        yield None
        return
    server = _Server(log, latency_ms)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=None, help="of a local server; default: replies in the process")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=None, help="on a disk with room; default: a temporary one")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        (work / "own_replies.py").write_text(PLUGIN)
        write_cases(work / "cases.jsonl", options.cases)
        log = work / "log"
        log.mkdir()
        words = [f"judge.concurrency={options.concurrency}"]
        with _served(log, options.latency_ms) as server:
            words += [] if server is None else [f"judge.api_base={server.url}"]
            cpu, began = _cpu(), time.perf_counter()
            finished(work, words, log, options.kills, calls=6 * options.cases)
            seconds, used, calls = time.perf_counter() - began, _cpu() - cpu, asked(log)
            if server is not None:
                print(f"  CPU of the server {server.cpu():.1f} s")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        store = sum(path.stat().st_size for path in (work / "outputs" / ".store").glob("calls.sqlite*"))
        print(
            f"{options.cases:,} cases, {calls:,} calls in {seconds:.1f} s ({calls / seconds:,.0f}/s), CPU {used:.1f} s "
            f"({1000 * used / calls:.2f} ms per call), highest memory {peak} MiB, store {store / calls:.0f} bytes per call, asked "
            f"twice {asked_twice(log)}"
        )
    finally:
        shutil.rmtree(work)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
