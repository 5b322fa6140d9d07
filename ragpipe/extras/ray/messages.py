"""Messages between a run, the process that speaks to Ray, and the tasks that measure slices: a JSON object, and bytes behind it.

Plain data only, read as such: nothing in a message can run.
"""

from __future__ import annotations

import json
import struct
import traceback
from itertools import accumulate
from typing import Any, BinaryIO

import pyarrow as pa

from ragpipe.core.errors import RagpipeError, user_fault
from ragpipe.runs.case_measuring import MeasuredSlice, Slice
from ragpipe.runs.table_rows import PackedInputs
from ragpipe.store.files import outside_cause

HEAD = struct.Struct(">QQ")
"""The lengths of the JSON object and of the bytes behind it."""
MOST_DEATHS = 3
"""Workers that a slice may take with it before the run ends."""


class WorkerFailure(RagpipeError):
    """What went wrong in a worker: the text of its error, with the exit code that it has in one process.

    `user_fault` is what to print where code of the user's is at fault (`core.user_faults`); empty where it is not.
    """

    def __init__(self, text: str, exit_code: int, user_fault: str = ""):
        super().__init__(text)
        self.exit_code, self.user_fault = exit_code, user_fault


class WorkerDied(RagpipeError):
    """A slice took its workers with it, one after the other, or a process that the run needs could not be started, or died: memory,
    processes, or code of the user's that ends its process. Not a bug of ragpipe's, as far as it can tell."""

    exit_code = 6


def packed_message(values: Any, *contents: bytes | memoryview) -> bytes:
    """A message, ready to be sent: a JSON object, and the bytes behind it in pieces, which are copied once. Raises ValueError
    and TypeError for what is no plain JSON."""
    text = json.dumps(values, allow_nan=False).encode("ascii")
    return b"".join([HEAD.pack(len(text), sum(map(len, contents))), text, *contents])


def read_message(file: BinaryIO) -> Any:
    """The JSON value of the next message, which has no bytes behind it. Raises EOFError where the other side is gone."""
    head = file.read(HEAD.size)
    size = HEAD.unpack(head)[0] if len(head) == HEAD.size else 0
    text = file.read(size)
    if not size or len(text) < size:
        raise EOFError
    return json.loads(text)


def parted_message(message: bytes) -> tuple[Any, bytes]:
    """The JSON value of a packed message, and the bytes behind it. Raises ValueError for what is none."""
    try:
        size, _ = HEAD.unpack_from(message)
    except struct.error as error:
        raise ValueError("a message without its head") from error
    return json.loads(message[HEAD.size : HEAD.size + size]), message[HEAD.size + size :]


def failure_message(error: BaseException, part: Slice | None = None) -> bytes:
    """What went wrong with a slice; without one, before any. Of a bug the traceback is told too: it exists only here."""
    if not isinstance(error, RagpipeError) and isinstance(error, Exception):
        error = outside_cause(error, any_file=True) or error
    text, fault = str(error), user_fault(error)
    if not isinstance(error, RagpipeError):
        text = f"{'' if part is None else f'{part}: '}{type(error).__name__}: {error}"
        text += "" if fault else "\n" + "".join(traceback.format_exception(error))
    return packed_message({"slice": part, "failure": text, "exit_code": getattr(error, "exit_code", 1), "user_fault": fault})


def measured_message(measured: MeasuredSlice, part: Slice) -> bytes:
    """What came of a slice."""
    scores = _table_bytes(measured.scores)
    values = {
        "slice": part,
        "cases": measured.cases,
        "transient": measured.transient,
        "errors": measured.errors,
        "lines": len(measured.lines),
        "scores": len(scores),
        "asked": [(rows.cells, rows.size, len(rows.texts)) for rows in measured.asked],
    }
    return packed_message(values, b"".join([measured.lines, scores, *(rows.texts for rows in measured.asked)]))


def _table_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def measured_of(values: dict[str, Any], content: bytes) -> MeasuredSlice:
    """The slice that a message tells of. Raises WorkerFailure where it tells of a failure."""
    if "failure" in values:
        raise WorkerFailure(values["failure"], values["exit_code"], values.get("user_fault", ""))
    lengths = (values["lines"], values["scores"], *(length for *_, length in values["asked"]))
    lines, scores, *texts = (content[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True))
    asked = [
        PackedInputs(tuple(map(tuple, cells)), size, text)
        for (cells, size, _), text in zip(values["asked"], texts, strict=True)
    ]
    with pa.ipc.open_stream(scores) as reader:
        table = reader.read_all()
    return MeasuredSlice(values["cases"], lines, values["transient"], values["errors"], table, asked)
