"""`task=history`: every score of every run of a name, each against the previous one, as tables, a page and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.cli.tasks.runs import RunsSettings, validate
from ragpipe.comparison.history import HISTORY, history_rows, newest_verdict
from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.errors import DataError, Problem
from ragpipe.report.console import Console
from ragpipe.report.exports import open_metrics, write_csv
from ragpipe.report.history_page import (
    MODE_HEADS,
    NEWEST_HEADS,
    NOTE,
    history_headline,
    history_report,
    newest_mode_rows,
    newest_rows,
)
from ragpipe.report.model import Table
from ragpipe.report.section_page import write_sections
from ragpipe.report.terminal import print_table
from ragpipe.runs.run_list import named_folders, scored_runs
from ragpipe.store.files import open_unless_same, write_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.parquet_parts import parquet_writer
from ragpipe.store.run_folder import HISTORY as HISTORY_FOLDER
from ragpipe.store.run_folder import make_folder

NEWEST = 200
"""Runs of a name that a history takes in."""


Keys = RunsSettings
__all__ = ["Keys", "run", "validate"]


def run(settings: RunsSettings, console: Console) -> int:
    """Write and print the history of the name, or of every name. Asks no judge and changes no run. Returns 0.

    Raises DataError where there is no scored run.
    """
    written = 0
    folders = named_folders(settings.output_dir, settings.name)
    for folder in folders:
        newest = islice(scored_runs(folder, warn=console.warn), NEWEST)
        if runs := list(newest)[::-1]:
            written += 1
            name = folder.relative_to(settings.output_dir).as_posix()
            rows = list(history_rows(runs, CompareSettings()))
            headline = history_headline(rows, newest_verdict(runs, rows))
            _write(folder / HISTORY_FOLDER, name, rows, headline, console)
    if not written:
        problem = Problem(
            ", ".join(map(str, folders)),
            "run",
            "no run that is scored to its end",
            "finished runs of a data set",
            "finish one; runs that were judged or scored again do not count",
        )
        raise DataError("there is no scored run", [problem])
    return 0


def _write(folder: Path, name: str, rows: Sequence[Mapping[str, Any]], headline: str, console: Console) -> None:
    """Write the files of one name, and print its newest run."""
    make_folder(folder)
    table = folder / "history.parquet"
    with FolderLock(folder):
        with open_unless_same(table) as file, parquet_writer(file, HISTORY, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist(list(rows), schema=HISTORY))
        write_csv(table, folder / "history.csv")
        write_sections(folder / "history.md", history_report(name, rows, headline))
        write_unless_same(folder / "history.prom", open_metrics(rows, name=name))
    print_table(Table.of(NEWEST_HEADS, newest_rows(rows, headline_only=True), title=f"{name}: the newest run").told(), console)
    if modes := newest_mode_rows(rows):
        print_table(Table.of(MODE_HEADS, modes, title="failure modes").told(), console)
    console.say(NOTE)
    console.say(headline)
    console.say(f"written: {folder}/")
