"""The plan of a run: what it would ask, cost and skip, as figures and as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.safe_text import on_one_line
from ragpipe.embedding.settings import INSTALL, NoEmbedder
from ragpipe.engine.event_loop import run_async
from ragpipe.engine.judge_access import checked_store, open_replay, store_path
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.token_count import count_tokens
from ragpipe.reports.console import Console
from ragpipe.schema.reference_answers import ReferenceRule
from ragpipe.schema.sample import CaseKey
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import references_of
from ragpipe.stages.plan_calls import TOKENS_OUT, Plan, make_plan
from ragpipe.stages.remaining_calls import Remaining, count_remaining
from ragpipe.stages.resume import CaseMark
from ragpipe.store.calls.call_store import StoredCalls
from ragpipe.store.calls.recorded_replies import FallbackStore, RecordedReplies


def plan_remaining(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None = None,
    *,
    rough: bool = False,
    known: Sequence[Path] = (),
    done: Mapping[int, Mapping[CaseKey, CaseMark]] = MappingProxyType({}),
) -> Plan:
    """The plan of a configuration over frozen cases, less what the call store holds for it (and for run `run_id`).

    `known` are judge_inputs of a finished run, whose replies count as stored too. `done` are the cases of each iteration that
    a journal calls finished. `rough` takes four characters for a token: loading a tokenizer would hold up the first call for half a second.
    """
    judge = config.judge
    model = judge.model if isinstance(judge, JudgeSettings) else ""
    metrics = list(config.metrics.values())
    count = (lambda text: len(text) // 4) if rough else (lambda text: count_tokens(text, model))
    plan = make_plan(reader, metrics, iterations=config.iterations, count_tokens=count, embedder=has_embedder(config))
    if isinstance(judge, JudgeSettings) and plan.calls and (known or any(done.values()) or store_path(config).exists()):
        found = run_async(_remaining(config, reader, run_id, known, done))
        plan.stored, plan.missing, plan.resumed = found.stored, found.missing, found.resumed
    return plan


async def _remaining(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None,
    known: Sequence[Path],
    done: Mapping[int, Mapping[CaseKey, CaseMark]],
) -> Remaining:
    stored = StoredCalls(store_path(config), run_id=run_id)  # opened here: SQLite stays in the thread of its loop
    checked = checked_store(config, stored)
    replies = FallbackStore(RecordedReplies(known, failures="permanent"), checked) if known else checked
    whole, metrics = Remaining(), list(config.metrics.values())
    async with open_replay(config, replies) as session:
        session.corpus = references_of(reader.samples)
        for iteration in range(1, config.iterations + 1):
            await count_remaining(reader.of(iteration), metrics, session, whole, done.get(iteration, {}))
    return whole


def resumed_lines(plan: Plan) -> list[str]:
    """What to know of finished cases before anything is spent: those that must be asked again, or come out otherwise."""
    found, lines = plan.resumed, []
    if found.again:
        lines.append(
            f"{found.again:,} finished {_cases(found.again)} must be asked again, about {found.calls:,} calls, because the call store "
            f"was damaged or replaced (first: {found.first_again})"
        )
    if found.changed:
        lines.append(
            f"{found.changed:,} finished {_cases(found.changed)} come out otherwise than the journal says: replies in the call store "
            f"were changed since (first: {found.first_changed})"
        )
    return lines


def changed_line(count: int, first: str) -> str:
    """What to know at the end of cases that came out otherwise than an earlier start had written down."""
    return (
        f"{count:,} finished {_cases(count)} came out otherwise than an earlier start of this run had written down (first: {first}): "
        "their replies were asked again or changed. Both results are in journal.jsonl; the later one counts"
    )


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


def has_embedder(config: RunConfig) -> bool:
    """Whether the run has an embedder."""
    return not isinstance(config.embedder, NoEmbedder)


def missing_embedder_line(config: RunConfig) -> str | None:
    """What to say of metrics that rest on vectors when there is no embedder; None when there is nothing to say."""
    names = [name for name, metric in config.metrics.items() if metric.needs_embedder]
    if has_embedder(config) or not names:
        return None
    return (
        f"{', '.join(names)}: skipped (no_embedder). For vectors without a key and without torch: {INSTALL}, then "
        "embedder=minilm; or embedder=litellm embedder.model=..."
    )


_COUNTS: dict[ReferenceRule, str] = {
    "any": "any one counts",
    "first": "the first alone counts",
    "all": "all of them count",
}


def reference_lines(plan: Plan) -> list[str]:
    """What the plan says of cases with several references, one line for each rule; metrics are named where rules differ."""
    names = {
        rule: f": {', '.join(found.metrics)}" if len(plan.several) > 1 else "" for rule, found in plan.several.items()
    }
    return [
        f"{found.cases:,} {'case has' if found.cases == 1 else 'cases have'} several references: {_COUNTS[rule]} "
        f"(references: {rule}{names[rule]})"
        for rule, found in plan.several.items()
    ]


def check_call_budget(plan: Plan, config: RunConfig) -> None:
    """Raises ConfigError for a plan over `judge.max_calls`: nothing was spent yet."""
    judge = config.judge
    if isinstance(judge, JudgeSettings) and config.transport.kind == "live" and plan.new_calls > judge.max_calls:
        raise ConfigError(
            "the plan is larger than what is allowed; nothing was spent",
            [
                Problem(
                    "the plan",
                    "judge.max_calls",
                    f"up to {plan.new_calls:,} new calls",
                    f"at most {judge.max_calls:,}",
                    f"judge.max_calls={plan.new_calls} to allow it, dataset.limit=N for fewer cases, task=plan for the parts",
                )
            ],
        )


def report_gaps(plan: Plan, console: Console) -> None:
    """What the data set does not record of the outputs, and what is skipped for it: a warning where it is only some cases of
    a method; where it is all of them, the metrics are not applicable to the method. And the cases too long for a question."""
    for metric in plan.metrics:
        if metric.too_long:
            cases = f"{metric.too_long:,} case{'s are' if metric.too_long > 1 else ' is'}"
            console.warn(
                f"{metric.name}: {cases} too long for a question, first {on_one_line(metric.first_too_long, 300)}"
            )
    for gap, names in plan.gaps:
        if gap.is_whole:
            console.say(f"{gap.part}: not recorded in method {gap.method}: {', '.join(names)} not applicable there")
        else:
            console.warn(f"{gap}: {', '.join(names)} skipped there")


def plan_line(plan: Plan, config: RunConfig) -> str:
    """New calls, their tokens and money in one line. An upper estimate where questions depend on replies."""
    judge = config.judge
    vectors = f"; apart from it up to {plan.embeddings:,} texts to {config.embedder.label}" if plan.embeddings else ""
    vectors = (
        f"; {plan.shared:,} questions are shared: asked once for several metrics{vectors}" if plan.shared else vectors
    )
    if not isinstance(judge, JudgeSettings):
        return f"plan: {plan.cases:,} cases, up to {plan.calls:,} questions to the embedded judge, no call, no cost{vectors}"
    prices = rates_for(judge)
    new = max(1, plan.new_calls)
    usd = prices.usd(plan.tokens_in / new, plan.tokens_out / new)  # a call's: long prompts may cost more
    money = f"about ${usd * plan.new_calls:,.2f}" if usd is not None else f"price unknown ({prices.reason})"
    return (
        f"plan: {plan.cases:,} cases, up to {plan.new_calls:,} new calls to {judge.label}"
        f"{f' ({plan.stored:,} replies are stored)' if plan.stored else ''}, about {plan.tokens_in:,} prompt tokens and "
        f"{plan.tokens_out:,} completion tokens ({TOKENS_OUT} a reply), {money}{vectors}"
    )
