"""The scored runs of a name in the order of time, as a history takes them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ragpipe.comparing.history_rows import HistoryRun
from ragpipe.core.errors import RagpipeError
from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.engine.runs.run_list import run_folders
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

_MUTATED = "selftest.json"


def scored_runs(folder: Path, *, derived: bool, warn: Callable[[str], None]) -> Iterator[HistoryRun]:
    """The runs below the folder of a name that are scored to their end and are as they were sealed, the newest first.

    Args:
        folder: the folder of the name.
        derived: whether runs over the frozen cases of another run (judged or scored again) are taken in.
        warn: gets one line for each run that cannot be read or was changed, which is passed over.

    The runs of a self-test are never among them: their answers are made up.
    """
    runs: list[HistoryRun] = []
    for path in run_folders(folder):
        run = RunFolder(path)
        try:
            manifest = checked_manifest(run)
        except RagpipeError as error:
            warn(_passed_over(path, error))
            continue
        is_wanted = derived or not manifest.get("source_run")
        if is_wanted and run.final.metrics.is_file() and not (path / _MUTATED).exists():
            runs.append(HistoryRun(run, manifest))
    for scored in sorted(runs, key=lambda scored: str(scored.manifest["created_at"]), reverse=True):
        try:
            check_unmodified(scored.folder, scored.manifest["iterations"])
            read_json(scored.folder.final.metrics)
        except RagpipeError as error:
            warn(_passed_over(scored.folder.root, error))
            continue
        yield scored


def _passed_over(path: Path, error: RagpipeError) -> str:
    first = getattr(error, "problems", None)
    what = f"{Path(first[0].where).name}: {first[0].found}" if first else str(error).splitlines()[0]
    return f"passed over: {path}: {what}"
