"""The plan of a run by a jury: what each of its members would be asked, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import member_configs
from ragpipe.engine.judge_check import check_keys
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, plan_remaining
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.plan_calls import Plan


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
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None = None,
    *,
    rough: bool = False,
    recorded: Sequence[Path] = (),
) -> list[MemberPlan]:
    """The plan of each member of the jury over frozen cases, minus the replies that are stored; empty where one judge judges. With a
    cascade, that of its second member is an upper bound: every case.

    Args:
        config: the configuration of the run.
        reader: its frozen cases.
        run_id: the run, whose own failures in the call store count as replies.
        rough: count four characters as a token.
        recorded: judge_inputs of a finished run, whose replies count as stored too.
    """
    jury = config.judge
    if not isinstance(jury, JurySettings):
        return []
    return [
        MemberPlan(
            name,
            member,
            plan_remaining(member, reader, run_id, rough=rough, recorded=recorded, repeats=jury.repeats),
        )
        for name, member in member_configs(config).items()
        if member.metrics
    ]


def check_members(plans: Sequence[MemberPlan]) -> None:
    """Raises ConfigError where a member's plan is over its `max_calls`, or its key is missing: nothing was spent yet."""
    for member in plans:
        check_call_budget(member.plan, member.config)
        if member.plan.new_calls:
            check_keys(member.config)
