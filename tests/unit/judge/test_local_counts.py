"""How many texts a model in this process has embedded, and how many wait for it."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ragpipe.core.errors import Interrupted
from ragpipe.judge.embedder import LocalTransport
from tests.support.asking import question


async def test_texts_wait_until_their_batch_is_computed() -> None:
    release = threading.Event()

    def compute(asked: Sequence[tuple[str, ...]]) -> list[str]:
        release.wait(20)
        return ["v"] * len(asked)

    transport = LocalTransport(compute)
    tasks = [asyncio.create_task(transport.ask(question(f"text {n}"), lambda _: None)) for n in range(3)]
    await asyncio.sleep(0.05)
    assert (transport.computed, transport.uncomputed) == (0, 3)
    release.set()
    await asyncio.gather(*tasks)
    await asyncio.sleep(0.05)
    assert (transport.computed, transport.uncomputed) == (3, 0)


@pytest.mark.parametrize("drops", [True, False])
async def test_what_waits_when_a_run_is_stopped(drops: bool) -> None:
    """The round that is being computed ends, and is used; what waits is dropped by a slow model, and computed by a fast one."""
    release, rounds = threading.Event(), list[int]()

    def compute(asked: Sequence[tuple[str, ...]]) -> list[str]:
        rounds.append(len(asked))
        release.wait(20)
        return ["v"] * len(asked)

    transport = LocalTransport(compute, together=2, drops_waiting=drops)
    tasks = [asyncio.create_task(transport.ask(question(f"text {n}"), lambda _: None)) for n in range(5)]
    await asyncio.sleep(0.05)
    transport.stop(Interrupted("stopped"))
    release.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    dropped = [result for result in results if isinstance(result, Interrupted)]
    assert (len(dropped), rounds) == ((3, [2]) if drops else (0, [2, 2, 1]))
    with pytest.raises(Interrupted):
        await transport.ask(question("later"), lambda _: None)
