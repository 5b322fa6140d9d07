"""An interrupted notebook cell, and runs in threads: they end, the lock stays until they have, and nothing is asked twice."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import ragpipe
from ragpipe.core.errors import Interrupted
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, write_cases
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # whole runs, several per test
CASES = 24


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(latency_ms=100) as server:
        yield server


@pytest.fixture
def words(here: Path, server: OpenAIServer) -> list[str]:
    return arguments(write_cases(here / "cases.jsonl", CASES), here / "out", server.url, metrics="faithfulness")


def cell(words: Sequence[str], *, interrupts: Sequence[float] = (), when: Callable[[], bool] = lambda: True) -> object:
    """What a notebook does: a loop is running, a cell calls `ragpipe.run`, and the stop button sends SIGINT, so many
    seconds after each other from the moment that `when` holds. Returns what came of it."""

    def press() -> None:
        while not when():
            time.sleep(0.005)
        for wait in interrupts:
            time.sleep(wait)
            os.kill(os.getpid(), signal.SIGINT)

    async def body() -> object:
        if interrupts:
            threading.Thread(target=press, daemon=True).start()
        return ragpipe.run(words)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(body())
    except BaseException as error:
        return error
    finally:
        loop.close()


def working() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ragpipe")]


def finished(root: Path) -> list[str]:
    assert not list((root / "out").rglob("journal.jsonl")), "the tables have all of it"
    return list(ragpipe.load(root / "out" / "torture" / "latest").records["sample_id"])


def test_an_interrupted_cell_ends_its_run_and_the_next_one_goes_on(words: list[str], server: OpenAIServer, tmp_path: Path) -> None:
    found = cell(words, interrupts=[0], when=lambda: server.arrivals >= 12)
    assert isinstance(found, KeyboardInterrupt)
    assert isinstance(found.__cause__, Interrupted)
    asked = server.arrivals
    assert asked < 2 * CASES, "it was under way"
    assert all(line["written"] for line in server.log), "what was in flight has landed"
    assert len(server.log) == asked
    assert (working(), list(tmp_path.rglob(".lock"))) == ([], [])
    time.sleep(0.3)
    assert server.arrivals == asked, "nothing is asked after the cell has ended"
    cell(words)
    assert Counter(line["body"] for line in server.log).most_common(1)[0][1] == 1, "nothing is asked twice"
    assert sorted(finished(tmp_path)) == [f"q{i:05d}" for i in range(CASES)], "a row per case"


def test_a_second_interrupt_gives_up_what_hangs(words: list[str], server: OpenAIServer, tmp_path: Path) -> None:
    server.faults = [ServerFault.read("hang:after=6")]
    found = cell([*words, "judge.timeout_s=3600"], interrupts=[0.1, 1], when=lambda: server.arrivals >= 12)
    assert isinstance(found, KeyboardInterrupt)
    assert (working(), list(tmp_path.rglob(".lock"))) == ([], [])


def test_a_third_interrupt_does_not_end_the_process_of_a_script() -> None:
    """`ragpipe.run` without a running loop: what cannot be given up is waited for, and the script goes on."""
    script = """
import asyncio, os, signal
from ragpipe.runs.event_loop import stoppable
from ragpipe.runs.event_loop import SignalHandlers, run_async

class Deaf:
    def stop(self, why): print(type(why).__name__)
    def cancel(self): print("cancelled")

async def work():
    with SignalHandlers(Deaf(), lambda text: None):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
    return "ended"

before = signal.getsignal(signal.SIGTERM)
with stoppable():
    print(run_async(work()))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM) is before)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert ran.stdout.split() == ["Interrupted", "cancelled", "ended", "True", "True"], ran.stderr
    assert ran.returncode == 0


def test_a_run_in_a_thread_is_stopped_from_another_one(words: list[str], server: OpenAIServer, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            ragpipe.run(words)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while server.arrivals < 12:
        time.sleep(0.005)
    assert ragpipe.stop() == 1
    thread.join(HANGS_AFTER_S)
    assert [type(error) for error in failures] == [Interrupted]
    assert server.arrivals < 2 * CASES
    assert (list(tmp_path.rglob(".lock")), ragpipe.stop()) == ([], 0)
    ragpipe.run(words)
    assert Counter(line["body"] for line in server.log).most_common(1)[0][1] == 1
    assert sorted(finished(tmp_path)) == [f"q{i:05d}" for i in range(CASES)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_during_a_run_is_refused_by_name(words: list[str], server: OpenAIServer) -> None:
    """The locks of the parent's threads would never be freed in it."""
    thread = threading.Thread(target=ragpipe.run, args=(words,))
    thread.start()
    while server.arrivals < 4:
        time.sleep(0.005)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            ragpipe.run(words)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read().startswith("OutputError: this process was forked while a run went on in its parent")
    os.waitpid(child, 0)
    thread.join()
