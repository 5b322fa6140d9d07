"""Asks questions in two rounds by batch, in a process that may kill itself at a point: `python -m tests.extras.batch.batch_asker`.

The words are a JSON object: `url`, `model`, `folder`, `count`, and `kill` as `name:number:before` or `:after`, or empty. The points
are calls of a function: of the batch folder (`write` is every atomic write of it, `deliver`), or of the Batch API (`upload`,
`create`, `status`, `results`). Prints the texts of all replies as JSON.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragpipe.extras.batch import folder as batch_folder
from ragpipe.extras.batch import transport as batch_transport
from ragpipe.extras.batch.api import AnthropicBatches, OpenAIBatches
from ragpipe.extras.batch.settings import BatchSettings
from ragpipe.judge.session import JudgeSession
from ragpipe.store.call_store import CallStore
from tests.support.asking import question, settings

RUN = "run"


def texts_of(count):
    """The texts of the first round."""
    return [f"Answer number {i}." for i in range(count)]


def follow_up(text, reply):
    """The text of the second round's question, which depends on the first reply."""
    return f"{text} Before: {reply}"


class _KillPoint:
    """Kills this process at one call of one function."""

    def __init__(self, words):
        self.name, number, self.when = words.split(":") if words else ("", "0", "")
        self.number, self.calls = int(number), 0

    def patch(self, owner, attribute, name):
        if name != self.name:
            return
        function: Callable[..., Any] = getattr(owner, attribute)

        async def asynchronous(*args, **kwargs):
            with self._call():
                return await function(*args, **kwargs)

        def synchronous(*args, **kwargs):
            with self._call():
                return function(*args, **kwargs)

        setattr(owner, attribute, asynchronous if asyncio.iscoroutinefunction(function) else synchronous)

    @contextmanager
    def _call(self):
        self.calls += 1
        self._kill("before")
        yield
        self._kill("after")

    def _kill(self, when):
        if (when, self.calls) == (self.when, self.number):
            os.kill(os.getpid(), signal.SIGKILL)


async def _ask(words):
    folder = Path(words["folder"])
    store = CallStore(folder / "calls.sqlite", run_id=RUN)
    judge = settings(words["url"], model=words["model"], endpoint="test", api_key_env=None)
    batch_transport.POLL_S = batch_transport.QUIET_S = 0.05
    transport = batch_transport.BatchTransport(judge, BatchSettings(), folder / "batches", run_id=RUN)
    session = JudgeSession(identity=judge.identity_of_judge(), label=judge.label, transport=transport, store=store)

    async def chain(text):
        first = await session.reply(question(text))
        second = await session.reply(question(follow_up(text, first.text or "")))
        return [first.text, second.text]

    try:
        chains = await asyncio.gather(*map(chain, texts_of(words["count"])))
        await session.drain()
    finally:
        await session.close()
        store.close()
    return [text for texts in chains for text in texts]


def main():
    words = json.loads(sys.argv[1])
    point = _KillPoint(words["kill"])
    point.patch(batch_folder, "atomic_write", "write")
    point.patch(batch_folder.BatchFolder, "deliver", "deliver")
    for api in (OpenAIBatches, AnthropicBatches):
        for name in ("upload", "create", "status", "results"):
            point.patch(api, name, name)
    print(json.dumps(asyncio.run(_ask(words))))


if __name__ == "__main__":
    main()
