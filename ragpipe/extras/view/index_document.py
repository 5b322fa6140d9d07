"""The content of the page over all runs as one JSON object: what `index.json` and the static folder hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.extras.view.history_chart import history_lines
from ragpipe.extras.view.run_changes import RunChange
from ragpipe.extras.view.run_files import opened_below
from ragpipe.extras.view.run_index import Listing
from ragpipe.extras.view.run_row import live_words, run_address, run_row, sweep_row

_PAGE_TITLE = re.compile(r"<title>([^<]*?)(?: · ragpipe)?</title>")


def index_document(
    root: Path, listing: Listing, changes: Mapping[str, RunChange | None], revision: str
) -> dict[str, Any]:
    """All that the page shows.

    Args:
        root: the output folder.
        listing: its runs.
        changes: the difference of each run that has a run before.
        revision: what the page compares with that of `progress`, to know that it is old.
    """
    sweeps = {job: sweep for sweep in listing.sweeps for job in sweep.jobs}
    rows = [
        run_row(run, changes.get(run.key), has_before=run.key in changes, sweep=sweeps.get(run.key))
        for run in listing.runs
    ]
    return {
        "revision": revision,
        "folder": on_one_line(str(root)),
        "error": listing.error,
        "unread": listing.unread,
        "rows": rows,
        "sweeps": [sweep_row(sweep) for sweep in listing.sweeps],
        "comparisons": [
            [comparison_words(listing.comparisons[key], key), run_address(key, "compare.html")]
            for key in sorted(listing.comparisons)
        ],
        "history": history_lines(listing.runs, changes),
    }


def comparison_words(root: Path, key: str) -> str:
    """What a comparison compares, from the title of its page; its key where that has none."""
    try:
        with opened_below(root, ["compare.html"]) as file:
            match = _PAGE_TITLE.search(file.read(4096).decode("utf-8", "replace"))
    except (DataError, OSError):
        match = None
    name = key.rsplit("/", 2)[0]
    return on_one_line(f"{name}: {unescape(match[1])}" if match else key)


def progress_document(listing: Listing, revision: str) -> dict[str, Any]:
    """What the page asks for each second: runs that are not finished, and whether anything else has changed."""
    live = {
        run.key: {
            "state": run.status.state,
            "reason": on_one_line(run.status.reason),
            "resume": printable(run.status.resume),
            "live": live_words(run.status),
        }
        for run in listing.runs
        if run.is_unfinished
    }
    return {"revision": revision, "live": live, "states": Counter(run.status.state for run in listing.runs)}
