"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import yaml

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.registry import option_files
from ragpipe.core.sample import Case
from ragpipe.data.dataset import Record
from ragpipe.judge.capabilities import LOCAL, capabilities
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.pricing import CHARACTERS_PER_TOKEN, count_tokens
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.metrics.needs import default_metrics
from ragpipe.metrics.recording_judge import RecordingJudge
from ragpipe.report.console import Console
from ragpipe.runs.calibration_states import scoring_warnings
from ragpipe.runs.case_measuring import measure_case
from ragpipe.runs.collected_outputs import unknown_methods
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.gate_plan import gate_power_lines
from ragpipe.runs.identity import metric_sources
from ragpipe.runs.judge_access import check_keys, member_configs, open_replay, recorded_replies, store_place, usable_replies
from ragpipe.runs.judge_cases import Resumption, resumption
from ragpipe.runs.load_dataset import load_dataset, references_of
from ragpipe.runs.manifest import JUDGING_DONE
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan import Plan, PromptCounter, SchemaPlace, make_plan, past_replies
from ragpipe.runs.plan_notices import (
    check_call_budget,
    has_embedder,
    missing_embedder_line,
    over_budget,
    plan_line,
    report_gaps,
    unanswered_lines,
    unmet_lines,
    unscored_line,
)
from ragpipe.runs.scoring_files import ScoringFiles
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.runs.table_rows import Measurement, failed_measurement, scores_by_name
from ragpipe.score.pointer_checks import Pointers, read_pointers
from ragpipe.store.call_database import call_database
from ragpipe.store.call_store import StoredCalls
from ragpipe.store.recorded_replies import FallbackStore, RecordedReplies
from ragpipe.store.run_folder import RunFolder

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


async def remaining_calls(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None,
    recorded: Sequence[Path],
    resumed: Mapping[int, Resumption],
    known: ReplayedCases | None,
    repeats: int,
    most: int,
) -> RemainingCalls:
    """What is left to ask in all iterations."""
    from_file = recorded_replies(config)
    stored = StoredCalls(store_place(config), run_id=run_id)  # opened here: SQLite stays in the thread of its loop
    replies = usable_replies(config, stored, from_file)
    if recorded:
        replies = FallbackStore(RecordedReplies(recorded, failures="permanent"), replies)
    remaining, metrics = RemainingCalls(), list(config.metrics.values())
    async with open_replay(config, replies) as session:
        session.corpus = references_of(reader.samples)
        for iteration in range(1, config.iterations + 1):
            state = resumed.get(iteration, Resumption())
            remaining.stored += state.stored
            left = [block for block in range(reader.blocks) if block not in state.written]
            sample = reader.spread(left, most)
            factor = reader.cases_in(left) / max(1, reader.cases_in(sample))
            for session.repeat in range(1, repeats + 1):
                counted = await count_remaining(reader.of(iteration, sample), metrics, session, known)
                remaining.stored += round(counted.stored * factor)
                remaining.missing += round(counted.missing * factor)
    return remaining


@dataclass(slots=True)
class RemainingCalls:
    """Questions with a stored reply, and questions (at most) without one."""

    stored: int = 0
    missing: int = 0


async def count_remaining(
    cases: Iterable[Case], metrics: Sequence[Metric], session: JudgeSession, known: ReplayedCases | None = None
) -> RemainingCalls:
    """Replay every case through every metric that asks, over the stored replies of the session, and count what it needs. Where
    a reply is missing, all that the metric would ask over likely replies beyond the stored questions counts as missing. `known`
    keeps the cases of which every question has a reply, for the run."""
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    total = RemainingCalls()
    for case in cases:
        measured: list[Measurement] = []
        for metric in asking:
            if reason := run_skip_reason(metric, case, embedder=session.embedder is not None):
                measured.append(failed_measurement(metric, Skipped(reason), []))
                continue
            if measurement := await _replay(metric, case, session, total):
                measured.append(measurement)
        if len(measured) == len(asking) and known is not None:
            known.add(case.key, measured)
    return total


async def _replay(metric: Metric, case: Case, session: JudgeSession, total: RemainingCalls) -> Measurement | None:
    """What a metric gives for a case over stored replies; None where one is missing. Counts its questions."""
    judge = CaseJudge(session, case.key, metric.name)
    is_known, measurement = True, None
    try:
        measurement = Measurement(metric, scores_by_name(metric, await measure_case(metric, case, judge)), judge.uses)
    except (JudgeError, Skipped) as outcome:
        is_known = not any(use.call.status == "missing_reply" for use in judge.uses)
        measurement = failed_measurement(metric, outcome, judge.uses) if is_known else None
    except Exception:  # a bug of the metric: the run itself will report it
        is_known = False
    asked = [use for use in judge.uses if use.prompt is not None]  # texts to an embedder are planned apart
    stored = sum(use.call.status != "missing_reply" for use in asked)
    total.stored += stored
    if is_known:
        return measurement
    recording = RecordingJudge(lambda _: None)
    await recording.run(metric, case)
    total.missing += max(len(asked), recording.count) - stored
    return None


FULL = "full_evaluation"
FULL_CASES = 200
"""Cases that the plan of a full evaluation looks at, about."""


@dataclass(frozen=True)
class DataPlan:
    """What a run over recorded outputs would do: its plan, that of a full evaluation of some of its cases, those of the members of a
    jury, what its gates will be able to tell, the pointers of its cases, and a warning about methods that no output has."""

    plan: Plan
    full: Plan
    members: list[MemberPlan]
    gate_lines: list[str]
    pointers: Pointers
    warning: str | None


def plan_of_data(config: RunConfig, records: Iterable[Record], scoring_files: ScoringFiles) -> DataPlan:
    """The plan of a run over these records, which are frozen for it in a folder that does not stay. Raises what the run would refuse."""
    with TemporaryDirectory() as place:
        frozen = RunFolder(Path(place))
        methods = load_dataset(records, samples=frozen.samples, outputs=frozen.outputs)
        with closing(CaseReader(frozen.samples, frozen.outputs)) as reader:
            plan, members = plan_remaining(config, reader), member_plans(config, reader)
            full = _full_evaluation(config, reader)
        scoring_files.write(frozen, config)
        gate_lines, pointers = gate_power_lines(config, frozen), read_pointers(frozen.samples, frozen.outputs)
    return DataPlan(plan, full, members, gate_lines, pointers, unknown_methods(config.system, methods))


def _full_evaluation(config: RunConfig, reader: CaseReader) -> Plan:
    """The plan of `+mode=full_evaluation` over some of the cases, by the same judge: what to hold the cost of a case against."""
    mode = yaml.safe_load(option_files("mode")[FULL].read_text(encoding="utf-8"))
    names = mode["defaults"][0]["override /metrics"]
    return make_plan(
        reader.of(reader.iteration, reader.spread(range(reader.blocks), FULL_CASES)),
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
