"""`task=plan`: what a run would do and cost, and how the first case was mapped. Spends nothing, writes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ragpipe.config.settings import RunConfig
from ragpipe.core.safe_text import on_one_line
from ragpipe.datasets.dataset import open_dataset
from ragpipe.engine.case_sources import open_index
from ragpipe.engine.judge_access import scoring_warnings, store_path
from ragpipe.engine.plan_summary import missing_embedder_line, plan_line, plan_remaining, reference_lines, report_gaps
from ragpipe.reports.console import Console
from ragpipe.reports.sections.index_section import index_notes
from ragpipe.scoring.pointer_checks import pointer_warnings
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.closed_book import mark_closed_book, unknown_methods
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.stages.plan_calls import Plan
from ragpipe.store.run.format_check import check_store
from ragpipe.systems.settings import RecordedSystem

SHOWN = 50  # characters of a mapped value


def run(config: RunConfig, console: Console) -> int:
    """Print the plan. Returns 0. Raises FormatMismatch for a call store that the run could not use."""
    plan(config, console)
    return 0


def plan(config: RunConfig, console: Console) -> Plan | None:
    """Print the plan and return it; None for a live system, whose outputs decide what is asked. Raises as `run`."""
    check_store(store_path(config))
    for warning in scoring_warnings(config):
        console.warn(warning)
    dataset = open_dataset(config.dataset, Path.cwd())
    first = dataset.first()  # raises where the data is at fault, before anything is said of it
    console.say(f"data set {dataset.name}, {dataset.digest[:8]}: its first case as it was mapped")
    if index := open_index(config):
        for note in index_notes(index.coverage(record.sample for record in dataset)):
            console.say(f"index: {on_one_line(note, 1000)}")
    mapped = [(f.field, "" if f.source == f.field else f.source, _short(f.value)) for f in first.fields]
    console.table(("field", "from", "value"), mapped, left=(0, 1, 2))
    if not isinstance(config.system, RecordedSystem):
        found = len({record.sample.id for record in dataset})
        times = "once" if config.system.repeats == 1 else f"{config.system.repeats:,} times"
        console.say(f"{found:,} samples; the {config.system.kind} system is asked {times} for each when the run starts")
        console.say("questions to the judge depend on its outputs: the run prints their number before the first one")
        return None
    with tempfile.TemporaryDirectory() as scratch:
        samples, outputs = Path(scratch, "samples.parquet"), Path(scratch, "outputs.parquet")
        counts = load_dataset(mark_closed_book(dataset, config.system), samples=samples, outputs=outputs)
        reader = CaseReader(samples, outputs)
        made = plan_remaining(config, reader)
        reader.close()
        pointers = pointer_warnings(samples, outputs)
    console.say(f"{counts.samples:,} samples, {counts.cases:,} cases, methods: {', '.join(counts.methods)}")
    if line := unknown_methods(config.system, counts.methods):
        console.warn(line)
    for warning in pointers:
        console.warn(warning)
    console.table(
        ("metric", "cases", "skipped, and why"),
        [
            (m.name, f"{m.cases:,}", ", ".join(f"{n:,} {why}" for why, n in m.skipped.most_common()) or "-")
            for m in made.metrics
        ],
        left=(0, 2),
    )
    report_gaps(made, console)
    if line := missing_embedder_line(config):
        console.warn(line)
    for line in reference_lines(made):
        console.say(line)
    if made.steps:
        steps = [
            (s.metric, s.prompt.removeprefix(f"{s.metric}/"), f"{s.calls:,}", f"{s.tokens_in:,}") for s in made.steps
        ]
        console.table(("metric", "step", "calls, at most", "prompt tokens"), steps, left=(0, 1))
    console.say(plan_line(made, config))
    return made


def _short(value: Any) -> str:
    if isinstance(value, list) and value:
        return f"{len(value)} x {_short(value[0])}"
    text = value.model_dump_json(exclude_defaults=True) if isinstance(value, BaseModel) else str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
