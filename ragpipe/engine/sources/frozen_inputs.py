"""The frozen cases of a run: checked before anything is made of them, and restored when they are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.stages.seal_run import FROZEN, unseal
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.journal import has_entries
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import open_table, read_json
from ragpipe.store.run.seals import unchecked

_FIX = (
    "remove this file and start the run's command again: it is made again from the frozen cases and the stored replies; or copy "
    "the whole run folder"
)


class FrozenTables(Protocol):
    """What can write frozen cases again: see `ragpipe.engine.sources.case_sources.CaseSource`."""

    def restore(self, folder: RunFolder, fault: str) -> None:
        """Write both tables once more, because of this fault."""
        ...


def table_digests(folder: RunFolder) -> dict[str, str]:
    """The sha256 of both tables, as they are in the manifest."""
    return {path.name: sha256_file(path) for path in (folder.samples, folder.outputs)}


def table_damage(folder: RunFolder, known: Any) -> str | None:
    """The first thing that is wrong with the frozen cases, in words; None where both tables are what was frozen. `known` are
    the digests of the manifest."""
    for path in (folder.samples, folder.outputs):
        if fault := _table_fault(path):
            return f"{path.name}: {fault}"
        if not isinstance(known, Mapping) or known.get(path.name) != sha256_file(path):
            return f"{path.name} is not what was frozen"
    return None


def restore_frozen(
    folder: RunFolder, manifest: dict[str, Any], source: FrozenTables, warn: Callable[[str], None]
) -> None:
    """Write damaged frozen cases again from the same data, before anything is made of them.

    Args:
        folder: the run folder.
        manifest: its manifest, which is updated.
        source: where the cases come from.
        warn: prints a warning.

    Raises DataError where they cannot be written again.
    """
    data = manifest["data"]
    if fault := table_damage(folder, data.get("frozen")):
        unseal(folder, *FROZEN[:2])
        source.restore(folder, fault)
        data["frozen"] = table_digests(folder)
        warn(
            f"the frozen cases were damaged ({fault}); they were frozen anew from the same data, and what was answered is kept"
        )


def remove_unstarted(folder: RunFolder) -> None:
    """Remove a folder that never became a run, because its data, its plan or its system was refused. A folder with a collected
    output or with an iteration's journal was a run, and has only lost its manifest: it stays."""
    is_collected = has_entries(folder.outputs_journal)
    is_judged = any(folder.iteration(number).journal.exists() for number in folder.iterations())
    if not (folder.manifest.exists() or is_collected or is_judged):
        shutil.rmtree(folder.root, ignore_errors=True)
        with suppress(OSError):
            folder.root.parent.rmdir()


def inputs_error(folder: RunFolder, error: Exception) -> RagpipeError | None:
    """The error that names the file of a run folder that is gone or unreadable, where that is why `error` was raised.

    None where the folder is complete, and where `error` itself says what is wrong.
    """
    is_gone = not folder.root.is_dir()
    if isinstance(error, RagpipeError) and error.exit_code != 1 and not (is_gone and isinstance(error, DataError)):
        return None
    if is_gone:
        return OutputError(
            f"the run folder {folder.root} was removed while the run was going on. To fix: start the same command again; what was "
            "answered is in the call store"
        )
    problems = [
        Problem(str(path), "file", fault, "the file that ragpipe wrote", _FIX) for path, fault in _faults(folder.root)
    ]
    if not problems and isinstance(error, FileNotFoundError) and error.filename:
        problems = [
            Problem(str(error.filename), "file", "no such file", "a file of this run", "start the same command again")
        ]
    return DataError("files of a run cannot be read", problems) if problems else None


def is_readable_table(path: Path) -> bool:
    """Whether a table exists and can be opened."""
    return _table_fault(path) is None


def _faults(root: Path) -> Iterator[tuple[Path, str]]:
    """The files of a folder that cannot be read, each with what is wrong; links and hidden files are passed over."""
    for path in sorted(root.rglob("*")):
        if not is_regular_file(path) or path.name.startswith("."):
            continue
        fault = None
        if path.suffix == ".parquet":
            fault = _table_fault(path, rows=True)
        elif path.suffix == ".json":
            fault = _json_fault(path)
        if fault:
            yield path, fault


def _table_fault(path: Path, *, rows: bool = False) -> str | None:
    """Why a table cannot be opened, or with `rows` why one of its rows cannot be read; None when it can."""
    try:
        with unchecked(), open_table(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups if rows else 0):
                file.read_row_group(group)
    except DataError as error:
        return error.problems[0].found
    return None


def _json_fault(path: Path) -> str | None:
    try:
        read_json(path)
    except DataError as error:
        return error.problems[0].found
    return None
