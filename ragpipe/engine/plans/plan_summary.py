"""The plan of a run: what it would ask, cost and skip, in numbers and in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError, JudgeError, Problem, RagpipeError, Skipped
from ragpipe.core.safe_text import on_one_line
from ragpipe.embedding.settings import INSTALL, NoEmbedder
from ragpipe.engine.event_loop import run_async
from ragpipe.engine.judge_access import member_configs, open_replay, recorded_replies, store_place, usable_replies
from ragpipe.engine.judge_check import check_keys
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.manifest import read_manifest
from ragpipe.judging.capabilities import LOCAL, capabilities
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.limits.budget import in_unit
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.token_count import CHARACTERS_PER_TOKEN, count_tokens
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.schema.sample import Case, CaseKey, ReferenceRule
from ragpipe.stages.case_measuring import measure_case
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import references_of
from ragpipe.stages.measured_cases import KnownMeasurements
from ragpipe.stages.plan_calls import PastReplies, Plan, make_plan
from ragpipe.stages.resume import CaseMark, ResumedCases, Resumption
from ragpipe.stages.step_tokens import PromptCounter, SchemaPlace
from ragpipe.stages.table_rows import Measurement, failed_measurement, journal_entry, scores_by_name
from ragpipe.store.calls.call_database import call_database
from ragpipe.store.calls.call_store import StoredCalls
from ragpipe.store.calls.recorded_replies import FallbackStore, RecordedReplies
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns

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
    known: KnownMeasurements | None = None,
    repeats: int = 1,
) -> Plan:
    """The plan of a configuration over frozen cases, minus the replies that are stored.

    Args:
        config: the configuration of the run.
        reader: its frozen cases.
        run_id: the run, whose own failures in the call store count as replies.
        rough: keep the first call waiting for some seconds at most: count four characters as a token, and of many cases look only at
            `ROUGH_CASES`. Finished cases that are judged again are all looked at.
        recorded: judge_inputs of a finished run, whose replies count as stored too.
        resumed: by iteration, what it has from earlier starts.
        known: what need not be measured; it keeps the cases that are measured here, for the run.
        repeats: how often each question is asked in an iteration.
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
        and (recorded or any(state.done for state in resumed.values()) or _has_stored_replies(config))
    ):
        remaining = run_async(_remaining(config, reader, run_id, recorded, resumed, known, repeats, most))
        plan.stored, plan.missing, plan.resumed = remaining.stored, remaining.missing, remaining.resumed
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
    return PromptCounter(partial(count_tokens, model=judge.model), place)


def _has_stored_replies(config: RunConfig) -> bool:
    return config.store.recorded is not None or call_database(store_place(config)).exists()


async def _remaining(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None,
    recorded: Sequence[Path],
    resumed: Mapping[int, Resumption],
    known: KnownMeasurements | None,
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
            begun = reader.blocks_with(state.done, left)
            fresh = [block for block in left if block not in set(begun)]
            sample = reader.spread(fresh, most)
            factor = reader.cases_in(fresh) / max(1, reader.cases_in(sample))
            for session.repeat in range(1, repeats + 1):
                of_sample = RemainingCalls()
                cases = reader.of(iteration, begun)
                await count_remaining(cases, metrics, session, remaining, state.done, known)
                await count_remaining(reader.of(iteration, sample), metrics, session, of_sample, {}, known)
                remaining.add_scaled(of_sample, factor)
    return remaining


def resumed_lines(plan: Plan) -> list[str]:
    """Warnings about finished cases before anything is spent: those that must be asked again, or get another result."""
    resumed, lines = plan.resumed, []
    if resumed.again:
        lines.append(
            f"{resumed.again:,} finished {_cases(resumed.again)} must be asked again, about {resumed.calls:,} calls, because the "
            f"call store was damaged or replaced (first: {resumed.first_again})"
        )
    if resumed.changed:
        lines.append(
            f"{resumed.changed:,} finished {_cases(resumed.changed)} {'comes' if resumed.changed == 1 else 'come'} out otherwise than "
            f"the journal says: replies in the call store, or the journal, were changed since (first: {resumed.first_changed})"
        )
    return lines


def changed_line(count: int, first: str) -> str:
    """A warning at the end about cases with another result than an earlier start had written down."""
    return (
        f"{count:,} finished {_cases(count)} came out otherwise than an earlier start of this run had written down (first: "
        f"{first}): their replies were asked again or changed. Both results are in journal.jsonl; the later one counts"
    )


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


def has_embedder(config: RunConfig) -> bool:
    """Whether the run has an embedder."""
    return not isinstance(config.embedder, NoEmbedder)


def missing_embedder_line(config: RunConfig) -> str | None:
    """A warning about metrics that need vectors in a run without an embedder; None where there are none."""
    names = [name for name, metric in config.metrics.items() if metric.needs_embedder]
    if has_embedder(config) or not names:
        return None
    return (
        f"{', '.join(names)}: skipped (no_embedder). For vectors without a key and without torch: {INSTALL}, then "
        "embedder=minilm; others: docs/embeddings.md"
    )


_RULE_TEXTS: dict[ReferenceRule, str] = {
    "any": "any one counts",
    "first": "the first alone counts",
    "all": "all of them count",
}


def reference_lines(plan: Plan) -> list[str]:
    """What the plan says of cases with several references, one line per rule; metrics are named where rules differ."""
    lines = []
    for rule, several in plan.several.items():
        names = f": {', '.join(several.metrics)}" if len(plan.several) > 1 else ""
        cases = "1 case has" if several.cases == 1 else f"{several.cases:,} cases have"
        lines.append(f"{cases} several references: {_RULE_TEXTS[rule]} (references: {rule}{names})")
    return lines


def check_call_budget(plan: Plan, config: RunConfig) -> None:
    """Raises ConfigError for a plan over `judge.max_calls`: nothing was spent yet."""
    judge = config.judge
    if isinstance(judge, JudgeSettings) and config.transport.asks and plan.new_calls > judge.max_calls:
        calls, limit = f"up to {plan.new_calls:,} new calls", f"at most {judge.max_calls:,}"
        fix = f"judge.max_calls={plan.new_calls} to allow it, dataset.limit=N for fewer cases, task=plan for the parts"
        problem = Problem("the plan", "judge.max_calls", calls, limit, fix)
        raise ConfigError("the plan is larger than what is allowed; nothing was spent", [problem])


def report_gaps(plan: Plan, console: Console) -> None:
    """Print which parts of the outputs are not recorded and what is skipped for it, and which cases are too long for a question.

    A part that only some cases of a method lack is a warning; where all lack it, the metrics do not apply to the method.
    """
    for metric in plan.metrics:
        if metric.too_long:
            cases = f"{metric.too_long:,} case{'s are' if metric.too_long > 1 else ' is'}"
            console.warn(
                f"{metric.name}: {cases} too long for a question, first {on_one_line(metric.first_too_long, 300)}"
            )
    for gap, names in plan.gaps:
        why = f" ({on_one_line(gap.why, 200)})" if gap.why else ""
        if gap.is_whole:
            console.say(
                f"{gap.part}: not recorded in method {gap.method}{why}: {', '.join(names)} not applicable there"
            )
        else:
            console.warn(f"{gap}{why}: {', '.join(names)} skipped there")


def plan_line(plan: Plan, config: RunConfig) -> str:
    """New calls, their tokens and cost on one line: an upper estimate where questions depend on replies."""
    judge = config.judge
    details = "" if plan.sampled is None else f"; estimated from {plan.sampled:,} cases, task=plan counts all"
    if plan.shared:
        details += f"; {plan.shared:,} questions are shared: asked once for several metrics or methods"
    if plan.embeddings:
        details += f"; apart from it up to {plan.embeddings:,} texts to {config.embedder.label}"
    if isinstance(judge, JurySettings):
        return f"plan: {plural(plan.cases, 'case')}, judged by {judge.label}{details}"
    if not isinstance(judge, JudgeSettings):
        if not plan.calls:
            return f"plan: {plural(plan.cases, 'case')}, no question to a judge{details}"
        questions = plural(plan.calls, "question")
        return f"plan: {plural(plan.cases, 'case')}, up to {questions} to {judge.title}, no call, no cost{details}"
    if not plan.new_calls and plan.stored:
        replies = "the one reply is" if plan.stored == 1 else f"all {plan.stored:,} replies are"
        return f"plan: {plural(plan.cases, 'case')}, no new call to {judge.label}: {replies} stored{details}"
    prices = config.transport.rates(judge)
    usd = plan.usd(prices)
    measured = sum(step.calls for step in plan.steps if step.measured)
    replies = "lengths by the form of the answers"
    if measured:
        replies = f"{measured:,} of {plan.calls:,} by this judge's earlier replies, the rest by their form"
    money = f"about ${usd:,.2f}" if usd is not None else f"price unknown ({prices.reason})"
    return (
        f"plan: {plural(plan.cases, 'case')}, up to {plural(plan.new_calls, 'new call')} to {judge.label}"
        f"{f' ({plan.stored:,} replies are stored)' if plan.stored else ''}, about {plan.tokens_in:,} prompt tokens and "
        f"{plan.tokens_out:,} completion tokens ({replies}), {money}{details}"
    )


def over_budget(plan: Plan, config: RunConfig) -> str | None:
    """A warning about a plan that the judge's budget does not cover; None where it may."""
    judge = config.judge
    if not isinstance(judge, JudgeSettings) or not judge.budget.is_set:
        return None
    expected = {
        "usd": plan.usd(config.transport.rates(judge)),
        "tokens": plan.tokens_in + plan.tokens_out,
        "calls": plan.new_calls,
    }
    for part, amount in expected.items():
        limit = getattr(judge.budget, part)
        if limit is not None and amount is not None and amount > limit:
            return (
                f"judge.budget.{part}={limit:g} is less than the plan of {in_unit(part, amount)}: the run may end with a part of "
                "its cases"
            )
    return None


def plan_ahead(spec: RunSpec, recorded: Sequence[Path]) -> str:
    """The line of the plan of a run whose inputs are not frozen yet. Nothing is left behind.

    Args:
        spec: the run.
        recorded: judge_inputs of a finished run, whose replies count as stored.

    Raises ConfigError for a plan over `judge.max_calls`.
    """
    with TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        spec.source.write(folder, dict(spec.identity))
        reader = CaseReader(folder.samples, folder.outputs)
        try:
            plan = plan_remaining(spec.config, reader, spec.run_id, rough=True, recorded=recorded)
        finally:
            reader.close()
    check_call_budget(plan, spec.config)
    return plan_line(plan, spec.config)


RUNS = 8
"""The newest runs that are looked at."""
_COLUMNS = ["judge", "metric", "template_sha256", "status", "turn", "tokens_out", "sent"]


def past_replies(output_dir: Path, judge: str, effort: str | None = None) -> dict[tuple[str, bool], PastReplies]:
    """By the hash of a template, and whether it asked for the reasons step by step, the replies of a judge (its printable name) in
    the newest run of each experiment. Replies for which the model thought with another `effort` are left out, as are runs that
    cannot be read: a plan needs none."""
    totals: defaultdict[tuple[str, bool], list[float]] = defaultdict(lambda: [0, 0.0])
    folders = [RunFolder(path) for path in output_dir.glob("*/latest")]
    folders = [folder for folder in folders if folder.iteration(1).judge_inputs.is_file()]
    for folder in sorted(folders, key=_age)[:RUNS]:
        try:
            identity = read_manifest(folder)["identity"]
            replies = _by_template(read_columns(folder.iteration(1).judge_inputs, _COLUMNS), judge, effort)
        except (RagpipeError, OSError, ValueError, KeyError):
            continue
        for row in replies.to_pylist():
            reasoning = identity["metrics"].get(row["metric"], {}).get("parameters", {}).get("reasoning", False)
            total = totals[row["template_sha256"], bool(reasoning)]
            total[0] += row["tokens_out_count"]
            total[1] += row["tokens_out_sum"]
    return {asked: PastReplies(int(n), tokens / n) for asked, (n, tokens) in totals.items()}


def _by_template(calls: pa.Table, judge: str, effort: str | None) -> pa.Table:
    """Number and completion tokens of the judge's replies to each template, by metric, without repairs and failures."""
    is_reply = (
        (pc.field("judge") == judge)
        & (pc.field("status") == "ok")
        & (pc.field("turn") == "ask")
        & pc.field("template_sha256").is_valid()
        & pc.field("tokens_out").is_valid()
    )
    sent = pc.fill_null(calls["sent"], "{}")
    wanted = f'"reasoning_effort":"{effort}"' if effort else '"reasoning_effort"'
    has_effort = pc.match_substring(sent, wanted)
    calls = calls.filter(has_effort if effort else pc.invert(has_effort))
    grouped = calls.filter(is_reply).group_by(["template_sha256", "metric"], use_threads=False)
    return grouped.aggregate([("tokens_out", "count"), ("tokens_out", "sum")])


def _age(folder: RunFolder) -> float:
    return -folder.iteration(1).judge_inputs.stat().st_mtime


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
            name, member, plan_remaining(member, reader, run_id, rough=rough, recorded=recorded, repeats=jury.repeats)
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


@dataclass(slots=True)
class RemainingCalls:
    """Questions with a stored reply, questions (at most) without one, and what became of finished cases."""

    stored: int = 0
    missing: int = 0
    resumed: ResumedCases = field(default_factory=ResumedCases)

    def add_scaled(self, part: RemainingCalls, factor: float) -> None:
        """Add what was counted of some cases, each of which represents `factor` cases. None of them was finished."""
        self.stored += round(part.stored * factor)
        self.missing += round(part.missing * factor)


@dataclass(frozen=True, slots=True)
class _Replay:
    """What a metric gives for a case over stored replies, and how many of its questions have one."""

    measurement: Measurement | None
    stored: int
    missing: int


async def count_remaining(
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    session: JudgeSession,
    total: RemainingCalls,
    done: Mapping[CaseKey, CaseMark],
    known: KnownMeasurements | None = None,
) -> None:
    """Replay every case through every metric that asks, and add what it needs to `total`.

    Where a reply is missing, all that the metric declares to ask beyond the stored questions counts as missing.

    Args:
        cases: the cases of one iteration.
        metrics: the metrics of the run; those that ask no judge are passed over.
        session: a session over stored replies.
        total: is added to.
        done: the cases that a journal calls finished.
        known: what need not be measured; it keeps the cases of which every question has a reply, for the run.
    """
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    for case in cases:
        missing = 0
        measured: list[Measurement | None] = []
        holding = known.holding(case) if known is not None else {}
        for metric in asking:
            if before := holding.get(metric.name):
                measured.append(before)
                total.stored += sum(row["template"] is not None for row in before.rows or ())
                continue
            if reason := run_skip_reason(metric, case, embedder=session.embedder is not None):
                measured.append(failed_measurement(metric, Skipped(reason), []))
                continue
            replay = await _replay(metric, case, session)
            measured.append(replay.measurement)
            total.stored += replay.stored
            missing += replay.missing
        total.missing += missing
        certain = [measurement for measurement in measured if measurement]
        is_certain = len(certain) == len(measured)
        if mark := done.get(case.key):
            result = journal_entry(case.key, case.question, certain)["result"] if is_certain else None
            total.resumed.compare(case.key, mark, result, missing)
        if is_certain and known is not None:
            known.replayed.add(case.key, certain)


async def _replay(metric: Metric, case: Case, session: JudgeSession) -> _Replay:
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
    if is_known:
        return _Replay(measurement, stored, 0)
    declared = sum(planned.times for planned in metric.planned_calls(case))
    return _Replay(None, stored, max(len(asked), declared) - stored)
