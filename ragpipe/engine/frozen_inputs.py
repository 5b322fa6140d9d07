"""Are the frozen cases of a run what was frozen? Asked before anything rests on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.store.run.run_folder import RunFolder

_FIX = (
    "remove this file and start the run's command again: it is made again from the frozen cases and the stored replies; or copy "
    "the whole run folder"
)


class FrozenTables(Protocol):
    """What makes frozen cases again: see `ragpipe.engine.case_sources.CaseSource`."""

    def restore(self, folder: RunFolder, fault: str) -> None: ...


def table_digests(folder: RunFolder) -> dict[str, str]:
    """The sha256 of both tables, as the manifest keeps them."""
    return {path.name: sha256_file(path) for path in (folder.samples, folder.outputs)}


def table_damage(folder: RunFolder, known: Any, *, quick: bool = False) -> str | None:
    """What is wrong with the frozen cases, the first thing, in words; None where both tables are what was frozen. `known`
    are the digests of the manifest. `quick` asks only whether both can be opened."""
    for path in (folder.samples, folder.outputs):
        if path.is_symlink():
            return f"{path.name} is a symbolic link"
        if not path.is_file():
            return f"{path.name} is missing"
        if fault := _unreadable(path):
            return f"{path.name}: {fault}"
        if not quick and (not isinstance(known, Mapping) or known.get(path.name) != sha256_file(path)):
            return f"{path.name} is not what was frozen"
    return None


def restore_frozen(
    folder: RunFolder, manifest: dict[str, Any], inputs: FrozenTables, warn: Callable[[str], None], *, quick: bool
) -> None:
    """See to it that the frozen cases are what was frozen, before anything rests on them: damaged ones are made again from
    the same data. Raises DataError where they cannot be."""
    data = manifest["data"]
    if fault := table_damage(folder, data.get("frozen"), quick=quick):
        inputs.restore(folder, fault)
        data["frozen"] = table_digests(folder)
        warn(
            f"the frozen cases were damaged ({fault}); they were frozen anew from the same data, and what was answered is kept"
        )


def remove_unstarted(folder: RunFolder) -> None:
    """A folder that never became a run (its data or its plan was refused) leaves nothing behind. One with a journal
    was a run, and has only lost its manifest."""
    journals = (folder.outputs_journal, *(folder.iteration(number).journal for number in folder.iterations()))
    if not folder.manifest.exists() and not any(path.exists() for path in journals):
        shutil.rmtree(folder.root, ignore_errors=True)
        with suppress(OSError):
            folder.root.parent.rmdir()


def inputs_error(folder: RunFolder, error: Exception) -> RagpipeError | None:
    """The error that names what of a run folder is gone or cannot be read, where that is why `error` was raised: it came
    from a library that knows no run. None where the folder is whole."""
    if not folder.root.is_dir():
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
    """Whether a table is there and can be opened."""
    return path.is_file() and not path.is_symlink() and _unreadable(path) is None


def _faults(root: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.name.startswith("."):
            continue
        fault = None
        if path.suffix == ".parquet":
            fault = _unreadable(path, whole=True)
        elif path.suffix == ".json":
            fault = _no_json(path)
        if fault:
            yield path, fault


def _unreadable(path: Path, *, whole: bool = False) -> str | None:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups if whole else 0):
                file.read_row_group(group)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return None


def _no_json(path: Path) -> str | None:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return str(error)[:200]
    return None
