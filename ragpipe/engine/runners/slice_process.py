"""The process of one worker: it measures slices of a run until its driver is gone.

`python -m ragpipe.engine.runners.slice_process`, started by `slice_workers.py`: first comes a WorkerStart, then orders. Each slice is
answered with what came of it, or with what went wrong. Where a server is asked, several slices are under way at once, and the
figures of this process go to the driver twice per second.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from ragpipe.core.errors import Interrupted
from ragpipe.core.process_memory import collect_new_garbage, give_memory_back
from ragpipe.engine.runners.slice_messages import WorkerStart, failure_message, measured_message
from ragpipe.engine.workers.plain_messages import own_streams, packed_message, read_message
from ragpipe.stages.slices import Slice

if TYPE_CHECKING:
    from ragpipe.engine.runners.slice_measuring import OpenedRun

DRAIN_S = 8.0
"""Seconds in which the calls in flight may end when the driver has died. None is begun in them."""
FIGURES_S = 0.5
"""Seconds between two messages about the calls of this process."""
Order = dict[str, Any] | None
"""What the driver wants; None: nothing more."""


def main() -> None:
    """Measure slices until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first slice
    incoming, outgoing = own_streams()
    start = WorkerStart.of(read_message(incoming))
    answers = _Answers(outgoing)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(start, incoming, answers))
    answers.close()


class _Answers(threading.Thread):
    """Writes messages to the driver, in their order: calls go on while the driver is busy."""

    def __init__(self, file: BinaryIO):
        super().__init__(name="ragpipe-answers", daemon=True)
        self._file, self._messages = file, queue.SimpleQueue[bytes | None]()
        self.start()

    def send(self, message: bytes) -> None:
        """Queue a message."""
        self._messages.put(message)

    def notify(self, text: str) -> None:
        """Queue what the user should know."""
        self.send(packed_message({"notice": text}))

    def run(self) -> None:
        """The body of the thread."""
        with suppress(OSError):  # the driver is gone: its orders end too
            while (message := self._messages.get()) is not None:
                self._file.write(message)
                self._file.flush()

    def close(self) -> None:
        """Write what is queued."""
        self._messages.put(None)
        self.join(1.0)


class _Orders(threading.Thread):
    """Reads the driver's orders. When the driver is gone, `end` is called in this thread."""

    def __init__(self, incoming: BinaryIO, loop: asyncio.AbstractEventLoop):
        super().__init__(name="ragpipe-orders", daemon=True)
        self._incoming, self._loop = incoming, loop
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self.end: Callable[[], None] = lambda: os._exit(0)
        """By default the process ends at once: nobody would read what it still does, and nothing of it was paid for."""
        self.start()

    async def next(self) -> Order:
        """The next order; None once the driver is gone."""
        return await self._orders.get()

    def run(self) -> None:
        """The body of the thread."""
        try:
            while True:
                self._put(read_message(self._incoming))
        except (EOFError, OSError):
            self.end()

    def end_after_calls(self) -> None:
        """From now on, calls in flight may end when the driver is gone."""
        self.end = self._end_loop

    def _end_loop(self) -> None:
        timer = threading.Timer(DRAIN_S + 1, os._exit, (0,))  # whatever hangs
        timer.daemon = True
        timer.start()
        self._put(None)

    def _put(self, order: Order) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._orders.put_nowait, order)


async def _serve(start: WorkerStart, incoming: BinaryIO, answers: _Answers) -> None:
    from ragpipe.engine.runners.slice_measuring import open_measuring

    orders = _Orders(incoming, asyncio.get_running_loop())
    is_open = False
    try:
        async with open_measuring(start, answers.notify) as run:
            is_open = True
            collect_new_garbage()
            if run.asks_servers:
                orders.end_after_calls()
            await _Work(run, answers).follow(orders)
    except Exception as error:
        if is_open:  # the driver hands the slices that it still has to another worker
            answers.notify(f"a worker ended with an error: {type(error).__name__}: {error}")
        else:
            await _fail_all(error, orders, answers)


async def _fail_all(error: Exception, orders: _Orders, answers: _Answers) -> None:
    """Every slice fails alike: the run could not be opened."""
    while (order := await orders.next()) is not None and "end" not in order:
        if "slice" in order:
            answers.send(failure_message(error, Slice(*order["slice"])))


class _Work:
    """The slices under way in this process."""

    def __init__(self, run: OpenedRun, answers: _Answers):
        self._run, self._answers = run, answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self, orders: _Orders) -> None:
        """Do what the driver wants, until it wants nothing more or is gone; then let the calls in flight end: all that the driver waits
        for, or those that take `DRAIN_S` at most."""
        figures: asyncio.Task[None] | None = None
        if self._run.asks_servers:
            self._answers.send(self._figures())  # before the first call: a worker with figures may have calls in flight
            figures = asyncio.create_task(self._send_figures())
        try:
            while (order := await orders.next()) is not None and "end" not in order:
                self._obey(order)
            is_led = order is not None  # should it die now, `_Orders` ends this process in time
            self._run.session.stop(Interrupted("the process that leads this one needs it no more"))
            await self._drain(None if is_led else DRAIN_S)
        finally:
            for task in (*self._tasks, *filter(None, [figures])):
                task.cancel()

    def _obey(self, order: dict[str, Any]) -> None:
        if "slice" in order:
            task = asyncio.create_task(self._measure(Slice(*order["slice"])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._run.session.stop(Interrupted(order["stop"]))

    async def _measure(self, part: Slice) -> None:
        try:
            message = measured_message(await self._run.measure(part), part)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            message = failure_message(error, part)
        if self._run.asks_servers:
            self._answers.send(self._figures())
        self._answers.send(message)

    async def _drain(self, limit_s: float | None) -> None:
        """Let the calls in flight end, and give up those that take longer than this."""
        session = self._run.session
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._tasks:
                    await asyncio.wait(tuple(self._tasks))
                await session.drain()
                return
        session.cancel()
        await session.drain()

    async def _send_figures(self) -> None:
        while True:
            await asyncio.sleep(FIGURES_S)
            self._answers.send(self._figures())

    def _figures(self) -> bytes:
        return packed_message({"figures": self._run.figures()})


if __name__ == "__main__":
    main()
