"""The end of a sweep: one comparison of all its jobs, in `<output_dir>/<name>/sweeps/<digest of its arguments>/`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.comparison.run_differences import judging_differences, known_alarms
from ragpipe.core.digest import sha256
from ragpipe.core.errors import RagpipeError
from ragpipe.core.version import FORMAT
from ragpipe.report.console import Console, JobConsole
from ragpipe.report.job_comparison import COMPARISON_SCHEMA, Job, OtherJudging, comparison_rows, shared_questions
from ragpipe.report.model import Report
from ragpipe.report.section_page import write_sections
from ragpipe.report.sweep_page import job_line, sweep_report, sweep_section
from ragpipe.report.terminal import print_report, print_warnings
from ragpipe.runs.manifest import checked_manifest
from ragpipe.store.files import json_unless_same, open_unless_same, sweep_temporaries
from ragpipe.store.parquet_parts import parquet_writer
from ragpipe.store.run_folder import SWEEPS, RunFolder, make_folder
from ragpipe.store.run_tables import read_json

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
    4: "judgements with an error: see the coverage in the run's report; the same command asks again for what may pass",
}


def console_of_job(settings: Any) -> Console:
    """The console of a job: one that prints no results, for the sweep prints one table. `settings` are those that its task has
    checked; a task without a report prints as if it were started alone."""
    finished = getattr(settings, "finished", None)
    has_report = getattr(getattr(finished, "config", settings), "report", None) is not None
    return JobConsole() if has_report else Console()


def ended_job(number: int, arguments: Sequence[str], code: int | None, line: str, folder: Path | None) -> Job:
    """One job at its end, with its overrides and its exit code; None where it was never started. `line` says why it ended so."""
    state = "not started" if code is None else _STATES.get(code, f"exit {code}")
    return Job(number, list(arguments), code, state, line or _REASONS.get(code or 0, ""), folder)


def ended_line(job: Job, jobs: int, arguments: str, seconds: float) -> str:
    """The line of a job that has ended, one of `jobs`."""
    return job_line(job.number + 1, jobs, arguments, _with_results(job), seconds)


def compare_jobs(jobs: Sequence[Job], arguments: Sequence[str], console: Console, warnings: Sequence[str] = ()) -> Path | None:
    """Write `comparison.parquet`, `comparison.md`, `comparison.html` and `sweep.json`, and print the table and the `warnings` of the jobs. Returns the
    folder.

    `arguments` are those of the whole sweep: the same sweep, started again, has the same folder, and files that would not
    change are left alone. None, and nothing written, when no job has a run folder. Raises OutputError.
    """
    results = [_with_results(job) for job in jobs]
    home = next((job.folder.parent for job in results if job.folder), None)
    if home is None:
        return None
    folders = {job.number: (job.folder, job.metrics) for job in results if job.folder and job.metrics and _has_records(job)}
    judgings = other_judgings(folders)
    rows = comparison_rows(results, shared_questions(folders), judgings)
    folder = home / SWEEPS / sha256({"arguments": list(arguments), "name": home.name, "format": FORMAT})[:12]
    make_folder(folder)
    sweep_temporaries(folder)
    with (
        open_unless_same(folder / "comparison.parquet") as file,
        parquet_writer(file, COMPARISON_SCHEMA, compression="zstd") as writer,
    ):
        writer.write_table(pa.Table.from_pylist(rows, schema=COMPARISON_SCHEMA))
    write_sections(folder / "comparison.md", sweep_report(results, rows, arguments, judgings))
    json_unless_same(folder / "sweep.json", _document(results, arguments, home, folder))
    if section := sweep_section(results, rows, judgings):
        print_report(Report("", "", "", None, (), (section,)), console)
    of_runs = [(warning["kind"], warning["text"]) for job in results if job.metrics for warning in job.metrics["warnings"]]
    kinds = {text: kind for kind, text in of_runs}
    print_warnings([*((kinds.get(text, text), text) for text in warnings), *of_runs], console, "")
    console.say(f"comparison: {folder / 'comparison.html'}")
    return folder


def _has_records(job: Job) -> bool:
    numbers = job.metrics["iterations"] if job.metrics else ()
    return job.folder is not None and all(RunFolder(job.folder).iteration(number).records.is_file() for number in numbers)


def _with_results(job: Job) -> Job:
    """The job with the metrics and the cost of its run over all iterations; without a folder where that holds no run."""
    if job.folder is None or not RunFolder(job.folder).manifest.is_file():
        return replace(job, folder=None)
    final = RunFolder(job.folder).final
    try:
        return replace(job, metrics=read_json(final.metrics), cost=read_json(final.cost))
    except RagpipeError as error:
        return job if job.reason else replace(job, reason=str(error).split("\n")[0])


def _document(jobs: Sequence[Job], arguments: Sequence[str], home: Path, folder: Path) -> dict[str, object]:
    listed = [
        {
            "job": job.number,
            "arguments": list(job.arguments),
            "state": job.state,
            "exit_code": job.code,
            "reason": job.reason or None,
            "run_id": job.folder.name if job.folder else None,
            "folder": Path(os.path.relpath(job.folder, folder)).as_posix() if job.folder else None,
        }
        for job in jobs
    ]
    return {"format": FORMAT, "name": home.name, "overrides": list(arguments), "jobs": listed}


def other_judgings(runs: Mapping[int, tuple[Path, Mapping[str, Any]]]) -> dict[int, OtherJudging]:
    """For each job that was judged otherwise than the first one what differs.

    `runs` are the folder and the `final/metrics.json` of each job with results. Raises DataError for what cannot be read.
    """
    manifests = {number: checked_manifest(RunFolder(folder)) for number, (folder, _) in runs.items()}
    alarms = [alarm for number, (folder, _) in runs.items() for alarm in known_alarms(RunFolder(folder), manifests[number])]
    ways: list[int] = []  # the first job of each way of judging
    judgings = {}
    for number, manifest in manifests.items():
        first = next((first for first in ways if not judging_differences(manifests[first], manifest, alarms)), number)
        if first == number:
            ways.append(number)
        if first != ways[0]:
            judgings[number] = OtherJudging(first, ways[0], judging_differences(manifests[ways[0]], manifests[first], alarms))
    return judgings
