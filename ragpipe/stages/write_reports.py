"""The report stage: the reports of a run and the final words on the terminal, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragpipe.comparing.method_differences import method_differences
from ragpipe.reports.build import build_report
from ragpipe.reports.case_views import read_cases
from ragpipe.reports.console import Console
from ragpipe.reports.contradictions import read_contradictions
from ragpipe.reports.exports.junit import junit_xml
from ragpipe.reports.exports.table_export import export_tables
from ragpipe.reports.lowest_cases import lowest_cases
from ragpipe.reports.model import Report
from ragpipe.reports.render.html import render_html
from ragpipe.reports.render.markdown import render_markdown
from ragpipe.reports.render.terminal import print_report
from ragpipe.reports.report_data import ReportData, read_results
from ragpipe.reports.sections.index_section import read_index
from ragpipe.reports.settings import ReportSettings
from ragpipe.scoring.gates.gate_rules import gates_document
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.reports_made import ReportSources
from ragpipe.store.files.write_if_changed import write_unless_same
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import read_json
from ragpipe.store.run.wall_clock import judged_seconds


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
    shown = {"iteration": iteration.root.name, "name": _name(run), "seconds": sorted(judging_times(run).items())}
    sources = ReportSources.of(run, settings, shown)
    written = sources.written()
    if written is not None:
        settings = settings.model_copy(update={"formats": [name for name in settings.formats if name == "terminal"]})
    if written is None or settings.formats:
        data = read_report_data(run, iteration, settings)
        report = build_report(replace(data, folder=shown_folder or str(target), next_command=next_command))
        if written is None:
            written = _write_pages(run, report, settings) + _write_exports(run, settings)
            sources.note(written)
        if "terminal" in settings.formats:
            print_report(report, console)
    return written


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
        written += _write_pages(run, build_report(read_report_data(run, iteration, settings)), settings)
    return written + _write_exports(run, settings)


def read_report_data(run: RunFolder, iteration: IterationFolder, settings: ReportSettings) -> ReportData:
    """What the report is made from. Cases in full are read only for the page that shows them."""
    metrics, cost = read_results(run.root, iteration.root)
    names = list(metrics["overall"]["scores"])
    lowest = lowest_cases(iteration.records, settings.worst_cases)
    return ReportData(
        metrics,
        cost,
        settings,
        name=_name(run),
        gates=_gates(run),
        index=read_index(run.root),
        methods=_methods(run, iteration, metrics),
        lowest=lowest,
        contradictions=read_contradictions(iteration, lowest),
        cases=read_cases(run, iteration, names, settings.html_cases) if "html" in settings.formats else (),
        judging_seconds=judging_times(run),
    )


def _methods(run: RunFolder, iteration: IterationFolder, metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """The methods against the first one, over the iterations that `metrics` is of."""
    folders = [run.iteration(number) for number in metrics["iterations"]] if "iterations" in metrics else [iteration]
    found = method_differences([folder.records for folder in folders], metrics)
    return None if found is None else {"run_id": _run_id(run), **found}


def _write_pages(run: RunFolder, report: Report, settings: ReportSettings) -> list[Path]:
    written = list[Path]()
    if "markdown" in settings.formats:
        write_unless_same(run.report, render_markdown(report, text_chars=settings.text_chars))
        written.append(run.report)
    if "html" in settings.formats:
        write_unless_same(run.html, render_html(report))
        written.append(run.html)
    return written


def _write_exports(run: RunFolder, settings: ReportSettings) -> list[Path]:
    """Write those of `junit`, `csv` and `json` that `settings.formats` names, over all scored iterations."""
    formats = set(settings.formats)
    if not formats & {"junit", "csv", "json"}:
        return []
    numbers, written = scored_iterations(run), list[Path]()
    if "junit" in formats:
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
