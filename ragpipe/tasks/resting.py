"""Which stored calls the runs under an output folder rest on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.errors import DataError, Problem, RagpipeError
from ragpipe.store.folder import RunFolder
from ragpipe.tasks.manifest import read_manifest
from ragpipe.tasks.runs import every_run

RESENT_TABLE = "resend.parquet"


def keys_in_use(root: Path) -> Iterator[str]:
    """The keys in judge_inputs of every iteration of every run, and of what was resent, one after the other.

    Raises DataError, before the first key, for a run that is not whole or cannot be read: what it will take from the
    store when it is started again cannot be known.
    """
    runs = list(every_run(root))
    open_ones = [str(folder.root) for folder in runs if not _is_whole(folder)]
    if open_ones:
        mend = "finish these runs, delete their folders, or choose by older_than_days, judge_label or run"
        raise DataError("what is unused cannot be known", [
            Problem(path, "run", "not finished, or not readable", "a finished run", mend) for path in open_ones[:10]
        ])  # fmt: skip
    return (key for folder in runs for key in _keys(folder))


def _is_whole(folder: RunFolder) -> bool:
    try:
        if _is_resent(folder):
            return True
        states = read_manifest(folder)["iterations"]
        return bool(states) and all(state == "complete" for state in states.values())
    except (RagpipeError, KeyError, OSError, AttributeError):
        return False


def _is_resent(folder: RunFolder) -> bool:
    """Whether the questions of another run were sent again here, to the end: such a run has no iterations."""
    return (folder.root / "resend.json").is_file() and (folder.root / RESENT_TABLE).is_file()


def _keys(folder: RunFolder) -> Iterator[str]:
    tables = [(folder.iteration(number).judge_inputs, "key") for number in folder.iterations()]
    for path, column in [(folder.root / RESENT_TABLE, "key_new")] if _is_resent(folder) else tables:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=[column]):
                    yield from batch.column(0).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise DataError("what is unused cannot be known", [
                Problem(str(path), "file", str(error), "the table that ragpipe wrote", "copy the whole run folder")
            ]) from error  # fmt: skip
