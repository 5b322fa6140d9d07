"""The plan of a configuration over frozen cases, and those of the members of a jury."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ragpipe.judge.jury import JurySettings
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import read_cells_alone
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.judge_access import member_configs
from ragpipe.runs.judge_cases import Resumption
from ragpipe.runs.judge_check import check_keys
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan import Plan, make_plan, past_replies, prompt_counter
from ragpipe.runs.plan_notices import check_call_budget, has_embedder, plan_line
from ragpipe.runs.remaining_calls import may_have_replies, remaining_calls
from ragpipe.runs.settings import RunConfig

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
        reader.of(reader.iteration, blocks, cells=read_cells_alone(metrics)),
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
