"""The report stage: the reports of a run and the final words on the terminal, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.comparison.comparison import method_differences
from ragpipe.comparison.run_differences import NOTE
from ragpipe.core import registry
from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError
from ragpipe.core.resources import code_digest
from ragpipe.core.version import FORMAT
from ragpipe.data.index_manifest import read_index
from ragpipe.report.console import Console, JobConsole
from ragpipe.report.exports import export_report_tables, export_tables
from ragpipe.report.markdown import render_markdown
from ragpipe.report.model import TERMINAL, Note, Report, Section, Strong
from ragpipe.report.page_file import side_folder
from ragpipe.report.report_data import ReportData, lowest_cases, read_case_figures, read_results
from ragpipe.report.run_page import RunCases, write_run_page
from ragpipe.report.section_page import pages_of
from ragpipe.report.settings import ReportSettings
from ragpipe.report.terminal import print_report
from ragpipe.report.verdict_section import notices, run_line, run_verdict, summary_line, verdict_of
from ragpipe.runs.collected_outputs import system_failures
from ragpipe.runs.ended_run import page_of, plugin_sections, with_verdict
from ragpipe.runs.manifest import TIMES, derived_and_frozen, scored_iterations, seal_added
from ragpipe.score.gate_rules import gates_document
from ragpipe.store.files import json_unless_same, write_unless_same
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import read_columns, read_json


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


def read_report_data(run: RunFolder, iteration: IterationFolder, settings: ReportSettings) -> ReportData:
    """What the report is made from."""
    metrics, cost = read_results(run.root, iteration.root)
    number = int(iteration.root.name.removeprefix("iteration-"))
    folders = [run.iteration(number) for number in metrics["iterations"]] if "iterations" in metrics else [iteration]
    found = method_differences(run, [folder.records for folder in folders], metrics)
    return ReportData(
        metrics,
        cost,
        settings,
        name=name_of(run),
        run=run_facts(run),
        gates=gates_of(run),
        index=read_index(run.index),
        methods=(None if found is None else {"run_id": run_id_of(run), **found}),
        iteration=number,
        lowest=lowest_cases(iteration.records, WORST_CASES),
        low_scores=read_json(iteration.low_scores)["scores"],
        figures=read_case_figures(iteration.records, metrics, number) if "html" in settings.formats else None,
        questions=_example_questions(run, metrics),
        first_error=_first_error(run, iteration, metrics),
        drift=drift_of(run),
        pages=tuple(pages_of(run.root)),
    )


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


def gates_of(run: RunFolder) -> dict[str, Any]:
    return read_json(run.gates) if run.gates.is_file() else gates_document(metrics_per_iteration(run))


def metrics_per_iteration(run: RunFolder) -> list[dict[str, Any]]:
    return [read_json(run.iteration(number).metrics) for number in scored_iterations(run)]


def section_builders() -> list[SectionBuilder]:
    """The builders in the order of the report, those of plugins last. A builder returns None where its section does not apply to
    the run. Raises ConfigError for a plugin that cannot be imported."""
    return [registry.find("section", name) for name in registry.names("section")]


def build_report(data: ReportData) -> Report:
    """All sections of a report, whatever the medium; `Report.for_medium` picks what one of them shows."""
    sections = (_section(builder, data) for builder in section_builders())
    return Report(
        name=data.name,
        summary=summary_line(data.metrics),
        signature=data.metrics["signature"],
        verdict=verdict_of(data),
        notices=tuple(notices(data)),
        sections=tuple(section for section in sections if section is not None),
        run=run_line(data),
        pages=tuple(data.pages),
        methods=tuple(methods) if len(methods := data.metrics["by"].get("method") or {}) > 1 else (),
    )


def _section(builder: SectionBuilder, data: ReportData) -> Section | None:
    """What a builder makes; the terminal, which names no section of ours, gets the title of a plugin's."""
    section = builder(data)
    if section is None or _is_own(builder):
        return section
    return replace(section, parts=(Note(Strong(section.title), shown_in=TERMINAL), *section.parts))


def _is_own(builder: SectionBuilder) -> bool:
    return builder.__module__.startswith("ragpipe.")


WORST_CASES = 10
"""How many of the lowest cases report.md shows."""


def run_id_of(run: RunFolder) -> str:
    """The id of the run, whatever its folder is called; a folder without a manifest has its own name."""
    return str(_manifest(run).get("run_id") or run.root.name)


def name_of(run: RunFolder) -> str:
    """What the user calls the run; a folder without a manifest has its own name."""
    return str(_manifest(run).get("name") or run.root.name)


def run_facts(run: RunFolder) -> dict[str, Any]:
    """What tells this run from others: its id and name, when it was made and how long that took."""
    manifest = _manifest(run)
    return {"run_id": run_id_of(run), "name": name_of(run), **{key: manifest[key] for key in TIMES if key in manifest}}


def drift_of(run: RunFolder) -> dict[str, Any]:
    """What the manifest notes of the drift of the judge; nothing without a check."""
    return dict(_manifest(run).get(NOTE, {}))


def _manifest(run: RunFolder) -> Mapping[str, Any]:
    manifest: Mapping[str, Any] = read_json(run.manifest) if run.manifest.is_file() else {}
    return manifest


SectionBuilder = Callable[[ReportData], Section | None]


@dataclass(frozen=True)
class ReportSources:
    """What the reports of a run are made from, as digests, taken before they are read: `made_from` is one of ragpipe's code and
    templates, the settings, the run's files and what else is shown, `reports` are those of the reports and exports that are
    there, by path. `.reports.json` keeps both. No figure is read from it, and no seal covers it."""

    run: RunFolder
    made_from: str
    reports: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFolder, settings: ReportSettings, shown: Mapping[str, Any]) -> ReportSources:
        """The sources as they are now. `shown` is what reports show besides files of the run: plain JSON."""
        paths = {path.relative_to(run.root).as_posix(): path for path in derived_and_frozen(run.root)}
        digests = {name: sha256_file(path) for name, path in paths.items() if _is_source(name)}
        reports = {name: sha256_file(path) for name, path in paths.items() if _is_report(run, name)}
        sources = {"code": code_digest(), "settings": settings.model_dump(mode="json"), "shown": dict(shown), "files": digests}
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
    return top.startswith("iteration-") or top in ("final", "gates.json", "index.json", "outputs.parquet", "samples.parquet")


def _is_report(run: RunFolder, name: str) -> bool:
    """Whether a file of the run, named by its path in the folder, is what reports write."""
    pages = {path.name for path in (run.verdict, run.report, run.html, run.junit)}
    return name in pages or name.startswith(("export/", f"{side_folder(run.html).name}/"))
