"""What is said before the first paid call: warnings, the line of the plan, and what stops a run there."""

from __future__ import annotations

from collections.abc import Mapping

from ragpipe.metrics.base import Computed
from ragpipe.report.console import Console
from ragpipe.runs.calibration_states import scoring_warnings
from ragpipe.runs.identity import metric_sources
from ragpipe.runs.judge_cases import resumption
from ragpipe.runs.judge_keys import check_keys
from ragpipe.runs.manifest import JUDGING_DONE
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan_notices import (
    check_call_budget,
    missing_embedder_line,
    over_budget,
    plan_line,
    report_gaps,
    unanswered_lines,
    unmet_lines,
    unscored_line,
)
from ragpipe.runs.plan_summary import check_members, member_plans, plan_remaining
from ragpipe.runs.spec import EvaluatePolicy, RunSpec


def announce_plan(
    spec: RunSpec, policy: EvaluatePolicy, states: Mapping[str, str], console: Console, known: ReplayedCases | None
) -> None:
    """One line before the first paid call."""
    if all(isinstance(metric, Computed) for metric in spec.metrics):
        return
    reader = CaseReader(spec.folder.samples, spec.folder.outputs)
    plan = plan_remaining(
        spec.config,
        reader,
        spec.run_id,
        rough=True,
        recorded=policy.recorded_replies(),
        resumed={
            number: resumption(spec.folder, reader, number, is_done=states.get(str(number)) in JUDGING_DONE)
            for number in spec.iterations
        },
        known=known,
    )
    members = member_plans(spec.config, reader, spec.run_id, rough=True, recorded=policy.recorded_replies())
    reader.close()
    report_gaps(plan, console)
    for line in unmet_lines(spec.config, plan):
        console.warn(line)
    if note := unscored_line(spec.config, plan):
        console.say(note)
    console.say(plan_line(plan, spec.config))
    if warning := over_budget(plan, spec.config):
        console.warn(warning)
    for member in members:
        console.say(member.line())
    check_members(members)
    check_call_budget(plan, spec.config)
    if plan.new_calls and not members:
        check_keys(spec.config)


def start_warnings(spec: RunSpec) -> list[str]:
    """What to know before a run is started: of its scoring, its metrics and its judge."""
    calibration = spec.scoring_files.calibration_of(spec.folder)
    is_finished = spec.made_from is not None
    warnings = scoring_warnings(spec.config, spec.identity, calibration, are_answers_known=is_finished)
    for metric in spec.metrics:
        warnings += metric_sources(type(metric)).notes
    if line := missing_embedder_line(spec.config):
        warnings.append(line)
    return warnings if is_finished else [*warnings, *unanswered_lines(spec.config)]
