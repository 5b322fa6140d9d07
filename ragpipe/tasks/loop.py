"""One event loop a run, and what signals do to it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ragpipe.errors import Interrupted, RagpipeError

T = TypeVar("T")

TERM_GRACE_S = 8.0
"""Seconds that calls in flight may still take after SIGTERM before they are cancelled."""


class Stoppable(Protocol):
    def stop(self, why: RagpipeError) -> None: ...
    def cancel(self) -> None: ...


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; inside a running loop (a notebook) in a thread beside it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="ragpipe")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


class Signals:
    """While it is entered: SIGINT once drains, twice cancels; SIGTERM drains for `TERM_GRACE_S` at most.

    Only the main thread can take signals; elsewhere this does nothing.
    """

    def __init__(self, stage: Stoppable, say: Any):
        self._stage, self._say, self._count = stage, say, 0

    def __enter__(self) -> Signals:
        self._loop = asyncio.get_running_loop()
        self._here = threading.current_thread() is threading.main_thread()
        if self._here:
            self._loop.add_signal_handler(signal.SIGINT, self._interrupt)
            self._loop.add_signal_handler(signal.SIGTERM, self._terminate)
        return self

    def __exit__(self, *_: object) -> None:
        if self._here:
            self._loop.remove_signal_handler(signal.SIGINT)
            self._loop.remove_signal_handler(signal.SIGTERM)

    def _interrupt(self) -> None:
        self._count += 1
        if self._count == 1:
            self._say("interrupted: no new calls; waiting for those in flight (interrupt again to give them up)")
            self._stage.stop(Interrupted("interrupted", signal.SIGINT))
        elif self._count == 2:
            self._stage.cancel()
            self._loop.call_later(1.5, os._exit, 130)
        else:
            os._exit(130)

    def _terminate(self) -> None:
        self._stage.stop(Interrupted("terminated", signal.SIGTERM))
        self._loop.call_later(TERM_GRACE_S, self._stage.cancel)
