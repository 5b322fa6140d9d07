"""A plan as the terminal shows it and as a document: what would be asked and cost, by metric and step, and what is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragpipe.cli.profile_report import data_report
from ragpipe.core import registry
from ragpipe.data.dataset import Dataset
from ragpipe.data.system_settings import LiveSystem
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.needs import MetricNeed, need_of
from ragpipe.report.console import Console
from ragpipe.report.page_file import write_page
from ragpipe.report.section_page import section_page
from ragpipe.report.styled_text import plural
from ragpipe.runs.data_profile import DataProfile
from ragpipe.runs.judge_access import member_configs
from ragpipe.runs.judge_check import missing_keys
from ragpipe.runs.plan import Plan
from ragpipe.runs.plan_notices import (
    missing_embedder_line,
    over_budget,
    per_case_line,
    plan_line,
    report_gaps,
    unanswered_lines,
    unmet_lines,
    unscored_line,
)
from ragpipe.runs.plan_summary import DataPlan
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.workers import here_line, stays_here
from ragpipe.store.files import atomic_write, json_bytes

_WIDE = 80  # columns from which the tokens have room
REASONS = 2  # why a metric is skipped, the most frequent ones; `plan.out` has all


def print_live(profile: DataProfile, config: RunConfig, console: Console) -> None:
    assert isinstance(config.system, LiveSystem)
    asked = sum(method.repeats for method in config.system.each_method())
    console.say(
        f"{plural(profile.samples, 'sample')}; {_live_plan(config.system)}: {plural(asked * profile.samples, 'question')} to it"
    )
    for line in unanswered_lines(config):
        console.warn(line)
    console.say("what the judge is asked depends on its outputs: the run prints the number of calls before the first one")
    warn_of_missing_keys(config, console)


def warn_of_missing_keys(config: RunConfig, console: Console) -> None:
    for problem in missing_keys(config):
        console.warn(f"{problem.found}: the run would be refused; {problem.fix}")


def _live_plan(system: LiveSystem) -> str:
    methods = system.each_method()
    times = {"once" if method.repeats == 1 else f"{method.repeats:,} times" for method in methods}
    if len(methods) == 1:
        return f"the {methods[0].kind} system is asked {times.pop()} for each when the run starts"
    names = ", ".join(method.method if len(times) == 1 else f"{method.method} ({method.repeats:,} times)" for method in methods)
    often = f" {times.pop()}" if len(times) == 1 else ""
    return f"{len(methods):,} methods are asked{often} for each when the run starts: {names}"


def print_answer(run_plan: Plan, full: Plan | None, config: RunConfig, console: Console) -> None:
    """Print what the run would ask and cost, a case of it beside a `full` evaluation where that is paid, what the transports say of it where a
    provider is asked, and what keeps metrics from cases."""
    console.say(plan_line(run_plan, config))
    if full is not None and full.calls:
        console.say(per_case_line(run_plan, full))
    if (why := stays_here(config)) is not None:
        console.say(here_line(config, why))
    if config.transport.asks:
        others = {kind: settings() for kind, settings in registry.everything("transport").items()}
        for transport in {**others, config.transport.kind: config.transport}.values():
            for line in transport.plan_lines(config.judge, run_plan):
                console.say(line)
    report_gaps(run_plan, console)
    lines = [
        missing_embedder_line(config),
        *unanswered_lines(config),
        *unmet_lines(config, run_plan),
        over_budget(run_plan, config),
        _unmeasured_thoughts(run_plan, config),
    ]
    for line in filter(None, lines):
        console.warn(line)
    if run_plan.new_calls:
        warn_of_missing_keys(config, console)
    if note := unscored_line(config, run_plan):
        console.say(note)


def print_metrics(run_plan: Plan, config: RunConfig, console: Console) -> None:
    """Print the cases and calls of each metric, and what is skipped and why."""
    is_asked = any(not member.judge.implementation for member in member_configs(config).values())
    is_paid = isinstance(config.judge, JudgeSettings)
    has_tokens = is_asked and console.width >= _WIDE
    rows = []
    for metric in run_plan.metrics:
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in metric.skipped.most_common(REASONS))
        skipped += ", ..." if len(metric.skipped) > REASONS else ""
        steps = [step for step in run_plan.steps if step.metric == metric.name]
        counts = [sum(step.calls for step in steps)]
        counts += [sum(step.tokens_in for step in steps)] if has_tokens else []
        counts += [sum(step.tokens_out for step in steps)] if has_tokens and is_paid else []
        rows.append((metric.name, f"{metric.cases:,}", skipped, *(f"{count:,}" if count else "" for count in counts)))
    heads = ["metric", "cases", "skipped, and why", "calls" if is_asked else "checks", "tokens in", "tokens out"]
    console.table(heads[: 4 + has_tokens * (1 + is_paid)], rows, left=(0, 2))


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


def write_plan(
    out: Path, dataset: Dataset, remarks: Sequence[str], profile: DataProfile, config: RunConfig, planned: DataPlan | None
) -> str:
    """Write the plan as JSON and a page of the data beside it. `planned` is None for a live system. Returns the name of the page."""
    needs = [need_of(metric, profile.facts) for metric in config.metrics.values()]
    atomic_write(out, json_bytes(_plan_document(profile, needs, planned), indent=1))
    page = out.with_suffix(".html")
    write_page(page, section_page(data_report(dataset, remarks, profile)))
    return page.name


def _plan_document(profile: DataProfile, needs: Sequence[MetricNeed], planned: DataPlan | None) -> dict[str, Any]:
    document = profile.document()
    document["dangling"] = [asdict(dangling) for dangling in profile.pointers.dangling()]
    document["metrics"] = {need.name: asdict(need) for need in needs}
    document["gates"] = planned.gate_lines if planned else []
    if planned is None:
        return document
    plan = planned.plan
    for metric in plan.metrics:
        document["metrics"][metric.name] |= {"cases": metric.cases, "skipped": dict(metric.skipped)}
    document["not_recorded"] = [{**asdict(gap), "metrics": names} for gap, names in plan.gaps]
    keys = ("metric", "prompt", "calls", "shared", "tokens_in", "tokens_out")
    document["steps"] = [{**{key: getattr(step, key) for key in keys}, "earlier_replies": step.measured} for step in plan.steps]
    document["calls"] = {"all": plan.calls, "new": plan.new_calls, "tokens_in": plan.tokens_in, "tokens_out": plan.tokens_out}
    document["rounds"] = plan.rounds
    return document
