"""Reading a data set by several processes: each reads parts of its files, this one puts them together in order.

Whatever is wrong with the data or with a worker, this process reads all of it again by itself: so errors, too, are those of one
process.
"""

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
from pathlib import Path
from typing import IO, Any

from ragpipe.core.digest_table import DIGEST, DigestTable
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.file_parts import UnevenLines
from ragpipe.datasets.text_lines import DataFile
from ragpipe.engine.load_messages import LoadedPart, loaded_of, part_message, start_message
from ragpipe.engine.slice_messages import HEAD
from ragpipe.stages.case_batches import CaseBatch
from ragpipe.stages.load_dataset import DatasetCounts, load_batches

PART = 2 << 20
"""Bytes of a part: some thousand small records."""
FEWEST_PARTS = 16
"""Parts from which on workers are worth their start."""
_AHEAD = 2  # parts per worker that are read before their turn


class _ReadAlone(Exception):
    """The data set is to be read by one process after all."""


class _WorkerLost(Exception):
    """A worker died, or could not be told what to read."""


def load_by_workers(
    dataset: Dataset,
    *,
    width: int,
    samples: Path,
    outputs: Path,
    say: Callable[[str], None],
    part_size: int = PART,
) -> DatasetCounts | None:
    """Write both tables of a data set that records its outputs. None where nothing was written, and one process is to read it:
    it is small, its records depend on each other, or something in it is wrong.

    Args:
        dataset: the data set.
        width: the number of workers.
        samples: the table of samples.
        outputs: the table of outputs.
        say: prints what the user should know.
        part_size: bytes of a part.
    """
    parts = dataset.parts(part_size)
    if parts is None or width < 2 or dataset.size < FEWEST_PARTS * part_size:
        return None
    try:
        with _workers(start_message(dataset), width) as answer:
            return load_batches(_whole(dataset, _in_order(answer, parts, width)), samples=samples, outputs=outputs)
    except _WorkerLost as error:
        say(f"runner=processes: a worker that read the data died ({error}); this process reads it alone")
    except (UnevenLines, _ReadAlone, OSError):  # one process says what is wrong with the data, or with the disk
        pass
    return None


def _whole(dataset: Dataset, parts: Iterable[LoadedPart | None]) -> Iterator[CaseBatch]:
    """The cases of all parts. Raises _ReadAlone where a part, or all of them together, are not as the data should be."""
    cases, contents = DigestTable(), DigestTable(DIGEST)
    for part in parts:
        if part is None:
            raise _ReadAlone
        if any(cases.setdefault(key) is not None for key in part.keys):
            raise _ReadAlone
        for name, content in zip(part.cases.names, part.contents, strict=True):
            if contents.setdefault(name, content) not in (None, content):
                raise _ReadAlone
        dataset.note_mapping(part.mapping)
        yield part.cases
    faults = Faults("")
    dataset.check_whole_reading(faults)
    if faults or not len(cases):
        raise _ReadAlone


def _in_order(
    answer: Callable[[DataFile], LoadedPart | None], parts: Iterable[DataFile], width: int
) -> Iterator[LoadedPart | None]:
    """What comes of each part, in their order; some are read ahead."""
    with ThreadPoolExecutor(width, thread_name_prefix="ragpipe-load") as threads:
        under_way: deque[Future[LoadedPart | None]] = deque()
        try:
            for part in parts:
                under_way.append(threads.submit(answer, part))
                if len(under_way) >= width * (1 + _AHEAD):
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


@contextmanager
def _workers(start: bytes, width: int) -> Iterator[Callable[[DataFile], LoadedPart | None]]:
    """Reads a part in a worker that is free; threads may call it. The workers are ended with the block."""
    processes, free = list[subprocess.Popen[bytes]](), queue.LifoQueue[subprocess.Popen[bytes]]()

    def answer(part: DataFile) -> LoadedPart | None:
        process = free.get()
        try:
            return loaded_of(*_asked(process, part_message(part)))
        except (EOFError, OSError) as error:
            raise _WorkerLost(str(error)) from error
        finally:
            free.put(process)

    try:
        for _ in range(width):
            process = _new_process()
            processes.append(process)
            free.put(process)
            with suppress(OSError):  # it died already: its first answer will be missing
                _send(process, start)
        yield answer
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _new_process() -> subprocess.Popen[bytes]:
    # a session of its own: Ctrl-C is for the driver, which then ends its workers
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-m", "ragpipe.engine.load_process"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)


def _send(process: subprocess.Popen[bytes], message: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(message)
    process.stdin.flush()


def _asked(process: subprocess.Popen[bytes], message: bytes) -> tuple[dict[str, Any], bytes]:
    """The answer of a worker. Raises EOFError and OSError where it died."""
    assert process.stdout is not None
    _send(process, message)
    values_size, size = HEAD.unpack(_exactly(process.stdout, HEAD.size))
    values = json.loads(_exactly(process.stdout, values_size))
    return values, _exactly(process.stdout, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("its answer ends early")
    return data
