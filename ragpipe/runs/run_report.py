"""The report of a run as a model, from the files of the score stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.comparison.comparison import method_differences
from ragpipe.comparison.run_differences import NOTE
from ragpipe.core import registry
from ragpipe.data.index_manifest import read_index
from ragpipe.report.model import TERMINAL, Note, Report, Section, Strong
from ragpipe.report.report_data import ReportData, lowest_cases, read_case_figures, read_results
from ragpipe.report.section_page import pages_of
from ragpipe.report.settings import ReportSettings
from ragpipe.report.verdict_section import notices, run_line, summary_line, verdict_of
from ragpipe.runs.collected_outputs import system_failures
from ragpipe.runs.manifest import TIMES, scored_iterations
from ragpipe.score.gate_rules import gates_document
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import read_columns, read_json

WORST_CASES = 10
"""How many of the lowest cases report.md shows."""

SectionBuilder = Callable[[ReportData], Section | None]


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
