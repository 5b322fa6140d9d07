"""`task=plan`: what a run would do and cost, and how the first case was mapped. Spends nothing, writes nothing."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragpipe.config.settings import RunConfig
from ragpipe.core.safe_text import on_one_line
from ragpipe.datasets.dataset import Dataset
from ragpipe.engine.case_sources import DatasetSource, open_index
from ragpipe.engine.gate_plan import gate_power_lines
from ragpipe.engine.judge_access import scoring_warnings, store_path
from ragpipe.engine.plan_summary import missing_embedder_line, plan_line, plan_remaining, reference_lines, report_gaps
from ragpipe.engine.run_identity import identity_of_dataset, run_id
from ragpipe.engine.scoring_files import resolved_for_dataset
from ragpipe.engine.user_code import system_sources
from ragpipe.reports.console import Console
from ragpipe.reports.sections.index_section import index_notes
from ragpipe.scoring.pointer_checks import pointer_warnings
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.closed_book import mark_closed_book, unknown_methods
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.stages.plan_calls import Plan
from ragpipe.store.run.format_check import check_store
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.systems.settings import RecordedSystem

VALUE_WIDTH = 50  # characters of a mapped value


def run(config: RunConfig, console: Console) -> int:
    """Print the plan. Returns 0. Raises FormatMismatch for a call store that the run could not use."""
    plan_run(config, console)
    return 0


def plan_run(config: RunConfig, console: Console) -> Plan | None:
    """Print the plan and return it; None for a live system, whose outputs decide what is asked. Raises as `run`."""
    check_store(store_path(config))
    source = DatasetSource(config, console)
    dataset, sources = source.dataset, system_sources(config.system, config.plugins).sources
    identity_of = partial(identity_of_dataset, data=source.digest, sources=sources)
    config, scoring_files = resolved_for_dataset(config, identity_of)
    scoring_files.check(config)
    identity = identity_of(config)
    calibration = scoring_files.calibration_of(RunFolder.at(Path(config.output_dir), config.name, run_id(identity)))
    for warning in scoring_warnings(config, identity, calibration, are_answers_known=False):
        console.warn(warning)
    _print_first_case(dataset, config, console)
    if not isinstance(config.system, RecordedSystem):
        samples = len({record.sample.id for record in dataset})
        times = "once" if config.system.repeats == 1 else f"{config.system.repeats:,} times"
        console.say(
            f"{samples:,} samples; the {config.system.kind} system is asked {times} for each when the run starts"
        )
        console.say("questions to the judge depend on its outputs: the run prints their number before the first one")
        return None
    with tempfile.TemporaryDirectory() as scratch:
        frozen = RunFolder(Path(scratch))
        samples_path, outputs_path = frozen.samples, frozen.outputs
        records = mark_closed_book(dataset, config.system)
        counts = load_dataset(records, samples=samples_path, outputs=outputs_path)
        reader = CaseReader(samples_path, outputs_path)
        run_plan = plan_remaining(config, reader)
        reader.close()
        scoring_files.write(frozen, config)  # refuses what the run would refuse
        gate_lines = gate_power_lines(config, frozen)
        warnings = [unknown_methods(config.system, counts.methods), *pointer_warnings(samples_path, outputs_path)]
    console.say(f"{counts.samples:,} samples, {counts.cases:,} cases, methods: {', '.join(counts.methods)}")
    for line in filter(None, warnings):
        console.warn(line)
    _print_plan(run_plan, config, console)
    for line in gate_lines:
        console.say(line)
    return run_plan


def _print_first_case(dataset: Dataset, config: RunConfig, console: Console) -> None:
    """Print how the first case was mapped. Raises DataError where the data is at fault, before anything is printed of it."""
    first = dataset.first()
    console.say(f"data set {dataset.name}, {dataset.digest[:8]}: its first case as it was mapped")
    if index := open_index(config):
        for note in index_notes(index.coverage(record.sample for record in dataset)):
            console.say(f"index: {on_one_line(note, 1000)}")
    rows = []
    for mapped in first.fields:
        source = "" if mapped.source == mapped.field else mapped.source
        rows.append((mapped.field, source, _short(mapped.value)))
    console.table(("field", "from", "value"), rows, left=(0, 1, 2))


def _print_plan(run_plan: Plan, config: RunConfig, console: Console) -> None:
    """Print the cases and questions of each metric, what is skipped and why, and the cost."""
    metric_rows = []
    for metric in run_plan.metrics:
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in metric.skipped.most_common())
        metric_rows.append((metric.name, f"{metric.cases:,}", skipped or "-"))
    console.table(("metric", "cases", "skipped, and why"), metric_rows, left=(0, 2))
    report_gaps(run_plan, console)
    if line := missing_embedder_line(config):
        console.warn(line)
    for line in reference_lines(run_plan):
        console.say(line)
    if run_plan.steps:
        step_rows = []
        for step in run_plan.steps:
            prompt = step.prompt.removeprefix(f"{step.metric}/")
            step_rows.append((step.metric, prompt, f"{step.calls:,}", f"{step.tokens_in:,}"))
        console.table(("metric", "step", "calls, at most", "prompt tokens"), step_rows, left=(0, 1))
    console.say(plan_line(run_plan, config))


def _short(value: Any) -> str:
    if isinstance(value, list) and value:
        return f"{len(value)} x {_short(value[0])}"
    text = value.model_dump_json(exclude_defaults=True) if isinstance(value, BaseModel) else str(value)
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 3] + "..."
