"""The part of task=synthesize that asks a language model: the plan, the calls, and what of their replies is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_access import open_judge, store_place
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, prompt_counter
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.model_questions import PER_SECTION, Asker, ModelQuestions, SynthesisQuestion
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize_settings import SynthesizeSettings
from ragpipe.extras.test_sets.template_cases import Record
from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.reports.console import Console
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.stages.plan_calls import Plan, StepPlan, expected_tokens
from ragpipe.stages.step_tokens import TokenSample
from ragpipe.store.calls.call_store import read_calls


def ask_model(
    config: RunConfig,
    settings: SynthesizeSettings,
    documents: SourceDocuments,
    draw: QuestionDraw,
    records: list[Record],
    console: Console,
) -> dict[str, Any]:
    """Reword questions of `records` in place and add free ones to them. Returns what the card says of the model.

    Args:
        config: the configuration with the judge.
        settings: the `synthesize` section.
        documents: the documents.
        draw: the draw of the template questions.
        records: the cases of the templates.
        console: where the plan and what was dropped are printed.

    Prints the plan first. Raises ConfigError for a plan over `judge.max_calls`, Incomplete where calls failed for a passing reason,
    Interrupted, ProviderUnusable, and DataError for too few free questions.
    """
    model = ModelQuestions(config.prompts, documents, draw, settings.seed)
    rewordings = model.rewordings(records, settings.rephrase)
    sections = model.section_questions()
    first_sections = sections[: math.ceil(settings.counts.free / PER_SECTION)]
    plan = _plan(config, rewordings, first_sections)
    console.say(plan_line(plan, config))
    if settings.counts.free:
        console.say("a section whose questions do not hold is replaced by another one: one more call each")
    check_call_budget(plan, config)
    records += run_async(_ask(config, settings, model, rewordings, records, console))
    for name, tally in (("reworded", model.rephrased), ("free questions", model.free)):
        if tally.asked:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.dropped.items()) if count)
            console.say(
                f"{name}: {tally.kept:,} of {tally.asked:,} kept" + (f"; dropped: {reasons}" if reasons else "")
            )
    prompts = [model.rephrase_prompt.signature, model.ask_prompt.signature]
    tallies = {"rephrased": model.rephrased.as_card(), "free": model.free.as_card()}
    return {"label": config.judge.label, "prompts": prompts, **tallies}


def _plan(config: RunConfig, rewordings: Sequence[SynthesisQuestion], sections: Sequence[SynthesisQuestion]) -> Plan:
    """The questions of the first round, and how many of them the call store answers. A section whose questions do not hold makes
    one more."""
    judge = judge_parts(config.judge.identity_of_judge())
    steps, keys, counter = [], [], prompt_counter(config.judge)
    for lot in (rewordings, sections):
        sample = TokenSample()
        for question in lot:
            payload = Payload(question.prompt.render(**question.values), answer_schema(question.answer))
            keys.append(question_key(key_parts(payload, judge, 1, 1)))
            length = question.prompt.length(question.values)
            sample.add(length, counter.tokens(payload.messages, question.answer))
            sample.add_calls(length, expected_tokens(question.answer, question.values), 1)
        step = lot[0].prompt.step if lot else ""
        steps.append(StepPlan("synthesize", step, step, calls=len(lot), sample=sample))
    stored = len(read_calls(store_place(config), keys, run_id=_payer(config)))
    return Plan(len(keys), 1, [], steps, stored=stored, missing=len(keys) - stored)


async def _ask(
    config: RunConfig,
    settings: SynthesizeSettings,
    model: ModelQuestions,
    rewordings: Sequence[SynthesisQuestion],
    records: Sequence[Record],
    console: Console,
) -> list[Record]:
    """Ask all; the free questions as records.

    Args:
        config: the configuration with the judge.
        settings: the `synthesize` section.
        model: what is asked, and what becomes of the replies.
        rewordings: the questions that ask for other words.
        records: the cases of the templates, reworded in place.
        console: where progress and warnings are printed.
    """
    async with open_judge(config, _payer(config), warn=console.warn) as session:
        total = len(rewordings) + math.ceil(settings.counts.free / PER_SECTION)
        done = 0

        def count() -> None:
            nonlocal done
            done += 1

        def work() -> WorkDone:
            return WorkDone(min(done, total), errors=session.usage.failed)

        meter = WorkMeter("judging", total, work, session=session)
        with console.progress(meter.state, label="asking the model", noun="questions"):
            asker = Asker(session, count)
            with SignalHandlers(asker, console.warn):
                try:
                    await model.rephrase(rewordings, records, asker)
                    return await model.ask_freely(settings.counts.free, asker)
                finally:
                    await session.drain()


def _payer(config: RunConfig) -> str:
    """The name under which the call store keeps what is paid: the same for the same judge."""
    return f"synthesize-{sha256(config.judge.identity_of_judge())[:12]}"
