"""Messages between a driver and the processes that measure its slices: pickles with their length before them."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ragpipe.core.errors import RagpipeError

LENGTH = struct.Struct(">Q")


@dataclass(frozen=True)
class WorkerStart:
    """What a worker is told first. The run folder says what to measure; keys stay where they are, in the environment.

    Attributes:
        folder: the run folder.
        run_id: the run that pays.
        iteration: the iteration to measure.
        signatures: the metrics as the driver has them (`metric_signatures`): a worker that reads others refuses.
    """

    folder: Path
    run_id: str
    iteration: int
    signatures: dict[str, str]


@dataclass(frozen=True)
class WorkerNotice:
    """What the user should know, said by a worker."""

    text: str


def packed_message(content: Any) -> bytes:
    """A message with its length."""
    data = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def read_message(file: BinaryIO) -> Any:
    """The next message. Raises EOFError where the other side is gone."""
    head = file.read(LENGTH.size)
    data = file.read(*LENGTH.unpack(head)) if len(head) == LENGTH.size else b""
    if not data or len(data) < LENGTH.unpack(head)[0]:
        raise EOFError
    return pickle.loads(data)


def portable(error: Exception) -> RagpipeError:
    """The error, or one of ragpipe's with its text where it cannot be sent to another process."""
    if not isinstance(error, RagpipeError):
        return RagpipeError(f"{type(error).__name__}: {error}")
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its own pickling does
        again = None
    return error if type(again) is type(error) and str(again) == str(error) else RagpipeError(str(error))
