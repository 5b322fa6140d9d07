"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from ragpipe.comparison.drop_gates import Baseline, read_baselines
from ragpipe.comparison.side import paired_cases
from ragpipe.core.errors import JudgeError, RagpipeError, Skipped
from ragpipe.core.registry import option_files
from ragpipe.core.sample import OUTPUT_KEY, Case
from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import on_one_line
from ragpipe.core.yaml_files import FastLoader
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
from ragpipe.runs.calibration_states import ScoringSources, scoring_warnings
from ragpipe.runs.case_measuring import measure_case
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.identity import metric_sources
from ragpipe.runs.judge_access import check_keys, member_configs, open_replay, recorded_replies, store_place, usable_replies
from ragpipe.runs.judge_cases import Resumption, resumption
from ragpipe.runs.load_dataset import references_of
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
from ragpipe.score.case_blocks import SCORE_COLUMNS, CaseBlock, aligned
from ragpipe.score.dimensions import Fields, case_columns
from ragpipe.score.gate_results import Precision, power_words, precision_before, precision_before_comparison, precision_of
from ragpipe.score.gate_rules import define
from ragpipe.score.gate_settings import Gate
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.call_database import call_database
from ragpipe.store.call_store import StoredCalls
from ragpipe.store.recorded_replies import FallbackStore, RecordedReplies
from ragpipe.store.run_folder import LATEST, RunFolder
from ragpipe.store.run_tables import read_columns, read_json

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
        remaining = run_async(remaining_calls(config, reader, run_id, recorded, resumed, known, repeats))
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
            sample = reader.spread(left, MOST_CASES)
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


Whole = NDArray[np.int64]

_KINDS = {"binary": "0/1", "share": "shares", "grade": "grades"}


def gate_power_lines(config: RunConfig, frozen: RunFolder) -> list[str]:
    """A line for each gate by interval: the true values that it finds with the cases that are frozen in a folder; of a gate against
    a baseline with those that `baseline.parquet` there has too, or that cases of the baseline are missing.

    How much values vary is taken from the newest run of this name, where its gate of the same name has an interval; else cases are
    taken to be as unlike, and those of a question as alike, as they can be. Raises DataError for tables that cannot be read.
    """
    gates = config.scoring.active_gates()
    if not gates:
        return []
    baselines = read_baselines(frozen.baseline) if any(gate.baseline for gate in gates.values()) else {}
    questions = _questions(gates, frozen, _shared(gates, frozen, baselines))
    earlier, run_id = _earlier_gates(config)
    lines = []
    for name, gate in gates.items():
        if gate.preference_against is not None:
            continue  # a judge is asked after the run
        if gate.against is not None and gate.baseline is None:
            lines.append(f"gate {name}: not applicable, there is no earlier run of this name")
            continue
        if words := _refusal(gate, baselines):
            lines.append(f"gate {name}: {words}")
            continue
        definition = _definition(config, name, gate)
        precision, source = _expected(definition, questions[name], earlier.get(name), run_id, config.scoring)
        if precision and (words := power_words(definition, precision, config.scoring.level)):
            lines.append(on_one_line(f"gate {name}: {words} ({source})", 1000))
    return lines


def _expected(
    definition: Mapping[str, Any], questions: Whole, earlier: Mapping[str, Any] | None, run_id: str, scoring: ScoringSettings
) -> tuple[Precision | None, str]:
    is_same = earlier is not None and _limited(earlier) == _limited(definition)
    measured = precision_of(earlier, scoring.level) if earlier and is_same else None
    lacking = "no earlier run"
    if measured and measured.labels is not None:
        if scoring.calibration is not None:
            return measured, f"by the labels in run {run_id}, if the answers are the same"
        measured, lacking = None, f"the judge alone, not by the labels in run {run_id}"
    if measured and len(questions):
        return measured.with_cases(len(questions)), f"by the spread in run {run_id}"
    if "against" in definition:
        kind = definition["kind"]
        source = f"by no earlier comparison: by the usual spread of {_KINDS[kind]}"
        return precision_before_comparison(questions, kind), source
    if definition["unscaled"]:
        return None, ""
    return precision_before(questions), f"by {lacking}: with scores between 0 and 1 it tells more"


def _limited(gate: Mapping[str, Any]) -> tuple[object, ...]:
    """What a gate limits, without its limits: gates that agree in it have values that vary alike."""
    return gate["of"], gate.get("score"), gate.get("failure_mode"), gate["where"], "against" in gate


def _definition(config: RunConfig, name: str, gate: Gate) -> dict[str, Any]:
    """The gate with its defaults filled in; `unscaled` for a mean whose score has no scale, `kind` of its values."""
    scoring = config.scoring
    specs = scoring.all_specs([spec for metric in config.metrics.values() for spec in metric.scores()])
    declared: dict[str, ScoreSpec] = {spec.name: spec for spec in (*specs, OVERALL)}
    spec = declared.get(gate.score or "")
    filled = define(
        name,
        gate,
        spec,
        judged=spec is not None and scoring.passes(spec),
        rests_on=(),
        coverage_floor=scoring.coverage_floor,
        inconclusive=scoring.inconclusive,
        untrusted=False,
    )
    unscaled = filled["of"] == "mean" and (spec is None or spec.low is None)
    is_share = spec is not None and (spec.low, spec.high) == (0, 1)
    kind = "binary" if filled["of"] != "mean" or (spec and spec.binary) else "share" if is_share else "grade"
    return {**filled, "unscaled": unscaled, "kind": kind}


def _refusal(gate: Gate, baselines: Mapping[str, Baseline]) -> str:
    """Why a gate will have no evidence, whatever the scores: the run leaves out cases of its baseline. Empty where it does not."""
    if gate.baseline is None or "data" in gate.accept:
        return ""
    left_out = baselines[gate.baseline].left_out(gate.labels())
    if not left_out.missing:
        return ""
    missing = f"{left_out.missing:,} of {left_out.chosen:,} cases of run {gate.baseline} are not in this run"
    return f"it will have no evidence, for {missing}; accept: [data] allows it"


def _shared(
    gates: Mapping[str, Gate], frozen: RunFolder, baselines: Mapping[str, Baseline]
) -> dict[str, set[tuple[object, ...]]]:
    """Of each gate against a baseline the keys of the cases that the baseline has too."""
    held = {name: gate for name, gate in gates.items() if gate.against is not None and gate.baseline is not None}
    if not held:
        return {}
    cases = read_columns(frozen.outputs, OUTPUT_KEY)
    shared = {}
    for name, gate in held.items():
        pairs = paired_cases(baselines[str(gate.against)].score(gate.measure), cases)
        shared[name] = _keys(cases.take(pairs.candidate))
    return shared


def _keys(table: pa.Table) -> set[tuple[object, ...]]:
    return {*zip(*(table[name].to_pylist() for name in OUTPUT_KEY), strict=True)}


def _questions(
    gates: Mapping[str, Gate], frozen: RunFolder, shared: Mapping[str, Collection[tuple[object, ...]]]
) -> dict[str, Whole]:
    """Of each gate the question of every case that it is about, as numbers; of those in `shared` alone where it is there."""
    numbers: dict[str, int] = {}
    chosen: dict[str, list[Whole]] = {name: [] for name in gates}
    missing_gold = ScoringSources({}, frozen).missing_gold()
    for block in _blocks(frozen.samples, frozen.outputs):
        keys = list(zip(*(block.outputs[name].to_pylist() for name in OUTPUT_KEY), strict=True))
        codes = np.array([numbers.setdefault(str(key[0]), len(numbers)) for key in keys], dtype=np.int64)
        fields = Fields(case_columns(block, 1, np.full(len(block), np.nan), missing_gold))
        for name, gate in gates.items():
            is_meant = fields.matching(gate.labels())
            if name in shared:
                is_meant &= np.array([key in shared[name] for key in keys], dtype=np.bool_)
            chosen[name].append(codes[is_meant])
    return {name: np.concatenate([np.empty(0, dtype=np.int64), *parts]) for name, parts in chosen.items()}


def _blocks(samples: Path, outputs: Path) -> Iterator[CaseBlock]:
    nothing = pa.table({name: pa.array([], pa.string()) for name in SCORE_COLUMNS})
    for table, labels in aligned(samples, outputs):
        yield CaseBlock(table, labels, nothing, np.empty(0, dtype=np.int64))


def _earlier_gates(config: RunConfig) -> tuple[dict[str, Any], str]:
    """The gates of the newest run of this name, by name, and its id; none where there is no such run that can be read."""
    try:
        folder = RunFolder.find(Path(config.output_dir) / config.name / LATEST)
        document = read_json(folder.gates)
        return {gate["name"]: gate for gate in document["gates"]}, folder.root.name
    except (RagpipeError, KeyError):
        return {}, ""
