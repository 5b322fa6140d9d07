"""The bill of a run is the provider's own, to the token, whatever happened to its tries and to its processes.

What a killed process had asked and not yet heard of is the one thing that no ledger can hold: at every kill it is told apart
by the provider's log, and nothing else may be missing.
"""

import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer
from tests.support.checks import strict
from tests.support.harness import arguments, asked_again, committed, finish, run_folder, start, write_cases
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import wait_for_hang_up, wait_until

CONCURRENCY = 8
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
    """What the provider put on its bill: each answer that names a usage."""
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


def _tortured(tmp_path: Path, server: OpenAIServer, *, kills: int, cases: int, seed: int) -> None:
    server.latency_ms, server.jitter = 25, 0.8
    data, out = write_cases(tmp_path / "cases.jsonl", cases), tmp_path / "out"
    args = arguments(
        data, out, server.url, "metrics.chunk_faithfulness.exhaustive=true", "judge.retry_after_cap_s=5",
        concurrency=CONCURRENCY,
    )  # fmt: skip
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
        assert missing.total() <= CONCURRENCY, missing
        lost += missing
        if moment:
            finished.append((moment, committed(out)))
    server.faults = []
    code, text = finish(args, tmp_path)
    assert code == 0, text
    lines = list(server.log)
    again = asked_again(lines, finished)
    assert again == [], "asked again although its reply stood in the store"
    ledger = _ledger(out)
    assert ledger == _billed(lines) - lost
    spent = strict(run_folder(out) / "iteration-1" / "cost.json")["spent"]
    assert spent["tokens_in"] == sum(tokens[0] * n for tokens, n in ledger.items())
    assert spent["tokens_out"] == sum(tokens[1] * n for tokens, n in ledger.items())
    print(
        f"{len(finished)} kills, {len(lines)} requests, {_billed(lines).total()} billed, {lost.total()} lost in flight, "
        f"{len(again)} finished calls repeated; ledger {spent['tokens_in']:,} + {spent['tokens_out']:,} tokens"
    )


@pytest.mark.slow
def test_killed_in_all_weathers(tmp_path: Path, server: OpenAIServer) -> None:
    _tortured(tmp_path, server, kills=15 if THOROUGH else len(WEATHER), cases=100 if THOROUGH else 50, seed=7)
