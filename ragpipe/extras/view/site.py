"""The page over finished runs as a static folder: `index.html`, and the reports and comparisons beside it, by relative links.

It works from disk and from any host of files. It holds questions, contexts and replies, as the reports do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem, RagpipeError
from ragpipe.core.version import FORMAT
from ragpipe.extras.view.index_document import index_document, index_page
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.extras.view.run_changes import all_changes
from ragpipe.extras.view.run_files import json_below, opened_below, run_home
from ragpipe.extras.view.run_index import Listing, RunIndex
from ragpipe.report.page_file import page_html
from ragpipe.report.styled_text import plural
from ragpipe.store.files import json_unless_same, output_error, write_unless_same
from ragpipe.store.run_folder import RunFolder

CONTENTS = "site.json"
"""Says that a folder is a site, and which files of it are: they are replaced by the next one."""
_TITLE = "the site was not written"
_FINISHED = ("complete", "incomplete")


@dataclass(frozen=True)
class SiteContents:
    """What a site holds: runs, comparisons, and the runs that were left out because they are not finished, have no report or
    cannot be read."""

    runs: int
    comparisons: int
    left_out: int


def export_site(output_dir: Path, run: RunFolder | None, target: Path) -> Iterator[str]:
    """`task=export formats=[site]`: the site of all runs, or that of one run, wherever its folder is. Raises as `write_site`."""
    root, key = (output_dir, "") if run is None else run_home(run.root.resolve(), output_dir.resolve())
    contents = write_site(root, target, key)
    yield str(target / "index.html")
    left_out = f"; {plural(contents.left_out, 'run')} left out (not finished, without report.html, or not readable)"
    words = f"{plural(contents.runs, 'run')}, {plural(contents.comparisons, 'comparison')}"
    yield words + (left_out if contents.left_out and not key else "")
    yield "it holds questions, contexts, replies: whoever has the folder sees them"


def write_site(root: Path, target: Path, run: str = "") -> SiteContents:
    """Write the site of all finished runs below `root`, or of the run with the key `run` alone, into a folder.

    The folder is made; in one that holds a site its files are replaced. Raises ConfigError for a folder with other files, or
    inside `root`; DataError where no run is finished; OutputError.
    """
    _check_target(root, target)
    listing = RunIndex(root).read_all()
    chosen = _chosen(listing, run)
    if not chosen.runs:
        actual = run or f"{len(listing.runs)} runs, none of them finished"
        raise DataError(_TITLE, [Problem(str(root), "run", actual, "a finished run", "finish one: start its command again")])
    document = index_document(Path(root.resolve().name), chosen, all_changes(chosen.runs), "")
    try:
        _remove_old(target)
        copies = list(_copies(chosen))
        names = sorted(["index.html", *(copy.name for copy in copies)])
        json_unless_same(target / CONTENTS, {"format": FORMAT, "files": names})  # first: an interrupted site is a site
        for copy in copies:
            copy.write(target)
        write_unless_same(target / "index.html", page_html(index_page(document, is_live=False)))
    except OSError as error:
        raise output_error(target, error) from error
    return SiteContents(len(chosen.runs), len(chosen.comparisons), len(listing.runs) - len(chosen.runs))


def _check_target(root: Path, target: Path) -> None:
    if target.resolve() == root.resolve() or target.resolve().is_relative_to(root.resolve()):
        fix = "dir=FOLDER outside of it: runs are looked for in all folders there"
        raise ConfigError(_TITLE, [Problem(str(target), "dir", f"a folder inside {root}", "a folder of its own", fix)])
    if target.is_dir() and any(target.iterdir()) and not (target / CONTENTS).is_file():
        expected = "a new or empty folder, or an earlier site"
        raise ConfigError(_TITLE, [Problem(str(target), "dir", "a folder with other files", expected, "dir=FOLDER")])


def _chosen(listing: Listing, run: str) -> Listing:
    """What goes into the site: finished runs with a report that can be read, or one of them with the comparisons that it is in."""
    runs = tuple(
        item
        for item in listing.runs
        if item.status.state in _FINISHED
        and "report.html" in item.files
        and run in ("", item.key)
        and _all_readable(_run_copies(item))
    )
    keys = {item.key for item in runs}
    comparisons = {
        key: path
        for key, path in listing.comparisons.items()
        if (not run or _compares(path, key, keys)) and _all_readable(_comparison_copies(key, path))
    }
    sweeps = tuple(
        sweep
        for sweep in listing.sweeps
        if keys.issuperset(sweep.jobs) and _Copy(sweep.root, ("comparison.md",), sweep.key).is_readable
    )
    return replace(listing, runs=runs, comparisons=comparisons, sweeps=sweeps, unread=0, revision="")


def _compares(path: Path, key: str, keys: set[str]) -> bool:
    """Whether a comparison has one of these runs as a side."""
    try:
        content = json_below(path, "comparison.json")
        sides = [content["base"], *content["candidates"]]
        return any(item.rpartition("/")[2] == str(side["run_id"]) for side in sides for item in keys)
    except (RagpipeError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class _Copy:
    """A file of the site: the path `parts` below the folder `root`, which has this key."""

    root: Path
    parts: tuple[str, ...]
    key: str

    @property
    def name(self) -> str:
        return "/".join(("runs", self.key, *self.parts))

    @property
    def is_readable(self) -> bool:
        try:
            opened_below(self.root, self.parts).close()
        except DataError:
            return False
        return True

    def write(self, target: Path) -> None:
        """Raises DataError for a file that cannot be read any more, OSError."""
        path = target / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_below(self.root, self.parts) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)


def _copies(listing: Listing) -> Iterator[_Copy]:
    for run in listing.runs:
        yield from _run_copies(run)
    for key, root in listing.comparisons.items():
        yield from _comparison_copies(key, root)
    for sweep in listing.sweeps:
        yield _Copy(sweep.root, ("comparison.md",), sweep.key)


def _run_copies(run: ListedRun) -> Iterator[_Copy]:
    yield from (_Copy(run.root, (name,), run.key) for name in run.files)
    yield from _side_copies(run.root, "report.data", run.key)


def _comparison_copies(key: str, root: Path) -> Iterator[_Copy]:
    yield _Copy(root, ("compare.html",), key)
    yield from _side_copies(root, "compare.data", key)


def _side_copies(root: Path, name: str, key: str) -> Iterator[_Copy]:
    folder = root / name
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path.suffix == ".js":
            yield _Copy(root, (name, path.name), key)


def _all_readable(copies: Iterable[_Copy]) -> bool:
    try:
        return all(copy.is_readable for copy in copies)
    except OSError:  # a folder that may not be listed
        return False


def _remove_old(target: Path) -> None:
    """Remove the files that an earlier site wrote, and folders that are empty then; no other file is touched."""
    target.mkdir(parents=True, exist_ok=True)
    if not (target / CONTENTS).is_file():
        return
    try:
        names = [str(name) for name in json.loads((target / CONTENTS).read_bytes())["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{target / CONTENTS} is damaged. To fix: remove the folder {target}.") from error
    for name in names:
        path = target / name
        if ".." not in Path(name).parts and not Path(name).is_absolute():
            path.unlink(missing_ok=True)
    for folder in sorted((path for path in target.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
