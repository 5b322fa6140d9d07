"""Finding the run that a word names: a path, a name, a run id, or `latest`."""

from __future__ import annotations

import difflib
from pathlib import Path

from ragpipe.core.errors import DataError, Problem
from ragpipe.engine.runs.run_list import run_list_folders
from ragpipe.store.run.run_folder import LATEST, RUN_ID, RunFolder


def find_named_run(word: str, output_dir: Path, *, name: str | None = None, key: str = "run") -> RunFolder:
    """The run that `word` names.

    Args:
        word: a name, for its newest run; `<name>/<run id>` or `<name>/latest`; a path to a run folder or to a `latest`; a run id;
            or `latest`, the newest run of `name`. A name comes before a path that reads alike.
        output_dir: the folder with the names.
        name: the name of this start, for `latest` and for a run id that several names have; None where the user set none.
        key: the key of the configuration, for messages.

    Raises DataError where there is none, or where several names have a run with this id; FormatMismatch.
    """
    folders = list(run_list_folders(output_dir))
    if word == LATEST:
        named = [folder for folder in folders if name is None or folder == output_dir / name]
        if len(named) == 1:
            return RunFolder.find(named[0] / LATEST)
        if named:
            names = ", ".join(str(folder.relative_to(output_dir)) for folder in named)
            raise _not_found(key, f"'latest' of {len(named)} names", f"the name of one: {names}", "NAME/latest")
    if RUN_ID.fullmatch(word) and (run := _with_id(word, output_dir, name, key)):
        return run
    for path in (output_dir / word, Path(word)):
        if path.is_dir() or path.is_symlink() or path.is_file():
            return RunFolder.find(path)
    known = [str(folder.relative_to(output_dir)) for folder in folders]
    expected = "a run folder, a name, NAME/latest, or a run id"
    names_text = f"; names in {output_dir}: {', '.join(known[:20]) or 'none'}"
    near = difflib.get_close_matches(word, known, n=1)
    raise _not_found(
        key, repr(word), expected + names_text, f"did you mean {near[0]}?" if near else "task=runs lists all"
    )


def runs_with_id(run_id: str, folder: Path) -> list[RunFolder]:
    """The runs with this id: that of the name whose folder it is, or of all names below the folder."""
    places = (folder, *run_list_folders(folder))
    return [RunFolder(place / run_id) for place in places if (place / run_id / "manifest.json").is_file()]


def _with_id(word: str, output_dir: Path, name: str | None, key: str) -> RunFolder | None:
    runs = [run.root for run in runs_with_id(word, output_dir)]
    if len(runs) > 1 and name is not None:
        runs = [run for run in runs if run.parent == output_dir / name] or runs
    if len(runs) > 1:
        paths = ", ".join(map(str, runs))
        raise _not_found(key, f"{word} under several names", f"one of {paths}", "name the folder")
    return RunFolder.find(runs[0]) if runs else None


def _not_found(key: str, actual: str, expected: str, fix: str) -> DataError:
    return DataError("there is no such run", [Problem("command line", key, actual, expected, fix)])
