"""Worker processes on this machine that answer messages, one at a time each; the answers come in the order of the questions."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, Any, TypeVar

from ragpipe.engine.plain_messages import HEAD

Message = tuple[dict[str, Any], bytes]
"""The JSON object of an answer, and the bytes behind it."""

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class WorkerLost(Exception):
    """A worker died, could not be started, or could not be told what to do."""


@contextmanager
def answering_workers(module: str, start: bytes, width: int) -> Iterator[Callable[[bytes], Message]]:
    """Sends a message to a worker that is free, and returns its answer; threads may call it. It raises WorkerLost. The workers are
    ended with the block.

    Args:
        module: what a worker runs.
        start: what it is told first.
        width: the number of workers.
    """
    processes, free = list[subprocess.Popen[bytes]](), queue.LifoQueue[subprocess.Popen[bytes]]()

    def ask(message: bytes) -> Message:
        process = free.get()
        try:
            return answer_of(process, message)
        except (EOFError, OSError) as error:
            raise WorkerLost(str(error)) from error
        finally:
            free.put(process)

    try:
        for _ in range(width):
            try:
                process = new_process(module)
            except OSError as error:
                raise WorkerLost(str(error)) from error
            processes.append(process)
            free.put(process)
            with suppress(OSError):  # it died already: its first answer will be missing
                send(process, start)
        yield ask
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def in_order(
    answer: Callable[[_Question], _Answer], questions: Iterable[_Question], width: int, *, ahead: int
) -> Iterator[_Answer]:
    """What comes of each question, in their order.

    Args:
        answer: answers a question; `width` threads call it.
        questions: the questions, taken as they are needed.
        width: how many are answered at once.
        ahead: questions for each of these that are answered, or wait, before their turn.
    """
    with ThreadPoolExecutor(width, thread_name_prefix="ragpipe-workers") as threads:
        under_way: deque[Future[_Answer]] = deque()
        try:
            for question in questions:
                under_way.append(threads.submit(answer, question))
                if len(under_way) >= width * (1 + ahead):
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def new_process(module: str) -> subprocess.Popen[bytes]:
    """A worker. Raises OSError where the system starts none."""
    # a session of its own: Ctrl-C is for the driver, which then ends its workers
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words, pipe = [sys.executable, "-m", module], subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)


def send(process: subprocess.Popen[bytes], message: bytes) -> None:
    """Send a message to a worker. Raises OSError where it has died."""
    assert process.stdin is not None
    process.stdin.write(message)
    process.stdin.flush()


def answer_of(process: subprocess.Popen[bytes], message: bytes) -> Message:
    """The answer of a worker. Raises EOFError and OSError where it died."""
    assert process.stdout is not None
    send(process, message)
    values_size, size = HEAD.unpack(_exactly(process.stdout, HEAD.size))
    values = json.loads(_exactly(process.stdout, values_size))
    return values, _exactly(process.stdout, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("its answer ends early")
    return data
