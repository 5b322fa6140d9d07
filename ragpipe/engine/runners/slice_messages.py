"""Messages between a driver and the tasks that measure its slices."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.errors import RagpipeError, user_fault
from ragpipe.engine.runners.plain_messages import packed_message
from ragpipe.stages.slices import MeasuredSlice, Slice
from ragpipe.stages.table_rows import PackedInputs
from ragpipe.store.outside_causes import outside_cause

MOST_DEATHS = 3
"""Workers that a slice may take with it before the run ends."""


@dataclass(frozen=True)
class WorkerStart:
    """What a worker is told first. The run folder says what to measure.

    Attributes:
        folder: the run folder.
        run_id: the run.
        iteration: the iteration to measure.
        signatures: the metrics as the driver has them (`metric_signatures`): a worker that reads others refuses.
        earlier: the measurements of an earlier run that hold here (`MeasuredCases.as_json`); None: there are none.
    """

    folder: Path
    run_id: str
    iteration: int
    signatures: dict[str, str]
    earlier: dict[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**vars(self), "folder": str(self.folder)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> WorkerStart:
        """From the JSON object."""
        return cls(**{**values, "folder": Path(values["folder"])})


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


def failure_message(error: BaseException, part: Slice | None = None) -> bytes:
    """What went wrong with a slice; without one, before any. Of a bug the traceback is told too: it exists only here."""
    if not isinstance(error, RagpipeError) and isinstance(error, Exception):
        error = outside_cause(error, any_file=True) or error
    text, fault = str(error), user_fault(error)
    if not isinstance(error, RagpipeError):
        text = f"{'' if part is None else f'{part}: '}{type(error).__name__}: {error}"
        text += "" if fault else "\n" + "".join(traceback.format_exception(error))
    values = {"slice": part, "failure": text, "exit_code": getattr(error, "exit_code", 1), "user_fault": fault}
    return packed_message(values)


def measured_message(measured: MeasuredSlice, part: Slice) -> bytes:
    """What came of a slice."""
    is_part = isinstance(measured.scores, bytes)
    scores = measured.scores if is_part else _table_bytes(measured.scores)
    values = {
        "slice": part,
        "cases": measured.cases,
        "transient": measured.transient,
        "errors": measured.errors,
        "lines": len(measured.lines),
        "scores": len(scores),
        "is_part": is_part,
        "asked": [(rows.cells, rows.lengths, rows.size, len(rows.texts)) for rows in measured.asked],
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
    lines, scores, *texts = (
        content[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)
    )
    asked = [
        PackedInputs(tuple(map(tuple, cells)), tuple(lengths), size, text)
        for (cells, lengths, size, _), text in zip(values["asked"], texts, strict=True)
    ]
    if not values["is_part"]:
        with pa.ipc.open_stream(scores) as reader:
            scores = reader.read_all()
    return MeasuredSlice(values["cases"], lines, values["transient"], values["errors"], scores, asked)
