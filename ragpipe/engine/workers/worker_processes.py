"""Worker processes on this machine that answer messages, one at a time each; the answers come in the order of the questions."""

from __future__ import annotations

import json
import queue
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, Any, Self, TypeVar

from ragpipe.engine.workers.plain_messages import HEAD, packed_message
from ragpipe.engine.workers.python_processes import import_environment, module_words

Message = tuple[dict[str, Any], bytes]
"""The JSON object of an answer, and the bytes behind it."""

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


MOST_WAITING = 4
"""Workers that wait for the next work. Scoring and sealing take no more: more make blocks and digests no faster than one process
puts them together."""


class WorkerLost(Exception):
    """A worker died, could not be started, or could not be told what to do."""


class WorkerPool:
    """Worker processes on this machine that answer messages. They are started when they are first needed, and wait for the next work
    after it, until the end of the block."""

    def __init__(self) -> None:
        self._waiting = list[subprocess.Popen[bytes]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._waiting)
        self._waiting.clear()

    @contextmanager
    def answering(self, role: str, start: Any, width: int) -> Iterator[Callable[[bytes], Message]]:
        """Sends a message to a worker that is free, and returns its answer; threads may call it. It raises WorkerLost.

        After the block the workers wait for other work. Where it ends by an exception, or before all answers have come, they are
        ended: the next work might get their answers.

        Args:
            role: what the workers do (`answering_process.py`).
            start: what they are told first.
            width: their number.
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

        are_idle = False
        try:
            for _ in range(width):
                processes.append(process := self._next())
                with suppress(OSError):  # it died already: its first answer will be missing
                    send(process, packed_message({"role": role, "start": start}))
                free.put(process)
            yield ask
            are_idle = free.qsize() == width and all(map(_is_told_the_end, processes))
        finally:
            if are_idle:
                self._waiting += processes[:MOST_WAITING]
                _end(processes[MOST_WAITING:])
            else:
                _end(processes)

    def _next(self) -> subprocess.Popen[bytes]:
        """A worker that waits, or a new one. Raises WorkerLost where the system starts none."""
        while self._waiting:
            if (process := self._waiting.pop()).poll() is None:
                return process
            _end([process])  # it died while it waited
        try:
            return new_process("ragpipe.engine.workers.answering_process")
        except OSError as error:
            raise WorkerLost(str(error)) from error


def _is_told_the_end(process: subprocess.Popen[bytes]) -> bool:
    """Tell a worker that its role ends. False where it has died."""
    with suppress(OSError):
        send(process, packed_message(None))
        return True
    return False


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
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
    threads = ThreadPoolExecutor(width, thread_name_prefix="ragpipe-workers")
    under_way: deque[Future[_Answer]] = deque()
    try:
        for question in questions:
            under_way.append(threads.submit(answer, question))
            if len(under_way) >= width * (1 + ahead):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BaseException:
        # not waited for: a thread may wait for a worker that hangs, and whoever has the workers ends them next
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()


def new_process(module: str) -> subprocess.Popen[bytes]:
    """A worker. Raises OSError where the system starts none."""
    # a session of its own: Ctrl-C is for the driver, which then ends its workers
    pipe = subprocess.PIPE
    return subprocess.Popen(
        module_words(module), stdin=pipe, stdout=pipe, env=import_environment(), start_new_session=True
    )


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
