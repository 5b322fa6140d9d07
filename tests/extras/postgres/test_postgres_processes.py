"""Many processes, and whole runs, over one store in PostgreSQL: what was asked is counted."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragpipe.core.digest import sha256
from ragpipe.extras.postgres.database import PostgresDatabase
from ragpipe.store.call_store import read_calls
from tests.extras.postgres.postgres_server import PostgresServer
from tests.support.harness import Server, arguments, finish, write_cases
from tests.support.waiting import HANGS_AFTER_S, wait_until

pytestmark = pytest.mark.slow

ASKER = """
import asyncio, os, random, sys
from ragpipe.core.digest import sha256
from ragpipe.core.call import Call
from ragpipe.store.call_store import CallStore
from ragpipe.extras.postgres.database import PostgresDatabase

place, log, seed, keys, silent = PostgresDatabase(*sys.argv[1:3]), sys.argv[3], *map(int, sys.argv[4:6]), float(sys.argv[6])
asked = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def ask(store, slots, key):
    async with slots:
        if await store.get_or_claim(key) is None:
            os.write(asked, f"{os.getpid()} {key}\\n".encode())
            await asyncio.sleep(0.01)
            await store.put(Call(key, "", "judge", "ok", text=f"by {os.getpid()}", run_id=f"run{seed}"))

async def main():
    order = [sha256(f"key{n}") for n in range(keys)]
    random.Random(seed).shuffle(order)
    slots = asyncio.Semaphore(SLOTS)
    with CallStore(place, run_id=f"run{seed}", silent_after_s=silent) as store:
        await asyncio.gather(*(ask(store, slots, key) for key in order))

asyncio.run(main())
"""
SLOTS = 16


def starts(place: PostgresDatabase, log: Path, seed: int, keys: int, silent_s: float = 30.0) -> subprocess.Popen[bytes]:
    words = [place.url, place.schema, str(log), str(seed), str(keys), str(silent_s)]
    return subprocess.Popen([sys.executable, "-c", ASKER.replace("SLOTS", str(SLOTS)), *words])


def asked_in(log: Path) -> list[tuple[str, str]]:
    return [tuple(line.split()) for line in log.read_text().splitlines()] if log.exists() else []  # type: ignore[misc]


def test_eight_processes_ask_each_key_once_and_two_that_are_killed_repeat_what_was_in_flight(server: PostgresServer, tmp_path) -> None:
    place, log, keys = server.place(), tmp_path / "log", 2000
    processes = [starts(place, log, seed, keys) for seed in range(8)]
    wait_until(lambda: len(asked_in(log)) >= keys // 3)
    killed = processes[:2]
    for process in killed:
        process.kill()
    assert [process.wait(HANGS_AFTER_S) for process in processes[2:]] == [0] * 6
    assert len(read_calls(place, [sha256(f"key{n}") for n in range(keys)])) == keys
    times = Counter(key for _, key in asked_in(log))
    assert len(times) == keys
    by_killed = {str(process.pid) for process in killed}
    repeated = [key for key, count in times.items() if count > 1]
    assert len(repeated) <= len(killed) * SLOTS
    assert sum(times.values()) == keys + len(repeated)
    assert all(any(pid in by_killed for pid, key in asked_in(log) if key == again) for again in repeated)


def test_a_process_that_is_frozen_past_its_take_over_and_woken_harms_nothing(server: PostgresServer, tmp_path: Path) -> None:
    place, log, keys = server.place(), tmp_path / "log", 300
    frozen = starts(place, log, 1, keys, 1.5)
    wait_until(lambda: len(asked_in(log)) >= keys // 3)
    os.kill(frozen.pid, signal.SIGSTOP)
    assert starts(place, log, 2, keys, 1.5).wait(HANGS_AFTER_S) == 0
    before = read_calls(place, [sha256(f"key{n}") for n in range(keys)])
    assert len(before) == keys
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.wait(HANGS_AFTER_S) == 0
    assert read_calls(place, list(before)) == before, "the first reply stands"
    times = Counter(key for _, key in asked_in(log))
    assert sum(times.values()) - keys <= SLOTS


def _seal(out: Path) -> dict[str, str]:
    files = json.loads((out / "torture" / "latest" / "seal.json").read_text())["files"]
    return {name: digest for name, digest in files.items() if name != "config.yaml"}  # it names the store


@pytest.mark.thorough
def test_a_run_has_the_same_seal_over_postgres_as_over_sqlite(server: PostgresServer, tmp_path: Path) -> None:
    place = server.place()
    url = f"store.url={place.url}?schema={place.schema}"
    data = write_cases(tmp_path / "data.jsonl", 12)

    def words(name: str, *more: str) -> Sequence[str]:
        return arguments(data, tmp_path / name, judge.url, "report.formats=[terminal]", *more)

    with Server(tmp_path / "log") as judge:
        code, text = finish(words("one", url), tmp_path)
        assert code == 0, text
        asked = len(judge.requests())
        assert max(judge.bodies().values()) == 1
        code, text = finish([f"output_dir={tmp_path}", url, "task=store", "action=export", "to=calls.jsonl"], tmp_path)
        assert code == 0, text
        assert len((tmp_path / "calls.jsonl").read_bytes().splitlines()) == 2 * asked  # and what was paid for each
        code, text = finish(["task=store", "action=import", "from=calls.jsonl", "store.path=copied"], tmp_path)
        assert f"{asked} calls imported" in text, text
        for name, place_words in (("two", url), ("three", "store.path=copied")):
            code, text = finish(words(name, place_words), tmp_path)
            assert code == 0, text
        assert len(judge.requests()) == asked
    two, three = _seal(tmp_path / "two"), _seal(tmp_path / "three")
    assert two == three
    assert not list(tmp_path.glob("*/.store/calls.sqlite"))
    stats = finish(["task=store", url], tmp_path)[1]
    assert re.search(rf"replies\s+{asked}\b", stats), stats
    assert "claims: 0 alive, 0 dead, 0 unknown" in stats
