"""The report stage: the reports of a run and the final words on the terminal, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragpipe.report.console import Console, JobConsole
from ragpipe.report.exports import export_report_tables, export_tables
from ragpipe.report.markdown import render_markdown
from ragpipe.report.model import Report
from ragpipe.report.report_data import ReportData, read_results
from ragpipe.report.run_page import RunCases, write_run_page
from ragpipe.report.section_page import pages_of
from ragpipe.report.settings import ReportSettings
from ragpipe.report.terminal import print_report
from ragpipe.report.verdict_section import run_verdict
from ragpipe.runs.ended_run import page_of, plugin_sections, with_verdict
from ragpipe.runs.manifest import scored_iterations, seal_added
from ragpipe.runs.report_sources import ReportSources
from ragpipe.runs.run_report import (
    build_report,
    drift_of,
    gates_of,
    metrics_per_iteration,
    read_report_data,
    run_facts,
    run_id_of,
)
from ragpipe.store.files import json_unless_same, write_unless_same
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import read_json


def write_reports(
    iteration_folder: Path,
    *,
    target: Path,
    settings: ReportSettings,
    console: Console,
    shown_folder: str = "",
    notice: Sequence[str] = (),
) -> list[Path]:
    """Write the reports of `settings.formats` into the run folder `target` and print the results for the format `terminal`,
    with the folder named as in `shown_folder`. Returns their paths. The lines of a `notice` say that the run was complete before: of
    results that were printed then, the verdict alone is printed with them.

    They show all iterations together where there are several and `iteration_folder` is the last one's, with its cases; else
    that iteration. JUnit and exports cover all iterations that are scored. Files that were written from the same sources
    (`ReportSources`) are not made again; one that would not change is left alone. Raises DataError, OutputError.
    """
    run, iteration = RunFolder(target), IterationFolder(iteration_folder)
    shown = {"iteration": iteration.root.name, "run": run_facts(run), "drift": drift_of(run), "plugins": plugin_sections()}
    shown["pages"] = [page.path for page in pages_of(run.root)] if "html" in settings.formats else []
    sources = ReportSources.of(run, settings, shown)
    written, prints = sources.written(), "terminal" in settings.formats and console.shows_results
    if written is not None and prints and notice:
        notice = with_verdict(notice, run, page_of(run, written, shown_folder or str(target)))
    for line in notice:
        console.say(line)
    if written is not None and (notice or not prints):
        return written
    if written is not None:
        settings = settings.model_copy(update={"formats": ["terminal"]})
    data = read_report_data(run, iteration, settings)
    report = build_report(data)
    if written is None:
        written = _write_pages(run, iteration, data, report) + _write_exports(run, settings)
        sources.note(written)
    if prints:
        print_report(report, console, page_of(run, written, shown_folder or str(target)))
    return written


def seal_pages(run: RunFolder, paths: Sequence[Path], settings: ReportSettings) -> None:
    """Seal files that a task added to a finished run, and the reports of the run, which lead to the pages among them. Raises DataError,
    OutputError."""
    written = list[Path]()
    if run.html.is_file():
        last = run.iteration(scored_iterations(run)[-1]).root
        written = write_reports(last, target=run.root, settings=settings, console=JobConsole())
    seal_added(run, [*paths, *written])


def write_report_files(run: RunFolder, iteration: IterationFolder, settings: ReportSettings) -> list[Path]:
    """Write the files of `settings.formats`; returns their paths.

    `iteration` is the iteration of the pages. Raises DataError for a file of the run that is missing or broken, OutputError.
    """
    written = list[Path]()
    if {"markdown", "html", "junit"} & set(settings.formats):
        data = read_report_data(run, iteration, settings)
        written += _write_pages(run, iteration, data, build_report(data))
    return written + _write_exports(run, settings)


def _write_pages(run: RunFolder, iteration: IterationFolder, data: ReportData, report: Report) -> list[Path]:
    settings, written = data.settings, [run.verdict]
    json_unless_same(run.verdict, run_verdict(data))
    if "markdown" in settings.formats:
        write_unless_same(run.report, render_markdown(report))
        written.append(run.report)
    if "html" in settings.formats:
        cases = RunCases(run, iteration, data.metrics, run_id_of(run), in_full=settings.page_cases)
        written += write_run_page(run.html, report, cases)
    return written


def _write_exports(run: RunFolder, settings: ReportSettings) -> list[Path]:
    """Write those of `junit`, `csv` and `json` that `settings.formats` names, over all scored iterations."""
    formats = set(settings.formats)
    if not formats & {"junit", "csv", "json"}:
        return []
    numbers, written = scored_iterations(run), list[Path]()
    if "junit" in formats:
        from ragpipe.report.exports import junit_xml

        per_iteration = metrics_per_iteration(run)
        sentence = read_json(run.verdict)["sentence"]
        write_unless_same(run.junit, junit_xml(per_iteration, gates_of(run), run=run_facts(run), verdict=sentence))
        written.append(run.junit)
    written += export_tables(run, formats, numbers)
    if "csv" in formats:
        last = run.iteration(numbers[-1])
        metrics, _ = read_results(run.root, last.root)
        written += export_report_tables(run, metrics, gates_of(run), read_json(last.low_scores)["scores"])
    return written
