"""`task=synthesize`: a test set from your own documents, by question templates and, when configured, by a language model."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.config.run_validation import validate_without_metrics
from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import data_path
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.documents.markdown import Document, read_documents
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_access import open_judge, store_place
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, prompt_counter
from ragpipe.engine.task_settings import task_settings
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.extras.test_sets.answered_cases import silent_conflicts
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.frozen_set import refuse_existing, write_frozen_set
from ragpipe.extras.test_sets.model_questions import PER_SECTION, Asker, ModelQuestions, SynthesisQuestion
from ragpipe.extras.test_sets.question_templates import Templates, read_templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize_settings import SynthesizeSettings
from ragpipe.extras.test_sets.template_cases import Record, template_cases
from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.judging.settings import JudgeSettings
from ragpipe.reports.console import Console
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.settings import Settings
from ragpipe.stages.plan_calls import Plan, StepPlan, expected_tokens
from ragpipe.stages.step_tokens import TokenSample
from ragpipe.store.calls.call_store import read_calls

SECTION = "synthesize"
_TITLE = "task=synthesize is wrong; nothing was written"


@dataclass(frozen=True)
class SynthesizeTask:
    """The settings, and the run configuration whose judge is asked; None where no model is."""

    settings: SynthesizeSettings
    config: RunConfig | None

    @property
    def log_level(self) -> str:
        """The level of the library logs of this start."""
        return "warning" if self.config is None else self.config.log_level


class Keys(Settings):
    synthesize: SynthesizeSettings = Field(description="Documents, templates and counts of a test set.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> SynthesizeTask:
    """Check the section, and the judge where a model is to be asked. Raises ConfigError."""
    origins = origins or NoOrigins()
    settings = task_settings(SynthesizeSettings, plain, origins, title=_TITLE, section=SECTION)
    refuse_existing(Path(settings.dir), "synthesize.dir")
    if not settings.model:
        return SynthesizeTask(settings, None)
    documents = {"name": "documents", "path": settings.documents}
    run_keys = {key: value for key, value in plain.items() if key != SECTION}
    config = validate_without_metrics({**run_keys, "dataset": documents}, origins)
    if not isinstance(config.judge, JudgeSettings):
        fix = "judge=llm judge.model=..., or synthesize.model=false"
        expected = "a language model: the embedded judge writes no questions"
        raise ConfigError(_TITLE, [Problem(origins.location("judge"), "judge", config.judge.label, expected, fix)])
    return SynthesizeTask(settings, config)


def run(task: SynthesizeTask, console: Console) -> int:
    """Make the test set, write it and print what is in it. Returns 0.

    Raises ConfigError for wrong templates and for a folder that is not empty, DataError for documents that cannot be read or that give
    too few questions, OutputError; with a model also what a run raises when calls fail.
    """
    settings = task.settings
    documents = read_documents(data_path(settings.documents))
    templates = read_templates(settings.templates)
    draw = QuestionDraw(settings.seed)
    source = SourceDocuments(documents, settings.organisation)
    records = template_cases(source, templates, settings.counts.by_kind(), draw, settings.seed)
    by_model = None
    if task.config is not None:
        by_model = ask_model(task.config, settings, source, draw, records, console)
    card = set_card(settings, documents, templates, by_model)
    digest = write_frozen_set(Path(settings.dir), records, card)
    _print_set(records, settings, digest, console)
    if silent := silent_conflicts(source, templates):
        console.say(
            f"{len(silent):,} of the notes that replace another one give no question: no fact and no heading with a paragraph "
            f"differs between the two. First {silent[0]}"
        )
    return 0


def _print_set(records: Sequence[Record], settings: SynthesizeSettings, digest: str, console: Console) -> None:
    """Print the cases by category and kind, kinds of which there are none, and the words that ask a system."""
    counts = Counter((str(record["category"]), str(record["question_type"])) for record in records)
    rows = [(category, kind, f"{count:,}") for (category, kind), count in counts.items()]
    console.table(("category", "kind", "cases"), rows, left=(0, 1))
    made = {kind for _, kind in counts}
    missing = [kind for kind, count in settings.counts.by_kind().items() if count is None and kind not in made]
    if missing:
        console.say(f"the documents give no questions of the kind {', '.join(missing)}")
    folder = shlex.quote(settings.dir)
    console.say(f"written to {folder}/: {len(records):,} cases, sha256 {digest}")
    console.say("next: read card.md and some of the cases, then ask your system")
    console.say(f"  python -m ragpipe dataset=jsonl dataset.path={folder}/cases.jsonl system=http system.url=...")


def ask_model(
    config: RunConfig,
    settings: SynthesizeSettings,
    documents: SourceDocuments,
    draw: QuestionDraw,
    records: list[Record],
    console: Console,
) -> dict[str, Any]:
    """Reword questions of `records` in place and add free ones to them. Returns what the card says of the model.

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
    """The questions of the first round, and how many of them the call store answers."""
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
    async with open_judge(config, _payer(config), warn=console.warn) as session:
        total, done = len(rewordings) + math.ceil(settings.counts.free / PER_SECTION), Counter[str]()
        asker = Asker(session, lambda: done.update(["questions"]))
        work = lambda: WorkDone(min(done.total(), total), errors=session.usage.failed)  # noqa: E731
        meter = WorkMeter("judging", total, work, session=session)
        progress = console.progress(meter.state, label="asking the model", noun="questions")
        with progress, SignalHandlers(asker, console.warn):
            try:
                await model.rephrase(rewordings, records, asker)
                return await model.ask_freely(settings.counts.free, asker)
            finally:
                await session.drain()


def _payer(config: RunConfig) -> str:
    """The name under which the call store keeps what is paid: the same for the same judge."""
    return f"synthesize-{sha256(config.judge.identity_of_judge())[:12]}"


def set_card(
    settings: SynthesizeSettings, documents: list[Document], templates: Templates, by_model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The card without its counts. `by_model` is what a language model did; None where none was asked."""
    folder = data_path(settings.documents)
    sources = [{"path": item.rel_path, "sha256": sha256_file(folder / item.rel_path)} for item in documents]
    files = [{"path": name, "sha256": sha256_file(path)} for name, path in templates.paths.items()]
    means = "templates" if by_model is None else "templates and a language model"
    return {
        "made": f"Made from {len(documents):,} documents by {means} (task=synthesize).",
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json", exclude={"dir", "seed"}),
        **({} if by_model is None else {"model": dict(by_model)}),
        "templates": files,
        "sources": sources,
    }
