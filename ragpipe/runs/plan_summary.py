"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType

from ragpipe.judge.capabilities import LOCAL, capabilities
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.pricing import CHARACTERS_PER_TOKEN, count_tokens
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.judge_access import member_configs, store_place
from ragpipe.runs.judge_cases import Resumption
from ragpipe.runs.judge_keys import check_keys
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan import Plan, PromptCounter, SchemaPlace, make_plan, past_replies
from ragpipe.runs.plan_notices import check_call_budget, has_embedder, plan_line
from ragpipe.runs.remaining_calls import remaining_calls
from ragpipe.runs.settings import RunConfig
from ragpipe.store.call_database import call_database

ROUGH_CASES = 20_000
"""Cases that a rough plan looks at, about: of more, blocks at even distances stand for all."""


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
    measured here, for the run; each question is asked `repeats` times in an iteration.

    `rough` keeps the first call waiting for some seconds at most: it counts four characters as a token, and of many cases looks
    only at `ROUGH_CASES`.
    """
    judge = config.judge
    metrics = list(config.metrics.values())
    most = ROUGH_CASES if rough else reader.count
    blocks = reader.spread(range(reader.blocks), most)
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
    if (
        isinstance(judge, JudgeSettings)
        and plan.calls
        and (
            recorded
            or any(state.written for state in resumed.values())
            or config.store.recorded is not None
            or call_database(store_place(config)).exists()
        )
    ):
        remaining = run_async(remaining_calls(config, reader, run_id, recorded, resumed, known, repeats, most))
        plan.stored, plan.missing = remaining.stored, remaining.missing
    return plan


def prompt_counter(judge: object, *, rough: bool = False) -> PromptCounter:
    """How the judge's server counts a prompt, as far as it is known: by the model's encoding, with the answer's schema where
    the provider bills it. `rough`: four characters a token."""
    if rough or not isinstance(judge, JudgeSettings):
        return PromptCounter(lambda text: len(text) // CHARACTERS_PER_TOKEN)
    mode = judge.output_mode if judge.output_mode != "auto" else capabilities(judge.model, judge.capabilities).modes[0]
    place: SchemaPlace = "message" if mode != "json_schema" else "request"
    if place == "request" and (judge.api_base is not None or judge.provider in LOCAL):
        place = "none"  # such servers constrain the decoding by the schema, and do not show it to the model
    return PromptCounter(lru_cache(maxsize=64)(partial(count_tokens, model=judge.model)), place)  # instructions come again


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
