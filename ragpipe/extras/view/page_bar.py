"""What a page gets above its own content where it is served, or stands in a site: the way back, the runs beside it, its other pages."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from ragpipe.comparison.settings import CompareSettings
from ragpipe.extras.view.listed_run import ListedRun
from ragpipe.extras.view.run_changes import runs_before
from ragpipe.extras.view.run_index import Listing
from ragpipe.runs.comparison_files import comparison_id
from ragpipe.store.run_folder import COMPARISONS

_HEADER = b"<header"
_NAV = Markup('<nav class="served bar no-print" aria-label="runs">{}</nav>\n')
_LINK = Markup('<a href="{}">{}</a> ')
_COMMAND = Markup("<details><summary>{}</summary><code>{}</code></details> ")


def with_bar(head: bytes, bar: Markup) -> bytes:
    """The first piece of a page with the bar above its header; the piece itself where it has none."""
    return head.replace(_HEADER, bar.encode() + _HEADER, 1)


def page_bar(listing: Listing, path: str, *, home: str = "", root: Path | None = None, is_own: bool = True) -> Markup:
    """The bar of the page at an address below `runs/`.

    Args:
        listing: the runs.
        path: the address.
        home: the file of the list of runs, from the top.
        root: the output folder, which commands name; None for a site, which names no folder of this machine.
        is_own: whether the page is one of ours: another learns nothing of other runs.
    """
    top = "../" * (path.count("/") + 1)
    links = [_LINK.format(top + home or "./", "All runs")]
    run = next((run for run in listing.runs if path.startswith(f"{run.key}/")), None) if is_own else None
    if run is not None:
        pages = {"report.html": "report", **{page.path: page.name for page in run.pages}} if "report.html" in run.files else {}
        addresses = {f"{run.key}/{file}": name for file, name in pages.items()}
        links += [_LINK.format(top + run_address(other), name) for other, name in addresses.items() if other != path]
        for other, words in zip(listing.neighbours(run), ("← previous run", "next run →"), strict=True):
            links += [_LINK.format(top + run_address(other.key, "report.html"), words)] if other else []
        link, command = comparison_with(listing, run, root)
        words = "compared with the previous run" if link else "compare with the previous run"
        if link or command:
            links.append(_LINK.format(top + run_address(link), words) if link else _COMMAND.format(words, command))
    return _NAV.format(Markup("").join(links))


def run_address(*parts: str) -> str:
    """The address of a file, from the page over all runs: the same on the server and in a static folder. `parts` are the key of its
    folder and its name."""
    return f"runs/{quote('/'.join(parts), safe='/')}"


def comparison_with(
    listing: Listing, run: ListedRun, root: Path | None, befores: Mapping[str, ListedRun] | None = None
) -> tuple[str, str]:
    """Where the comparison of a run with the previous run is, and the command that makes it; both empty where there is none."""
    before = (runs_before(listing.runs) if befores is None else befores).get(run.key)
    if before is None:
        return "", ""
    key = f"{run.name}/{COMPARISONS}/{_default_id(before, run)}"
    words = [f"base={root / before.key}", f"candidate={root / run.key}"] if root else []
    return (
        f"{key}/compare.html" if key in listing.comparisons else "",
        f"python -m ragpipe task=compare {shlex.join(words)}" if words else "",
    )


def _default_id(*runs: ListedRun) -> str:
    """The name of the comparison of two runs where nothing is set; of one method a comparison has the name."""
    settings: dict[str, Any] = CompareSettings().model_dump(mode="json", exclude={"preference"})
    methods = [run.main.methods if run.main else () for run in runs]
    sides = [(run.run_id, names[0] if len(names) == 1 else None) for run, names in zip(runs, methods, strict=True)]
    return comparison_id(sides, settings, CompareSettings().kind)
