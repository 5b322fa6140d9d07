"""Whether the tables behind a run are as they were sealed: checked before another run is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.engine.iteration_states import JUDGED
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.file_difference import named_row
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.seals import changed_cells, open_seal, seal_file

_SHOWN_ROWS = 3
_FIX = (
    "restore the file (or start the run's own command again, if it was stopped since); changed cases are judged with "
    "task=evaluate, as a run of their own"
)


def check_unmodified(source: RunFolder, states: Mapping[str, str], *, scores: bool = False) -> None:
    """Compare the frozen cases and the replies of a run (with `scores` also its scores) with its seal.

    `states` are the states of the iterations by number. What is not sealed yet (a run that never ended, an iteration that is
    being judged) is not checked. Raises DataError that names table, row, case and column.
    """
    try:
        seal = open_seal(source.seal)
    except ValueError as error:
        expected, fix = "the seal that ragpipe wrote", "copy the whole run folder"
        problem = Problem(str(source.seal), "seal.json", f"changed: {error}", expected, fix)
        raise DataError("a run's seal cannot be trusted", [problem]) from error
    judged = [source.iteration(int(number)) for number, state in states.items() if state != JUDGED]
    paths = [source.samples, source.outputs, source.index, source.baseline, source.calibration]
    paths += [iteration.judge_inputs for iteration in judged]
    if scores:
        paths += [iteration.scores for iteration in judged]
    problems = [*_changed_files(source, seal, paths)] if seal else []
    if problems:
        raise DataError("this run was changed after it was sealed; nothing was computed", problems)


def _changed_files(source: RunFolder, seal: Mapping[str, Any], paths: Iterable[Path]) -> Iterator[Problem]:
    for path in paths:
        name = path.relative_to(source.root).as_posix()
        table = seal["tables"].get(name)
        digest = table["sha256"] if table else seal["files"].get(name)
        if digest is None or not is_regular_file(path) or seal_file(path) == digest:
            continue  # a missing file is reported by the code that needs it
        what = describe_changes(path, table) if table else "its bytes are not what they were"
        yield Problem(str(path), name, what, "what seal.json says", _FIX)


def describe_changes(path: Path, sealed: Mapping[str, Any]) -> str:
    """Which cells of a table changed since it was sealed, in words: columns, rows, and the case of each row."""
    import pyarrow as pa

    try:
        rows, columns = changed_cells(path, sealed)
        places = ", ".join(_named_rows(path, together) for together in rows[:_SHOWN_ROWS])
    except (pa.ArrowException, OSError) as error:
        return f"no readable table any more ({str(error)[:200]})"
    if not rows and not columns:
        return "its bytes are not what they were (every cell still says the same)"
    more = f" and {sum(map(len, rows[_SHOWN_ROWS:])):,} more rows" if len(rows) > _SHOWN_ROWS else ""
    return f"{', '.join(columns)} changed in {places or 'its schema'}{more}"


def _named_rows(path: Path, rows: range) -> str:
    """A row by its number and its case; of several that share a digest the first, and how many come after it."""
    first = named_row(path, rows[0])
    return first if len(rows) == 1 else f"{first} or the {len(rows) - 1} after it"
