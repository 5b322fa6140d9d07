"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import ceil

import yaml

from ragpipe.core.registry import option_files
from ragpipe.core.yaml_files import FastLoader
from ragpipe.metrics.base import Computed
from ragpipe.metrics.needs import default_metrics
from ragpipe.report.console import Console
from ragpipe.runs.frozen_plan import MemberPlan, check_members, member_plans, plan_remaining
from ragpipe.runs.gate_power import gate_power_lines
from ragpipe.runs.judge_cases import resumption
from ragpipe.runs.judge_check import check_keys
from ragpipe.runs.manifest import JUDGING_DONE
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan import Plan, make_plan, prompt_counter
from ragpipe.runs.plan_notices import (
    check_call_budget,
    has_embedder,
    over_budget,
    plan_line,
    report_gaps,
    unmet_lines,
    unscored_line,
)
from ragpipe.runs.scoring_files import ScoringFiles
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.run_folder import RunFolder

FULL = "full_evaluation"
FULL_CASES = 200
"""Cases that the plan of a full evaluation looks at, about."""


@dataclass(frozen=True)
class DataPlan:
    """What a run over recorded outputs would do: its plan, that of a full evaluation of some of its cases (None where nothing is
    paid), those of the members of a jury, and what its gates will be able to tell."""

    plan: Plan
    full: Plan | None
    members: list[MemberPlan]
    gate_lines: list[str]


def plan_of_data(config: RunConfig, frozen: RunFolder, scoring_files: ScoringFiles) -> DataPlan:
    """The plan of a run over the frozen cases of a folder. Raises what the run would refuse."""
    with closing(CaseReader(frozen.samples, frozen.outputs)) as reader:
        plan, members = plan_remaining(config, reader), member_plans(config, reader)
        full = _full_evaluation(config, reader) if plan.new_calls and config.judge.in_process() is None else None
    scoring_files.write(frozen, config)
    return DataPlan(plan, full, members, gate_power_lines(config, frozen))


def _full_evaluation(config: RunConfig, reader: CaseReader) -> Plan:
    """The plan of `+mode=full_evaluation` over some of the cases, by the same judge: what to hold the cost of a case against."""
    mode = yaml.load(option_files("mode")[FULL].read_text(encoding="utf-8"), Loader=FastLoader)
    names = mode["defaults"][0]["override /metrics"]
    blocks = reader.spread(range(reader.blocks), FULL_CASES)
    cases = islice(reader.of(reader.iteration, blocks), 0, None, ceil(reader.cases_in(blocks) / FULL_CASES))
    return make_plan(
        cases,
        [metric for metric in default_metrics() if metric.name in names],
        iterations=1,
        counter=prompt_counter(config.judge),
        has_embedder=has_embedder(config),
    )


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
