"""The end of a sweep: one comparison of all its jobs, in `<output_dir>/<name>/sweeps/<digest of its words>/`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.digest import sha256
from ragpipe.core.errors import RagpipeError
from ragpipe.reports.comparison_page import compared_scores, comparison_lines, comparison_markdown, comparison_notes
from ragpipe.reports.console import Console
from ragpipe.reports.job_comparison import COMPARISON_SCHEMA, Job, comparison_rows
from ragpipe.reports.shared_questions import shared_questions
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.files.atomic import sweep_temporaries
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same, write_unless_same
from ragpipe.store.run.run_folder import SWEEPS, RunFolder, make_folder
from ragpipe.store.run.run_tables import read_json

_STATES = {
    0: "complete",
    1: "bug",
    2: "refused",
    3: "gate failed",
    4: "incomplete",
    5: "provider unusable",
    6: "not writable",
    129: "interrupted",
    130: "interrupted",
    143: "interrupted",
}
_REASONS = {
    3: "a gate failed, see gates.json of the run",
    4: "judgements failed: see the coverage in the run's report; the same command asks again for what may pass",
}


def ended_job(number: int, words: Sequence[str], code: int | None, line: str, folder: Path | None) -> Job:
    """One job as it ended: its exit code (None = never started), the line that says why, and its folder."""
    state = "not started" if code is None else _STATES.get(code, f"exit {code}")
    return Job(number, list(words), code, state, line or _REASONS.get(code or 0, ""), folder)


def compare_jobs(jobs: Sequence[Job], words: Sequence[str], console: Console) -> Path | None:
    """Write `comparison.parquet`, `comparison.md` and `sweep.json`, and print the table. Returns the folder.

    `words` are those of the whole sweep: the same sweep, started again, has the same folder, and files that would not
    change are left alone. None, and nothing written, when no job has a run folder. Raises OutputError.
    """
    found = [_read(one) for one in jobs]
    home = next((one.folder.parent for one in found if one.folder), None)
    if home is None:
        return None
    rows = comparison_rows(found, shared_questions(_with_records(found)))
    folder = home / SWEEPS / sha256({"words": list(words), "name": home.name, "format": FORMAT})[:12]
    make_folder(folder)
    sweep_temporaries(folder)
    with (
        open_unless_same(folder / "comparison.parquet") as file,
        parquet_writer(file, COMPARISON_SCHEMA, compression="zstd") as writer,
    ):
        writer.write_table(pa.Table.from_pylist(rows, schema=COMPARISON_SCHEMA))
    write_unless_same(folder / "comparison.md", comparison_markdown(found, rows, words))
    json_unless_same(folder / "sweep.json", _document(found, words, home, folder))
    if compared_scores(found):
        heads, lines = comparison_lines(found, rows)
        console.folded(heads, lines)
        for note in comparison_notes(rows):
            console.say(note)
    console.say(f"comparison: {folder / 'comparison.md'}")
    return folder


def _with_records(jobs: Sequence[Job]) -> dict[int, tuple[Path, Mapping[str, Any]]]:
    """The jobs with results whose tables are there, by number: folder and metrics."""
    found = {}
    for one in jobs:
        if one.folder and one.metrics:
            run = RunFolder(one.folder)
            if all(run.iteration(number).records.is_file() for number in one.metrics["iterations"]):
                found[one.number] = (one.folder, one.metrics)
    return found


def _read(one: Job) -> Job:
    """The job with what its run says over all iterations; without a folder where there is no run in it."""
    if one.folder is None or not RunFolder(one.folder).manifest.is_file():
        return replace(one, folder=None)
    final = RunFolder(one.folder).final
    try:
        return replace(one, metrics=read_json(final.metrics), cost=read_json(final.cost))
    except RagpipeError as error:
        return one if one.reason else replace(one, reason=str(error).split("\n")[0])


def _document(jobs: Sequence[Job], words: Sequence[str], home: Path, folder: Path) -> dict[str, object]:
    listed = [
        {
            "job": one.number,
            "overrides": list(one.words),
            "state": one.state,
            "exit_code": one.code,
            "reason": one.reason or None,
            "run_id": one.folder.name if one.folder else None,
            "folder": Path(os.path.relpath(one.folder, folder)).as_posix() if one.folder else None,
        }
        for one in jobs
    ]
    return {"format": FORMAT, "name": home.name, "overrides": list(words), "jobs": listed}
