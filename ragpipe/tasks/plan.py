"""`task=plan`: what a data set holds and what looks wrong in it, what a run would do and cost. Spends nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from ragpipe.config.run_validation import INVALID_CONFIGURATION, validate_config
from ragpipe.config.settings import RunConfig
from ragpipe.core import registry
from ragpipe.core.safe_text import on_one_line
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.unread_names import unread_line
from ragpipe.engine.chosen_runner import here_line, stays_here
from ragpipe.engine.judge_access import scoring_warnings, store_place
from ragpipe.engine.judge_check import missing_keys
from ragpipe.engine.plans.gate_plan import gate_power_lines
from ragpipe.engine.plans.plan_summary import (
    MemberPlan,
    member_plans,
    missing_embedder_line,
    over_budget,
    plan_line,
    plan_remaining,
    reference_lines,
    report_gaps,
)
from ragpipe.engine.run_inputs import embedded_lines, unmet_lines, unscored_line
from ragpipe.engine.runs.run_identity import identity_of_dataset, run_id
from ragpipe.engine.runs.scoring_files import resolved_for_dataset
from ragpipe.engine.runs.user_code import system_sources
from ragpipe.engine.sources.case_sources import DatasetSource, open_index
from ragpipe.engine.task_settings import task_settings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.profiling.data_profile import DataProfile, times_are_known
from ragpipe.profiling.metric_needs import MetricNeed, need_of
from ragpipe.profiling.profile_rows import HEADS, profile_rows
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.reports.sections.diagnosis_section import index_notes
from ragpipe.schema.settings import Settings
from ragpipe.scoring.pointer_checks import Pointers, read_pointers
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.collected_outputs import mark_closed_book, unknown_methods
from ragpipe.stages.load_dataset import load_dataset
from ragpipe.stages.plan_calls import Plan
from ragpipe.store.calls.call_database import call_database
from ragpipe.store.files.atomic import atomic_write, json_bytes
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.systems.settings import LiveSystem

VALUE_WIDTH = 50  # characters of a mapped value
SOURCE_WIDTH = 36  # characters of the expression that it comes from
REASONS = 2  # why a metric is skipped, the most frequent ones; `plan.out` has all
SECTION = "plan"


class PlanSettings(Settings):
    """Where the whole plan is written; what is printed is a part of it."""

    out: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="File for the whole plan and profile as JSON; an older one is replaced. null: none."
    )


@dataclass(frozen=True)
class PlanTask:
    """The configuration of the run that is planned, and where the plan is written."""

    config: RunConfig
    settings: PlanSettings

    @property
    def plugins(self) -> list[str]:
        """The packages of the user's own classes that this start may import."""
        return self.config.plugins

    @property
    def log_level(self) -> str:
        """The level of the library logs of this start."""
        return self.config.log_level


class Keys(Settings):
    plan: PlanSettings = Field(description="Where the whole plan is written.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> PlanTask:
    """Check the configuration of the run, and the section `plan`. Raises ConfigError."""
    config = validate_config({key: value for key, value in plain.items() if key != SECTION}, origins)
    settings = task_settings(PlanSettings, plain, origins or NoOrigins(), title=INVALID_CONFIGURATION, section=SECTION)
    return PlanTask(config, settings)


def run(task: PlanTask, console: Console) -> int:
    """Print the plan. Returns 0. Raises FormatMismatch for a call store that the run could not use, OutputError."""
    plan_run(task, console)
    return 0


def plan_run(task: PlanTask, console: Console) -> Plan | None:
    """Print the plan and return it; None for a live system, whose outputs decide what is asked. Raises as `run`."""
    config = task.config
    call_database(store_place(config)).check()
    source = DatasetSource(config, console)
    dataset, sources = source.dataset, system_sources(config.system, config.plugins).sources
    identity_of = partial(identity_of_dataset, data=source.digest, sources=sources)
    config, scoring_files = resolved_for_dataset(config, identity_of)
    scoring_files.check(config)
    identity = identity_of(config)
    calibration = scoring_files.calibration_of(RunFolder.at(Path(config.output_dir), config.name, run_id(identity)))
    for warning in scoring_warnings(config, identity, calibration, are_answers_known=False):
        console.warn(warning)
    profile = DataProfile(config.metrics.values(), times_known=times_are_known(config.dataset))
    run_plan, gate_lines, pointers = None, list[str](), Pointers()
    members: list[MemberPlan] = []
    if isinstance(config.system, LiveSystem):
        for _ in profile.watch(dataset):
            pass
    else:
        with tempfile.TemporaryDirectory() as scratch:
            frozen = RunFolder(Path(scratch))
            records = profile.watch(mark_closed_book(dataset, config.system))
            counts = load_dataset(records, samples=frozen.samples, outputs=frozen.outputs)
            reader = CaseReader(frozen.samples, frozen.outputs)
            run_plan = plan_remaining(config, reader)
            members = member_plans(config, reader)
            reader.close()
            scoring_files.write(frozen, config)  # refuses what the run would refuse
            gate_lines = gate_power_lines(config, frozen)
            pointers = read_pointers(frozen.samples, frozen.outputs)
        if line := unknown_methods(config.system, counts.methods):
            console.warn(line)
    _print_data(dataset, profile, pointers, config, console)
    if run_plan is None:
        _print_live(profile, config, console)
    else:
        _print_plan(run_plan, config, console)
    for member in members:
        console.say(member.line())
    if run_plan is not None and run_plan.new_calls:
        _warn_of_missing_keys(config, console)
    for line in gate_lines:
        console.say(line)
    if task.settings.out is not None:
        needs = [need_of(metric, profile.facts) for metric in config.metrics.values()]
        document = plan_document(profile, pointers, needs, run_plan, gate_lines)
        atomic_write(Path(task.settings.out), json_bytes(document, indent=1))
        console.say(f"written: {task.settings.out}")
    return run_plan


def _print_data(
    dataset: Dataset, profile: DataProfile, pointers: Pointers, config: RunConfig, console: Console
) -> None:
    """Print what looks wrong, how the first case was mapped, and the profile.

    Args:
        dataset: the data set, which is read to its first record again.
        profile: what it holds.
        pointers: ids that lead nowhere.
        config: the configuration of the run.
        console: where it is printed.
    """
    console.say(_title(dataset, profile))
    if index := open_index(config):
        for note in index_notes(index.coverage(record.sample for record in dataset)):
            console.say(f"index: {on_one_line(note, 1000)}")
    for line in dataset.remarks():
        console.warn(on_one_line(line, 1000))
    print_findings(profile, pointers, console)
    if config.dataset.fields:
        _print_first_case(dataset, console)
    if unread := unread_line(dataset.unread()):
        console.say(unread)
    print_fields(profile, console)


def _title(dataset: Dataset, profile: DataProfile) -> str:
    title = f"data set {dataset.name}, {dataset.digest[:8]}: {plural(profile.samples, 'sample')}"
    cases, noun = sum(profile.cases.values()), "method" if len(profile.cases) == 1 else "methods"
    return f"{title}, {plural(cases, 'case')}, {noun}: {', '.join(profile.cases)}" if cases else title


def _print_live(profile: DataProfile, config: RunConfig, console: Console) -> None:
    assert isinstance(config.system, LiveSystem)
    asked = sum(method.repeats for method in config.system.each_method())
    console.say(
        f"{plural(profile.samples, 'sample')}; {_live_plan(config.system)}: "
        f"{plural(asked * profile.samples, 'question')} to it"
    )
    for line in embedded_lines(config):
        console.warn(line)
    console.say("questions to the judge depend on its outputs: the run prints their number before the first one")
    _warn_of_missing_keys(config, console)


def _warn_of_missing_keys(config: RunConfig, console: Console) -> None:
    for problem in missing_keys(config):
        console.warn(f"{problem.found}: the run would be refused; {problem.fix}")


def _live_plan(system: LiveSystem) -> str:
    methods = system.each_method()
    times = {"once" if method.repeats == 1 else f"{method.repeats:,} times" for method in methods}
    if len(methods) == 1:
        return f"the {methods[0].kind} system is asked {times.pop()} for each when the run starts"
    names = ", ".join(
        method.method if len(times) == 1 else f"{method.method} ({method.repeats:,} times)" for method in methods
    )
    often = f" {times.pop()}" if len(times) == 1 else ""
    return f"{len(methods):,} methods are asked{often} for each when the run starts: {names}"


def _print_first_case(dataset: Dataset, console: Console) -> None:
    """Print how the first case was mapped, field by field."""
    console.say("its first case as it was mapped")
    rows = []
    for mapped in dataset.first().fields:
        source = "" if mapped.source == mapped.field else on_one_line(mapped.source, SOURCE_WIDTH)
        rows.append((mapped.field, source, _short(mapped.value)))
    console.table(("field", "from", "value"), rows, left=(0, 1, 2))


def _print_plan(run_plan: Plan, config: RunConfig, console: Console) -> None:
    """Print the cases and questions of each metric, what is skipped and why, and the cost."""
    metric_rows = []
    for metric in run_plan.metrics:
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in metric.skipped.most_common(REASONS))
        skipped += ", ..." if len(metric.skipped) > REASONS else ""
        steps = [step for step in run_plan.steps if step.metric == metric.name]
        calls, tokens = sum(step.calls for step in steps), sum(step.tokens_in for step in steps)
        metric_rows.append((metric.name, f"{metric.cases:,}", skipped or "-", f"{calls:,}", f"{tokens:,}"))
    heads = ("metric", "cases", "skipped, and why", "calls,\nat most", "prompt\ntokens")
    console.table(heads, metric_rows, left=(0, 2))
    if isinstance(config.judge, JudgeSettings) and run_plan.steps:
        _print_steps(run_plan, console)
    report_gaps(run_plan, console)
    lines = [
        missing_embedder_line(config),
        *embedded_lines(config),
        *unmet_lines(config, run_plan),
        over_budget(run_plan, config),
        _unmeasured_thoughts(run_plan, config),
    ]
    for line in filter(None, lines):
        console.warn(line)
    for line in filter(None, [*reference_lines(run_plan), unscored_line(config, run_plan)]):
        console.say(line)
    console.say(plan_line(run_plan, config))
    if (why := stays_here(config)) is not None:
        console.say(here_line(config, why))
    for line in _transport_lines(run_plan, config):
        console.say(line)


def _transport_lines(run_plan: Plan, config: RunConfig) -> Iterator[str]:
    """What the transports say of this run, the chosen one and the others, where a provider is asked."""
    if config.transport.asks:
        others = {kind: settings() for kind, settings in registry.everything("transport").items()}
        for transport in {**others, config.transport.kind: config.transport}.values():
            yield from transport.plan_lines(config.judge, run_plan)


def _unmeasured_thoughts(run_plan: Plan, config: RunConfig) -> str | None:
    """A warning that the completion tokens lack what the judge thinks, where nothing was measured yet; None without thoughts."""
    if not isinstance(config.judge, JudgeSettings):
        return None
    thinks = config.judge.reasoning_effort not in (None, "none")
    reasons = {name for name, metric in config.metrics.items() if getattr(metric, "reasoning", False)}
    steps = [step for step in run_plan.steps if step.calls and not step.measured and (thinks or step.metric in reasons)]
    if not steps:
        return None
    what = "thoughts (judge.reasoning_effort)" if thinks else "reasons step by step (reasoning)"
    return (
        f"the completion tokens of {plural(len(steps), 'step')} are without the {what}: no earlier reply tells how long they "
        "are; a run of a few cases (dataset.limit=20) measures it"
    )


def _print_steps(run_plan: Plan, console: Console) -> None:
    """Print the calls and tokens of each step, and what the length of its replies is taken from."""
    rows = []
    for step in run_plan.steps:
        source = f"{step.measured:,} earlier replies" if step.measured else "form of the answer"
        rows.append(
            (f"{step.metric}/{step.step}", f"{step.calls:,}", f"{step.tokens_in:,}", f"{step.tokens_out:,}", source)
        )
    heads = ("step", "calls,\nat most", "prompt\ntokens", "completion\ntokens", "length of\nreplies by")
    console.table(heads, rows, left=(0, 4))


def _short(value: Any) -> str:
    if isinstance(value, list) and value:
        return f"{len(value)} x {_short(value[0])}"
    text = value.model_dump_json(exclude_defaults=True) if isinstance(value, BaseModel) else str(value)
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 3] + "..."


def plan_document(
    profile: DataProfile, pointers: Pointers, needs: Sequence[MetricNeed], plan: Plan | None, gates: Sequence[str]
) -> dict[str, Any]:
    """The plan as JSON.

    Args:
        profile: what the data hold.
        pointers: ids that lead nowhere.
        needs: of the metrics of the run.
        plan: what the run would ask; None for a live system.
        gates: a line for each gate by interval.
    """
    document = profile.document()
    document["dangling"] = [asdict(dangling) for dangling in pointers.dangling()]
    document["metrics"] = {need.name: asdict(need) for need in needs}
    document["gates"] = list(gates)
    if plan is None:
        return document
    for metric in plan.metrics:
        document["metrics"][metric.name] |= {"cases": metric.cases, "skipped": dict(metric.skipped)}
    document["not_recorded"] = [{**asdict(gap), "metrics": names} for gap, names in plan.gaps]
    document["steps"] = [
        {
            "metric": step.metric,
            "prompt": step.prompt,
            "calls": step.calls,
            "shared": step.shared,
            "tokens_in": step.tokens_in,
            "tokens_out": step.tokens_out,
            "earlier_replies": step.measured,
        }
        for step in plan.steps
    ]
    document["calls"] = {
        "all": plan.calls,
        "new": plan.new_calls,
        "tokens_in": plan.tokens_in,
        "tokens_out": plan.tokens_out,
    }
    document["rounds"] = plan.rounds
    return document


FURTHER = ("meta.", "expected.", "usage.", "tags", "subcategory", "contexts[].score", "contexts[].doc_type")
"""Fields that a table of many leaves for `plan.out`, beside rare ones; their names are below it."""
FEW = 20
"""Fields up to which the table has them all."""


def print_findings(profile: DataProfile, pointers: Pointers, console: Console) -> None:
    """Print warnings, then what is good to know."""
    findings = profile.findings()
    for text in [*(str(f) for f in findings if f.is_warning), *pointers.warnings()]:
        console.warn(on_one_line(text, 1000))
    for text in [*(str(f) for f in findings if not f.is_warning), *pointers.notes()]:
        console.say(on_one_line(text, 1000))


def print_fields(profile: DataProfile, console: Console) -> None:
    """Print the table of the fields, and the names of those that it leaves out."""
    rows = profile_rows(profile)
    further = [row for row in rows if row.is_rare or row.field.startswith(FURTHER)] if len(rows) > FEW else []
    console.table(HEADS, [row[:3] for row in rows if row not in further], left=(0, 1, 2))
    if further:
        console.say(f"and {', '.join(row.field for row in further)}: plan.out=plan.json")
