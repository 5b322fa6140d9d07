"""`task=synthesize`: a test set from your own documents, by question templates and, when configured, by a language model."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import data_path
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.data.markdown import Document, read_documents
from ragpipe.extras.test_sets.answered_cases import silent_conflicts
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.frozen_set import refuse_existing, write_frozen_set
from ragpipe.extras.test_sets.model_questions import PER_SECTION, ModelQuestions
from ragpipe.extras.test_sets.question_templates import Kind, Templates, read_templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.template_cases import Record, template_cases
from ragpipe.judge.settings import JudgeSettings
from ragpipe.report.console import Console
from ragpipe.runs.own_questions import OpenJudge, OwnQuestions
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.validation import validate_without_metrics

SECTION = "synthesize"
_TITLE = "task=synthesize is wrong; nothing was written"
Count = Annotated[int, Field(ge=0, le=100_000)] | None


class SynthesizeSettings(Settings):
    """What a test set is made from."""

    documents: str = Field(min_length=1, description="Folder of Markdown documents; `package:handbook` is the shipped one.")
    dir: str = Field(min_length=1, description="Folder of the test set. It is made; nothing in it is overwritten.")
    counts: dict[Kind | Literal["free"], Count] = Field(
        default_factory=dict,
        description=(
            "Number of cases by kind: exact, and nothing is written where the documents give fewer. null, or not named: up to 10. `free`: "
            "questions that a language model asks about sections, 0 if not named; needs `model: true`."
        ),
    )
    templates: list[str] = Field(
        default_factory=list,
        description="Template files: names of shipped ones (complete.v1) and paths of your own. Default: all shipped ones.",
    )
    organisation: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name of the organisation that the documents are about, for policy attempts. null: none is named.",
    )
    model: bool = Field(
        default=False, description="Whether a language model (`judge`) words questions anew and asks free ones."
    )
    rephrase: float = Field(
        default=1.0, ge=0, le=1, description="With a model: share of the template questions that it words anew, 0 to 1."
    )

    @model_validator(mode="after")
    def _free_needs_a_model(self) -> SynthesizeSettings:
        if self.free and not self.model:
            raise ValueError("counts.free needs a language model: synthesize.model=true judge=llm judge.model=...")
        return self

    @property
    def free(self) -> int:
        """How many questions a language model asks about sections."""
        return self.counts.get("free") or 0

    def by_kind(self) -> dict[Kind, int | None]:
        """The counts of the kinds that templates make, in their order."""
        return {kind: self.counts.get(kind) for kind in get_args(Kind)}


@dataclass(frozen=True)
class SynthesizeTask:
    """The settings, the run's seed, and the run configuration whose judge is asked; None where no model is."""

    settings: SynthesizeSettings
    seed: int
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
    seed = given if isinstance(given := plain.get("seed"), int) else 0
    if not settings.model:
        return SynthesizeTask(settings, seed, None)
    documents = {"name": "documents", "path": settings.documents}
    run_keys = {key: value for key, value in plain.items() if key != SECTION}
    config = validate_without_metrics({**run_keys, "dataset": documents}, origins)
    if not isinstance(config.judge, JudgeSettings):
        fix = "judge=llm judge.model=..., or synthesize.model=false"
        expected = "a language model: the rules judge writes no questions"
        raise ConfigError(_TITLE, [Problem(origins.location("judge"), "judge", config.judge.label, expected, fix)])
    return SynthesizeTask(settings, seed, config)


def run(task: SynthesizeTask, console: Console) -> int:
    """Make the test set, write it and print what is in it. Returns 0.

    Raises ConfigError for wrong templates and for a folder that is not empty, DataError for documents that cannot be read or that give
    too few questions, OutputError; with a model also what a run raises when calls fail.
    """
    settings = task.settings
    documents = read_documents(data_path(settings.documents))
    templates = read_templates(settings.templates)
    draw = QuestionDraw(task.seed)
    source = SourceDocuments(documents, settings.organisation)
    records = template_cases(source, templates, settings.by_kind(), draw, task.seed)
    by_model = ask_model(task.config, settings, source, draw, records, console) if task.config is not None else None
    card = set_card(settings, task.seed, documents, templates, by_model)
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
    if missing := [kind for kind, count in settings.by_kind().items() if count is None and kind not in made]:
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
    questions = OwnQuestions(config, SECTION, console)
    model = ModelQuestions(config.prompts, documents, draw, config.seed, config.judge.label)
    rewordings, n_sections = model.rewordings(records, settings.rephrase), math.ceil(settings.free / PER_SECTION)
    steps = (rewordings, model.section_questions()[:n_sections])
    planned = {lot[0].prompt.step: [question.planned() for question in lot] for lot in steps if lot}
    more = ["a section whose questions do not hold is replaced by another one: one more call each"]
    questions.announce(planned, cases=sum(map(len, steps)), notes=more if settings.free else ())

    async def ask(judge: OpenJudge) -> list[Record]:
        await model.rephrase(rewordings, records, judge)
        return await model.ask_freely(settings.free, judge)

    records += questions.ask(ask, total=len(rewordings) + n_sections, label="asking the model")
    for name, tally in (("reworded", model.rephrased), ("free questions", model.free)):
        if tally.asked:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.dropped.items()) if count)
            console.say(f"{name}: {tally.kept:,} of {tally.asked:,} kept" + (f"; dropped: {reasons}" if reasons else ""))
    prompts = [model.rephrase_prompt.signature, model.ask_prompt.signature]
    tallies = {"rephrased": model.rephrased.as_card(), "free": model.free.as_card()}
    return {"label": config.judge.label, "prompts": prompts, **tallies}


def set_card(
    settings: SynthesizeSettings, seed: int, documents: list[Document], templates: Templates, by_model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The card without its counts. `by_model` is what a language model did; None where none was asked."""
    folder = data_path(settings.documents)
    sources = [{"path": item.rel_path, "sha256": sha256_file(folder / item.rel_path)} for item in documents]
    files = [{"path": name, "sha256": sha256_file(path)} for name, path in templates.paths.items()]
    means = "templates" if by_model is None else "templates and a language model"
    return {
        "made": f"Made from {len(documents):,} documents by {means} (task=synthesize).",
        "seed": seed,
        "settings": settings.model_dump(mode="json", exclude={"dir"}),
        **({} if by_model is None else {"model": dict(by_model)}),
        "templates": files,
        "sources": sources,
    }
