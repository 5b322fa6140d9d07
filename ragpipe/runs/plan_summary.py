"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from types import MappingProxyType

import yaml

from ragpipe.core.registry import option_files
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.metrics.needs import default_metrics
from ragpipe.report.console import Console
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.gate_power import gate_power_lines
from ragpipe.runs.judge_access import check_keys, member_configs
from ragpipe.runs.judge_cases import Resumption, resumption
from ragpipe.runs.manifest import JUDGING_DONE
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan import Plan, make_plan, past_replies, prompt_counter
from ragpipe.runs.plan_notices import (
    check_call_budget,
    has_embedder,
    over_budget,
    plan_line,
    report_gaps,
    unmet_lines,
    unscored_line,
)
from ragpipe.runs.remaining_calls import may_have_replies, remaining_calls
from ragpipe.runs.scoring_files import ScoringFiles
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.run_folder import RunFolder

MOST_CASES = 20_000
"""Cases that a plan looks at, about: of more, blocks at even distances stand for all."""


def plan_remaining(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None = None,
    *,
    rough: bool = False,
    recorded: Sequence[Path] = (),
    resumed: Mapping[int, Resumption] = MappingProxyType({}),
    known: ReplayedCases | None = None,
    repeats: int = 1,
) -> Plan:
    """The plan of a configuration over frozen cases, minus the replies that are stored: those that `run_id` may use, and those
    of the judge inputs `recorded`. `resumed` is what iterations have from earlier starts; `known` keeps the cases that are
    measured here, for the run; each question is asked `repeats` times in an iteration. Of many cases it looks at `MOST_CASES`.
    `rough` counts four characters as a token: the first call does not wait for the encoding of the model.
    """
    judge = config.judge
    metrics = list(config.metrics.values())
    blocks = reader.spread(range(reader.blocks), MOST_CASES)
    plan = make_plan(
        reader.of(reader.iteration, blocks),
        metrics,
        iterations=config.iterations * repeats,
        counter=prompt_counter(judge, rough=rough),
        has_embedder=has_embedder(config),
        past=past_replies(Path(config.output_dir), judge.label, judge.reasoning_effort)
        if isinstance(judge, JudgeSettings)
        else {},
    )
    if len(blocks) < reader.blocks:
        plan.scale_to(reader.count)
    if isinstance(judge, JudgeSettings) and plan.calls and may_have_replies(config, recorded, resumed):
        remaining = run_async(remaining_calls(config, reader, run_id, recorded, resumed, known, repeats, MOST_CASES))
        plan.stored, plan.missing = remaining.stored, remaining.missing
    return plan


@dataclass(frozen=True)
class MemberPlan:
    """What one member would be asked. `config` is that of a run which it judges alone."""

    name: str
    config: RunConfig
    plan: Plan

    def line(self) -> str:
        """New calls, their tokens and cost on one line."""
        return f"member {self.name}: {plan_line(self.plan, self.config).removeprefix('plan: ')}"


def member_plans(
    config: RunConfig, reader: CaseReader, run_id: str | None = None, *, rough: bool = False, recorded: Sequence[Path] = ()
) -> list[MemberPlan]:
    """The plan of each member of the jury, as `plan_remaining`; empty where one judge judges. With a cascade, that of its
    second member is an upper bound: every case."""
    jury = config.judge
    if not isinstance(jury, JurySettings):
        return []
    return [
        MemberPlan(name, member, plan_remaining(member, reader, run_id, rough=rough, recorded=recorded, repeats=jury.repeats))
        for name, member in member_configs(config).items()
        if member.metrics
    ]


def check_members(plans: Sequence[MemberPlan]) -> None:
    """Raises ConfigError where a member's plan is over its `max_calls`, or its key is missing: nothing was spent yet."""
    for member in plans:
        check_call_budget(member.plan, member.config)
        if member.plan.new_calls:
            check_keys(member.config)


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
