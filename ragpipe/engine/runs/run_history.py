"""The scored runs of a name in the order of time, as a history takes them in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ragpipe.comparing.history_rows import HistoryRun
from ragpipe.core.errors import RagpipeError
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.engine.runs.run_list import run_folders
from ragpipe.store.run.run_folder import RunFolder

_MUTATED = "selftest.json"


def scored_runs(folder: Path, *, derived: bool, newest: int, warn: Callable[[str], None]) -> list[HistoryRun]:
    """The runs below the folder of a name that are scored to their end, the newest last.

    Args:
        folder: the folder of the name.
        derived: whether runs over the frozen cases of another run (judged or scored again) are taken in.
        newest: how many runs, at most.
        warn: gets one line for each run that cannot be read, which is passed over.

    The runs of a self-test are never among them: their answers are made up.
    """
    runs: list[HistoryRun] = []
    for path in run_folders(folder):
        run = RunFolder(path)
        try:
            manifest = checked_manifest(run)
        except RagpipeError as error:
            warn(f"passed over: {path}: {str(error).splitlines()[0]}")
            continue
        is_wanted = derived or not manifest.get("source_run")
        if is_wanted and run.final.metrics.is_file() and not (path / _MUTATED).exists():
            runs.append(HistoryRun(run, manifest))
    return sorted(runs, key=lambda run: str(run.manifest["created_at"]))[-newest:]
