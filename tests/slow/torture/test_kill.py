"""kill -9 at random moments: nothing finished is paid twice, and the end is the same as if nothing had happened."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer
from tests.support.checks import Bench, strict
from tests.support.harness import arguments, asked_again, committed, finish, rows, run_folder, start, write_cases
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import HANGS_AFTER_S, wait_for_hang_up, wait_until

TABLES = (
    "iteration-1/scores.parquet", "iteration-1/records.parquet", "iteration-1/judge_inputs.parquet", "samples.parquet", "outputs.parquet",
)  # fmt: skip


def _state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".lock" not in p.name
    }


EXHAUSTIVE = "metrics.chunk_faithfulness.exhaustive=true"
Make = Callable[..., Bench]


def test_a_second_start_on_a_folder_is_refused_and_a_dead_ones_lock_is_not(bench: Make) -> None:
    b = bench(cases=30)
    b.fault("hang:after=10")
    first = start(b.args(), b.folder)
    try:
        b.until(14, first)
        before = len(b.server.log)
        second = b.run()
        assert second.code == 6
        assert f"process {first.pid} on {socket.gethostname()}" in second.text
        assert "started 20" in second.text
        assert len(b.server.log) == before
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    answered = {r["body"] for r in b.server.log if r["status"] == 200 and r["written"]}
    b.fault()
    third = b.run()
    assert third.code == 0
    assert f"took over the lock of process {first.pid}" in third.text
    assert not answered & set(third.bodies)


def test_two_runs_at_once_pay_each_question_once(bench: Make) -> None:
    """Other names, so other folders, but the same questions: the call store's claims keep one from asking what the
    other is asking for."""
    b = bench(cases=40)
    b.server.latency_ms = 40
    runs = [
        start([*b.args(concurrency=4), f"name={name}", *extra], b.folder)
        for name, extra in (("one", []), ("two", ["scoring.thresholds.faithfulness=0.5"]))
    ]
    for run in runs:
        text, _ = run.communicate(timeout=HANGS_AFTER_S)
        assert run.returncode == 0, text
    bodies = [r["body"] for r in b.server.log]
    assert len(bodies) == len(set(bodies))
    peers = {r["peer"] for r in b.server.log}
    assert len(peers) <= 2 * (4 + 1)
    alone = b.run(concurrency=4)
    assert (alone.code, alone.requests) == (0, [])


def test_one_of_two_dies_and_the_other_asks_for_what_it_had_claimed(bench: Make) -> None:
    b = bench(cases=30)
    b.fault("hang:nth=11+12+13+14")
    first = start([*b.args(concurrency=4), "name=one"], b.folder)
    b.until(14, first)  # all four places of the first wait for a reply, and hold a claim
    second = start([*b.args(concurrency=4), "name=two"], b.folder)
    try:
        wait_until(lambda: list((b.folder / "out" / "two").glob("*/iteration-1/journal.jsonl")), second)
        time.sleep(0.5)
        assert second.poll() is None, "it waits for what the first asks for"
        assert b.server.arrivals == 14
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    text, _ = second.communicate(timeout=HANGS_AFTER_S)
    assert second.returncode == 0, text
    twice = [body for body, n in b.ran(0, text).bodies.items() if n > 1]
    assert len(twice) <= 4


WEATHER = (
    (),
    ("empty_content:rate=0.2",),  # paid, and tried again
    ("no_message:rate=0.2",),  # paid, and no answer of an API
    ("500:rate=0.2", "empty_content:rate=0.1"),
    ("429:rate=0.2,retry_after=0.1", "reset:rate=0.05"),
    ("503:after=20",),  # an outage that lasts until the kill
)
Tokens = Counter[tuple[int, int]]


def _billed(lines: list[dict]) -> Tokens:
    return Counter((u["prompt_tokens"], u["completion_tokens"]) for line in lines if (u := line["usage"]))


def _ledger(out: Path) -> Tokens:
    path = out / ".store" / "calls.sqlite"
    if not path.exists():
        return Counter()
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'payments'").fetchone():
            return Counter()
        return Counter(db.execute("SELECT tokens_in, tokens_out FROM payments").fetchall())


def _killed(args: list[str], cwd: Path, server: OpenAIServer, requests: int) -> float | None:
    """Start, kill -9 after so many more requests; the moment of the kill, None where the run had ended by itself."""
    before, lines = server.arrivals, len(server.log)
    process = start(args, cwd, stdout=subprocess.DEVNULL)
    wait_until(
        lambda: (
            process.poll() is not None
            or server.arrivals - before >= requests
            or sum(line["status"] == 503 for line in server.log[lines:]) > 3  # few requests more come in an outage
        )
    )
    moment = time.time() if process.poll() is None else None
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_hang_up(server.url)
    wait_until(lambda: not server.in_flight)
    return moment


def _longest_pause(lines: list[dict]) -> float:
    """Between an answer and the next request on its connection: how long, here and now, a client takes to see to an answer."""
    ended: dict[int, float] = {}
    pauses = [1.0]
    for line in sorted(lines, key=lambda line: line["arrived"]):
        if line["peer"] in ended:
            pauses.append(line["arrived"] - ended[line["peer"]])
        ended[line["peer"]] = line["done"]
    return max(pauses)


def _tortured(tmp_path: Path, server: OpenAIServer, *, concurrency: int, kills: int, cases: int, seed: int) -> None:
    server.latency_ms, server.jitter = 25, 0.8
    data, out = write_cases(tmp_path / "cases.jsonl", cases), tmp_path / "out"
    args = arguments(data, out, server.url, EXHAUSTIVE, concurrency=concurrency)
    picked = random.Random(seed)
    lost: Tokens = Counter()
    finished: list[tuple[float, frozenset[str]]] = []
    for number in range(kills):
        server.faults = [ServerFault.read(text) for text in WEATHER[number % len(WEATHER)]]
        moment = _killed(args, tmp_path, server, picked.randint(1, 40))
        lines, ledger = list(server.log), _ledger(out)
        assert not ledger - _billed(lines), "the ledger holds what the provider did not bill"
        missing = _billed(lines) - ledger - lost
        last = _billed([line for line in lines if moment and line["done"] >= moment - _longest_pause(lines)])
        assert not missing - last, f"kill {number + 1}: an answer from long before the kill is not in the ledger"
        assert missing.total() <= concurrency, missing
        lost += missing
        if moment:
            finished.append((moment, committed(out)))
    server.faults = []
    code, text = finish(args, tmp_path)
    assert code == 0, text
    lines = list(server.log)
    assert asked_again(lines, finished) == [], "asked again although its reply stood in the store"
    ledger = _ledger(out)
    assert ledger == _billed(lines) - lost
    spent = strict(run_folder(out) / "iteration-1" / "cost.json")["spent"]
    assert spent["tokens_in"] == sum(tokens[0] * n for tokens, n in ledger.items())
    assert spent["tokens_out"] == sum(tokens[1] * n for tokens, n in ledger.items())
    count, before = server.arrivals, _state(run_folder(out))
    code, text = finish(args, tmp_path)
    assert code == 0, text
    assert server.arrivals == count, "a third start asks nothing"
    assert _state(run_folder(out)) == before, "a third start rewrites nothing"
    code, text = finish(arguments(data, tmp_path / "whole", server.url, EXHAUSTIVE, concurrency=32), tmp_path)
    assert code == 0, text
    for table in TABLES:
        assert rows(run_folder(out) / table) == rows(run_folder(tmp_path / "whole") / table), table
    print(f"{len(finished)} kills, {len(lines)} requests, {_billed(lines).total()} billed, {lost.total()} lost in flight")


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("concurrency", "seed"), [(8, 7), (32, 2)])
def test_killed_in_all_weathers(tmp_path: Path, server: OpenAIServer, concurrency: int, seed: int) -> None:
    kills = 15 if THOROUGH else len(WEATHER)
    _tortured(tmp_path, server, concurrency=concurrency, kills=kills, cases=100 if THOROUGH else 50, seed=seed)
