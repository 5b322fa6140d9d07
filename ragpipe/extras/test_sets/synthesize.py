"""`task=synthesize`: a test set from your own documents, by question templates and, when configured, by a language model."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ragpipe.config.run_validation import validate_without_metrics
from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import data_path
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.documents.markdown import read_documents
from ragpipe.engine.task_settings import task_settings
from ragpipe.extras.test_sets.answered_cases import silent_conflicts
from ragpipe.extras.test_sets.drafts import QuestionDraw
from ragpipe.extras.test_sets.frozen_set import refuse_existing, write_frozen_set
from ragpipe.extras.test_sets.question_templates import read_templates
from ragpipe.extras.test_sets.set_card import set_card
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize_settings import SynthesizeSettings
from ragpipe.extras.test_sets.template_cases import Record, template_cases
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.settings import Settings

if TYPE_CHECKING:
    from ragpipe.reports.console import Console

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
    draw = QuestionDraw(settings.seed, settings.per_fact)
    source = SourceDocuments(documents, settings.organisation)
    records = template_cases(source, templates, settings.counts.by_kind(), draw, settings.seed)
    by_model = None
    if task.config is not None:
        from ragpipe.extras.test_sets.synthesis_run import ask_model

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
    missing = [kind for kind, count in settings.counts.by_kind().items() if count is None and not _has(kind, counts)]
    if missing:
        console.say(f"the documents give no questions of the kind {', '.join(missing)}")
    folder = shlex.quote(settings.dir)
    console.say(f"written to {folder}/: {len(records):,} cases, sha256 {digest}")
    console.say("next: read card.md and some of the cases, then ask your system")
    console.say(f"  python -m ragpipe dataset=jsonl dataset.path={folder}/cases.jsonl system=http system.url=...")


def _has(kind: str, counts: Mapping[tuple[str, str], int]) -> bool:
    return any(made == kind for _, made in counts)
