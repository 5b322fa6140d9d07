"""The page over finished runs as a static folder: `index.html`, and the reports and comparisons beside it, by relative links.

It works from disk and from any host of files. It holds questions, contexts and replies, as the reports do.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.version import FORMAT
from ragpipe.extras.view.index_document import index_document, index_page
from ragpipe.extras.view.page_bar import page_bar, with_bar
from ragpipe.extras.view.run_changes import all_changes
from ragpipe.extras.view.run_files import opened_below
from ragpipe.extras.view.run_index import Listing, RunIndex
from ragpipe.report.page_file import page_html
from ragpipe.report.styled_text import plural
from ragpipe.store.files import json_unless_same, output_error, write_unless_same
from ragpipe.store.run_folder import RunFolder

CONTENTS = "site.json"
"""Says that a folder is a site: the next one replaces its pages."""
_HEAD = 1 << 20  # bytes of a page in which its body begins
_TITLE = "the site was not written"
_FINISHED = ("complete", "incomplete")


def export_site(output_dir: Path, run: RunFolder | None, target: Path) -> Iterator[str]:
    """`task=export formats=[site]`: the site of all runs. Raises as `write_site`, and ConfigError for a single run."""
    if run is not None:
        found, expected = str(run.root), "no run: the site is that of all"
        raise ConfigError(_TITLE, [Problem("command line", "run", found, expected, "report.html is the page of one run")])
    runs, comparisons, left_out = write_site(output_dir, target)
    yield str(target / "index.html")
    rest = f"; {plural(left_out, 'run')} left out (not finished, or without report.html)" if left_out else ""
    yield f"{plural(runs, 'run')}, {plural(comparisons, 'comparison')}{rest}"
    yield "it holds questions, contexts, replies: whoever has the folder sees them"


def write_site(root: Path, target: Path) -> tuple[int, int, int]:
    """Write the site of all finished runs below `root` into a folder. Returns how many runs and comparisons it holds, and how
    many runs were left out because they are not finished or have no report.

    The folder is made; in one that holds a site its pages are replaced. Raises ConfigError for a folder with other files, or
    inside `root`; DataError where no run is finished, and for a file that cannot be read; OutputError.
    """
    _check_target(root, target)
    listing = RunIndex(root).read_all()
    runs = tuple(run for run in listing.runs if run.status.state in _FINISHED and "report.html" in run.files)
    if not runs:
        actual = f"{len(listing.runs)} runs, none of them finished"
        raise DataError(_TITLE, [Problem(str(root), "run", actual, "a finished run", "finish one: start its command again")])
    keys = {run.key for run in runs}
    sweeps = tuple(sweep for sweep in listing.sweeps if keys.issuperset(sweep.jobs))
    chosen = replace(listing, runs=runs, sweeps=sweeps, unread=0, revision="")
    document = index_document(Path(root.resolve().name), chosen, all_changes(runs), "")
    try:
        target.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target / "runs", ignore_errors=True)
        json_unless_same(target / CONTENTS, {"format": FORMAT})  # first: an interrupted site is a site
        for source, parts, key in _files(chosen):
            path = target.joinpath("runs", key, *parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with opened_below(source, parts) as content, open(path, "wb") as file:
                if path.suffix == ".html":
                    bar = page_bar(chosen, "/".join((key, *parts)), home="index.html")
                    file.write(with_bar(content.read(_HEAD), bar))
                shutil.copyfileobj(content, file)
        write_unless_same(target / "index.html", page_html(index_page(document, is_live=False)))
    except OSError as error:
        raise output_error(target, error) from error
    return len(runs), len(chosen.comparisons), len(listing.runs) - len(runs)


def _check_target(root: Path, target: Path) -> None:
    if target.resolve() == root.resolve() or target.resolve().is_relative_to(root.resolve()):
        fix = "dir=FOLDER outside of it: runs are looked for in all folders there"
        raise ConfigError(_TITLE, [Problem(str(target), "dir", f"a folder inside {root}", "a folder of its own", fix)])
    if target.is_dir() and any(target.iterdir()) and not (target / CONTENTS).is_file():
        expected = "a new or empty folder, or an earlier site"
        raise ConfigError(_TITLE, [Problem(str(target), "dir", "a folder with other files", expected, "dir=FOLDER")])


def _files(listing: Listing) -> Iterator[tuple[Path, tuple[str, ...], str]]:
    """The files of a site: the folder, the path below it, and the key of the folder."""
    for run in listing.runs:
        yield from ((run.root, tuple(name.split("/")), run.key) for name in (*run.files, *(page.path for page in run.pages)))
        yield from _side_files(run.root, "report.data", run.key)
    for key, root in listing.comparisons.items():
        yield root, ("compare.html",), key
        yield from _side_files(root, "compare.data", key)
    for sweep in listing.sweeps:
        yield sweep.root, (sweep.file,), sweep.key
    for address, path in listing.pages.items():
        yield path.parent, (path.name,), address.removesuffix(f"/{path.name}")


def _side_files(root: Path, name: str, key: str) -> Iterator[tuple[Path, tuple[str, ...], str]]:
    folder = root / name
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path.suffix == ".js":
            yield root, (name, path.name), key
