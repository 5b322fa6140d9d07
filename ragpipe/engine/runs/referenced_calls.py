"""Which stored calls the runs under an output folder use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ragpipe.core.errors import DataError, FormatMismatch, Problem, RagpipeError
from ragpipe.engine.iteration_states import COMPLETE
from ragpipe.engine.runs.manifest import read_manifest
from ragpipe.engine.runs.run_list import all_runs
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches

_BATCH = 65_536  # rows read at once


def referenced_keys(root: Path) -> Iterator[str]:
    """The keys in judge_inputs of every iteration of every run.

    Raises DataError, before the first key, for a run that is not finished or cannot be read: it is unknown what it will take
    from the store when it is started again.
    """
    runs = list(all_runs(root))
    if problems := [problem for folder in runs for problem in _unfinished(folder)]:
        raise DataError("what is unused cannot be known", problems[:10])
    return (key for folder in runs for key in _keys(folder))


def _unfinished(folder: RunFolder) -> Sequence[Problem]:
    """Why it is unknown which calls this run uses; nothing for a finished run."""
    try:
        states = read_manifest(folder).get("iterations", {})
        if states and all(state == COMPLETE for state in states.values()):
            return ()
    except FormatMismatch as error:
        return error.problems
    except (RagpipeError, OSError, AttributeError):
        pass
    fix = "finish this run, delete its folder, or choose by older_than_days, judge_label or run"
    return [Problem(str(folder.root), "run", "not finished, or not readable", "a finished run", fix)]


def _keys(folder: RunFolder) -> Iterator[str]:
    for number in folder.iterations():
        for batch in batches(folder.iteration(number).judge_inputs, ["key"], size=_BATCH):
            yield from batch.column(0).to_pylist()
