"""The report stage: the reports of a run and the final words on the terminal, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragpipe.reports.case_views import read_cases
from ragpipe.reports.exports.junit import junit
from ragpipe.reports.exports.table_export import export_tables
from ragpipe.reports.lowest_cases import worst_cases
from ragpipe.reports.render.html import html
from ragpipe.reports.render.markdown import markdown
from ragpipe.reports.render.terminal import Console
from ragpipe.reports.sections.index import index_warnings, read_index
from ragpipe.reports.sections.iterations import results_of
from ragpipe.reports.settings import ReportSettings
from ragpipe.scoring.gates.gate_rules import gates_document
from ragpipe.stages.combine_iterations import scored_iterations
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

    The pages and the terminal show all iterations together where there are several and `iteration_folder` is the last
    one's, with its cases; else that iteration. JUnit and exports cover all iterations that are scored. What would not change is left alone. `shown_folder` is how the folder is
    named to the user (`outputs/x/latest`), by default the target. Raises DataError, OutputError.
    """
    run, (metrics, cost) = RunFolder(target), results_of(target, iteration_folder)
    gates = read_json(run.gates) if run.gates.is_file() else gates_document([metrics])
    index = read_index(target)
    written = list[Path]()
    if "markdown" in settings.formats:
        worst = worst_cases(iteration_folder / "records.parquet", settings.worst_cases)
        write_unless_same(target / "report.md", markdown(metrics, cost, worst, settings, gates, index))
        written.append(run.report)
    written += write_report_files(run, IterationFolder(iteration_folder), settings)
    if "terminal" in settings.formats:
        folder = shown_folder or str(target)
        for warning in index_warnings(index) if index else ():
            console.warn(warning)
        console.finish(
            metrics,
            cost,
            folder=folder,
            next_command=next_command,
            percent=settings.percent,
            gates=gates,
            judging=judging_times(run),
        )
    return written


def judging_times(run: RunFolder) -> dict[int, float]:
    """The seconds for which each scored iteration was judged; those that this machine did not judge are left out."""
    found = {number: judged_seconds(run.iteration(number).wall) for number in scored_iterations(run)}
    return {number: seconds for number, seconds in found.items() if seconds is not None}


def write_report_files(run: RunFolder, shown: IterationFolder, settings: ReportSettings) -> list[Path]:
    """Write those of `html`, `junit`, `csv` and `json` that `settings.formats` names; returns their paths.

    `shown` is the iteration of the page. Raises DataError for a file of the run that is missing or broken, OutputError.
    """
    wanted, written = set(settings.formats), list[Path]()
    if not wanted & {"html", "junit", "csv", "json"}:
        return written
    numbers = scored_iterations(run)
    per_iteration = [read_json(run.iteration(number).metrics) for number in numbers]
    gates, name = gates_document(per_iteration), _name(run)
    if "html" in wanted:
        write_unless_same(run.html, _page(run, shown, settings, name, gates))
        written.append(run.html)
    if "junit" in wanted:
        write_unless_same(run.junit, junit(per_iteration, gates, name=name))
        written.append(run.junit)
    return written + export_tables(run, wanted, numbers)


def _page(run: RunFolder, shown: IterationFolder, settings: ReportSettings, name: str, gates: Mapping[str, Any]) -> str:
    """The page, with the cases as the iteration `shown` judged them."""
    metrics, cost = results_of(run.root, shown.root)
    cases = read_cases(run, shown, list(metrics["overall"]["scores"]), settings.html_cases)
    return html(metrics, cost, cases, settings, name=name, gates=gates, index=read_index(run.root))


def _name(run: RunFolder) -> str:
    """What the user calls the run; a folder without a manifest is called by its own name."""
    found = read_json(run.manifest).get("name") if run.manifest.is_file() else None
    return found if isinstance(found, str) and found else run.root.name
