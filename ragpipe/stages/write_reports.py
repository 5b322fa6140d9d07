"""The report stage: the reports of a run and the final words on the terminal, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.comparing.comparison import method_differences
from ragpipe.comparing.judge_drift import NOTE
from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError
from ragpipe.core.resources import code_digest
from ragpipe.reports.build import build_report
from ragpipe.reports.console import Console
from ragpipe.reports.exports.table_export import export_tables
from ragpipe.reports.model import Report
from ragpipe.reports.render.markdown_report import render_markdown
from ragpipe.reports.render.terminal import print_report
from ragpipe.reports.report_data import ReportData, lowest_cases, read_case_figures, read_contradictions, read_results
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.reports.run_page.run_page import template_texts, write_run_page
from ragpipe.reports.sections.diagnosis_section import read_index
from ragpipe.reports.settings import ReportSettings
from ragpipe.reports.short_report import print_short_report
from ragpipe.schema.format_version import FORMAT
from ragpipe.scoring.gates.gate_rules import gates_document
from ragpipe.stages.collected_outputs import system_failures
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import derived_and_frozen
from ragpipe.store.files.atomic import json_unless_same, write_unless_same
from ragpipe.store.files.page_writer import side_folder
from ragpipe.store.run.progress_state import judged_seconds
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import read_columns, read_json

WORST_CASES = 10
"""How many of the lowest cases report.md shows."""


def write_reports(
    iteration_folder: Path,
    *,
    target: Path,
    settings: ReportSettings,
    console: Console,
    shown_folder: str = "",
    next_command: str = "",
) -> list[Path]:
    """Write the reports of `settings.formats` into the run folder `target` and print the results. Returns their paths.

    They show all iterations together where there are several and `iteration_folder` is the last one's, with its cases;
    else that iteration. JUnit and exports cover all iterations that are scored. Files that were written from the same
    sources (`ReportSources`) are not made again; one that would not change is left alone. Raises DataError, OutputError.

    Args:
        iteration_folder: The iteration to show.
        target: The run folder.
        settings: The `report` section of the configuration.
        console: Where results are printed, for the format `terminal`.
        shown_folder: How the folder is named to the user (`outputs/x/latest`); by default the target.
        next_command: The next useful command; empty for none.
    """
    run, iteration = RunFolder(target), IterationFolder(iteration_folder)
    shown = {
        "iteration": iteration.root.name,
        "name": _name(run),
        "seconds": sorted(judging_times(run).items()),
        "drift": _drift(run),
    }
    sources = ReportSources.of(run, settings, shown)
    written = sources.written()
    if written is not None:
        prints = "terminal" in settings.formats and console.shows_results
        settings = settings.model_copy(update={"formats": ["terminal"] if prints else []})
    if written is None or settings.formats:
        data = read_report_data(run, iteration, settings)
        report = build_report(replace(data, folder=shown_folder or str(target), next_command=next_command))
        if written is None:
            written = _write_pages(run, iteration, data, report) + _write_exports(run, settings)
            sources.note(written)
        if not console.shows_results:
            return written
        if "terminal" in settings.formats and settings.detail == "short":
            print_short_report(data, _page(run, written, shown_folder or str(target)), console)
        elif "terminal" in settings.formats:
            print_report(report, console)
    return written


def _page(run: RunFolder, written: Sequence[Path], folder: str) -> str:
    """The page that a reader opens next, in the folder as it is named to the user; the folder where no page was written."""
    page = next((path for path in (run.html, run.report) if path in written), None)
    return folder if page is None else str(Path(folder) / page.name)


def judging_times(run: RunFolder) -> dict[int, float]:
    """The seconds for which each scored iteration was judged; those that this machine did not judge are left out."""
    times = {number: judged_seconds(run.iteration(number).wall) for number in scored_iterations(run)}
    return {number: seconds for number, seconds in times.items() if seconds is not None}


def write_report_files(run: RunFolder, iteration: IterationFolder, settings: ReportSettings) -> list[Path]:
    """Write the files of `settings.formats`; returns their paths.

    `iteration` is the iteration of the pages. Raises DataError for a file of the run that is missing or broken, OutputError.
    """
    written = list[Path]()
    if {"markdown", "html"} & set(settings.formats):
        data = read_report_data(run, iteration, settings)
        written += _write_pages(run, iteration, data, build_report(data))
    return written + _write_exports(run, settings)


def read_report_data(run: RunFolder, iteration: IterationFolder, settings: ReportSettings) -> ReportData:
    """What the report is made from."""
    metrics, cost = read_results(run.root, iteration.root)
    lowest = lowest_cases(iteration.records, WORST_CASES)
    folders = [run.iteration(number) for number in metrics["iterations"]] if "iterations" in metrics else [iteration]
    found = method_differences([folder.records for folder in folders], metrics)
    return ReportData(
        metrics,
        cost,
        settings,
        name=_name(run),
        gates=_gates(run),
        index=read_index(run.root),
        methods=(None if found is None else {"run_id": _run_id(run), **found}),
        lowest=lowest,
        contradictions=read_contradictions(iteration, lowest),
        figures=read_case_figures(iteration.records, metrics, int(iteration.root.name.removeprefix("iteration-")))
        if "html" in settings.formats
        else None,
        questions=_example_questions(run, metrics),
        first_error=_first_error(run, iteration, metrics),
        judging_seconds=judging_times(run),
        drift=_drift(run),
    )


def _drift(run: RunFolder) -> dict[str, Any]:
    """What the manifest notes of the drift of the judge; nothing without a check."""
    noted: dict[str, Any] = read_json(run.manifest).get(NOTE, {}) if run.manifest.is_file() else {}
    return noted


def _example_questions(run: RunFolder, metrics: Mapping[str, Any]) -> dict[str, str]:
    """The question of the first example of each diagnosis, by the id of the sample."""
    ids = {case["sample_id"] for diagnosis in metrics.get("diagnosis") or () for case in diagnosis["examples"][:1]}
    if not ids:
        return {}
    samples = read_columns(run.samples, ["id", "question"])
    rows = samples.filter(pc.is_in(samples["id"], pa.array(sorted(ids)))).to_pylist()
    return {row["id"]: row["question"] for row in rows}


def _first_error(run: RunFolder, iteration: IterationFolder, metrics: Mapping[str, Any]) -> str:
    """Where no score has a value, the first failure of the system, else of a judgement, with its case; empty otherwise."""
    if any(score["n_ok"] for score in metrics["overall"]["scores"].values()):
        return ""
    if first := system_failures(run.outputs).first:
        return first
    rows = read_columns(iteration.scores, ["sample_id", "score_name", "status", "reason"])
    failed = rows.filter(pc.equal(rows["status"], "error")).slice(0, 1).to_pylist()
    return f"{failed[0]['sample_id']}: {failed[0]['score_name']}: {failed[0]['reason']}" if failed else ""


def _write_pages(run: RunFolder, iteration: IterationFolder, data: ReportData, report: Report) -> list[Path]:
    settings, written = data.settings, list[Path]()
    if "markdown" in settings.formats:
        write_unless_same(run.report, render_markdown(report))
        written.append(run.report)
    if "html" in settings.formats:
        cases = RunCases(run, iteration, data.metrics, _run_id(run))
        written += write_run_page(run.html, report, cases, single_file_mb=settings.single_file_mb)
    return written


def _write_exports(run: RunFolder, settings: ReportSettings) -> list[Path]:
    """Write those of `junit`, `csv` and `json` that `settings.formats` names, over all scored iterations."""
    formats = set(settings.formats)
    if not formats & {"junit", "csv", "json"}:
        return []
    numbers, written = scored_iterations(run), list[Path]()
    if "junit" in formats:
        from ragpipe.reports.exports.junit import junit_xml

        per_iteration = _metrics_per_iteration(run)
        write_unless_same(run.junit, junit_xml(per_iteration, _gates(run), name=_name(run)))
        written.append(run.junit)
    return written + export_tables(run, formats, numbers)


def _gates(run: RunFolder) -> dict[str, Any]:
    return read_json(run.gates) if run.gates.is_file() else gates_document(_metrics_per_iteration(run))


def _metrics_per_iteration(run: RunFolder) -> list[dict[str, Any]]:
    return [read_json(run.iteration(number).metrics) for number in scored_iterations(run)]


def _run_id(run: RunFolder) -> str:
    """The id of the run, whatever its folder is called; a folder without a manifest has its own name."""
    run_id = read_json(run.manifest).get("run_id") if run.manifest.is_file() else None
    return run_id if isinstance(run_id, str) and run_id else run.root.name


def _name(run: RunFolder) -> str:
    """What the user calls the run; a folder without a manifest has its own name."""
    name = read_json(run.manifest).get("name") if run.manifest.is_file() else None
    return name if isinstance(name, str) and name else run.root.name


@dataclass(frozen=True)
class ReportSources:
    """What the reports of a run are made from, as digests, taken before they are read. `.reports.json` keeps them with the
    digests of the files that were written from them. No figure is read from it, and no seal covers it.

    Attributes:
        run: The run.
        made_from: One digest of ragpipe's code and templates, the settings, the run's files and what else is shown.
        reports: The sha256 of each report and export that is there, by its path in the folder.
    """

    run: RunFolder
    made_from: str
    reports: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFolder, settings: ReportSettings, shown: Mapping[str, Any]) -> ReportSources:
        """The sources as they are now. `shown` is what reports show besides files of the run: plain JSON."""
        paths = {path.relative_to(run.root).as_posix(): path for path in derived_and_frozen(run.root)}
        digests = {name: sha256_file(path) for name, path in paths.items() if _is_source(name)}
        reports = {name: sha256_file(path) for name, path in paths.items() if _is_report(run, name)}
        sources = {
            "code": code_digest(),
            "templates": template_texts(),
            "settings": settings.model_dump(mode="json", exclude={"detail"}),  # of the terminal alone
            "shown": dict(shown),
            "files": digests,
        }
        return cls(run, sha256(sources), reports)

    def written(self) -> list[Path] | None:
        """The reports, where all are there and are what was written from these sources; else None."""
        try:
            noted = read_json(self.run.reports_made) if self.run.reports_made.exists() else {}
        except DataError:  # then the reports are made again, and the file with them
            return None
        digests = noted.get("written")
        if noted.get("made_from") != self.made_from or not isinstance(digests, dict):
            return None
        is_intact = all(self.reports.get(name) == digest for name, digest in digests.items())
        return [self.run.root / name for name in digests] if is_intact else None

    def note(self, written: Sequence[Path]) -> None:
        """Note that these reports were written from these sources. Raises OutputError."""
        digests = {path.relative_to(self.run.root).as_posix(): sha256_file(path) for path in written}
        json_unless_same(self.run.reports_made, {"format": FORMAT, "made_from": self.made_from, "written": digests})


def _is_source(name: str) -> bool:
    """Whether a file of the run, named by its path in the folder, may be read for a report."""
    top = name.partition("/")[0]
    return top.startswith("iteration-") or top in (
        "final",
        "gates.json",
        "index.json",
        "outputs.parquet",
        "samples.parquet",
    )


def _is_report(run: RunFolder, name: str) -> bool:
    """Whether a file of the run, named by its path in the folder, is what reports write."""
    pages = {path.name for path in (run.report, run.html, run.junit)}
    return name in pages or name.startswith(("export/", f"{side_folder(run.html).name}/"))
