"""What a metric is.

A metric gets one case and a judge and returns scores in their native scale. It knows nothing of caches, retries, rate
limits, batching, files, thresholds or weights. Its parameters are the fields of the class, checked by pydantic; its
prompt steps are the fields annotated `Prompt`, filled from `prompts/<folder>/<step>.<version>.jinja`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from ragpipe.judging.judge_protocol import Judge
from ragpipe.prompting.library import Prompt
from ragpipe.schema.judge_answers.answers import Answer
from ragpipe.schema.reference_answers import distinct_references
from ragpipe.schema.sample import NOT_RECORDED, PARTS, Case, OutputPart, Sample
from ragpipe.schema.score import Score, ScoreSpec

Need = Literal["answer", "contexts", "reference", "labels", "citations"]

NO_ANSWER = "no_answer"
_ABSENT: dict[str, str] = {
    "answer": NO_ANSWER,
    "contexts": "no_context_retrieved",
    "reference": "no_reference_answer",
    "labels": "no_relevance_labels",
    "citations": "no_citations_recorded",
}


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One kind of question that a metric expects to ask about a case: `times` times with about these values.

    The plan renders it to estimate tokens.
    """

    prompt: Prompt
    answer: type[Answer]
    values: dict[str, Any] = field(default_factory=dict)
    times: int = 1


class Metric(BaseModel):
    """Base of every metric.

    Class attributes: `needs` are the case fields without which the metric is skipped, be they empty or not recorded;
    `reads` are parts of the output that it reads besides, whose emptiness is a finding: it is skipped where the data set
    does not record them (`not_recorded: contexts`). A system that retrieves nothing by design has no score of a metric that
    needs or reads contexts, nor of one with `measures_retrieval`, which looks at the retrieval in another way. `folder` is the prompt folder, by
    default the module's name; `borrowed` names the folder of each step whose prompt is another metric's, so that the same
    question is asked once for both; `version` is raised whenever the same replies would give another value. Field `name`
    is the key under `metrics:`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[frozenset[OutputPart]] = frozenset()
    measures_retrieval: ClassVar[bool] = False
    folder: ClassVar[str] = ""
    borrowed: ClassVar[Mapping[str, str]] = {}
    version: ClassVar[int] = 1

    name: str

    @classmethod
    def prompt_folder(cls, step: str) -> str:
        """The folder below `prompts/` that holds the templates of a step."""
        return cls.borrowed.get(step) or cls.folder or cls.__module__.rsplit(".", 1)[1]

    @classmethod
    def step_names(cls) -> tuple[str, ...]:
        """Names of all prompt steps, in the order of their fields."""
        return tuple(name for name, f in cls.model_fields.items() if f.annotation in (Prompt, Prompt | None))

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """Steps that these parameters do without: `Prompt | None` fields, which are then not loaded and stay None.

        The parameters are those of the YAML, not yet checked.
        """
        return frozenset()

    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by step."""
        found = {step: getattr(self, step) for step in self.step_names()}
        return {step: prompt for step, prompt in found.items() if prompt is not None}

    def files(self) -> Mapping[str, str]:
        """Hashes of files, other than prompts, that its values rest on, by name: part of a run's identity."""
        return {}

    def scores(self) -> tuple[ScoreSpec, ...]:
        """The scores it gives, in the order of the tables. By default one, 0..1, under the metric's name."""
        return (ScoreSpec(self.name),)

    @cached_property
    def score_names(self) -> tuple[str, ...]:
        """Names of its scores, in declared order."""
        return tuple(spec.name for spec in self.scores())

    @property
    def needed(self) -> frozenset[Need]:
        """`needs`, and what the parameters add to it."""
        return self.needs

    def parts(self, case: Case) -> frozenset[OutputPart]:
        """The parts of the output that must be recorded for this case: those that it needs or reads."""
        return frozenset(part for part in PARTS if part in self.needed or part in self.reads)

    def unlabelled(self, sample: Sample) -> str | None:
        """Why the metric does not apply to this sample, whatever a system gives for it: a label or a reference that it needs
        is missing, or says so. None when it applies."""
        if "reference" in self.needed and not distinct_references(sample.references):
            return _ABSENT["reference"]
        if "labels" in self.needed and not _is_labelled(sample):
            return _ABSENT["labels"]
        return None

    def not_recorded(self, case: Case) -> str | None:
        """`not_recorded: contexts` or `not_recorded: answer` where the output lacks a part that the metric needs or reads."""
        parts = self.parts(case)
        return next((f"{NOT_RECORDED}{part}" for part in PARTS if part in parts and not case.records(part)), None)

    def absent(self, case: Case) -> str | None:
        """Why the metric is skipped for this case, None when it applies: `unlabelled`, no recorded citations,
        `not_recorded`, or an empty part of the output that it needs."""
        if why := self.unlabelled(case.sample):
            return why
        if "citations" in self.needed and case.output.citations is None:
            return _ABSENT["citations"]
        if why := self.not_recorded(case):
            return why
        if "answer" in self.needed and not any(c.isalnum() for c in case.answer):
            return _ABSENT["answer"]
        if "contexts" in self.needed and not case.contexts:
            return _ABSENT["contexts"]
        return None

    @property
    def needs_embedder(self) -> bool:
        """Whether it asks for vectors (`judge.embed`): without an embedder it is skipped, reason `no_embedder`."""
        return False

    @property
    def encoder_settings(self) -> Any:
        """The settings of the encoder that it compares texts with (`judge.match`); None when it has none. A run whose
        encoder is not installed is refused."""
        return None

    def embeds(self, case: Case) -> int:
        """How many texts it expects to ask the embedder about this case, for the plan; at most."""
        return 0

    def asks(self, case: Case) -> Iterable[PlannedCall]:
        """What it expects to ask about this case, for the plan. An upper estimate where it depends on the replies."""
        return ()

    def arithmetic(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        """How the value of one of its scores follows from the score's details, as one line for `task=explain`; None where
        the value is the judge's own or there is nothing to add up."""
        return None

    def notes(self, case: Case) -> Sequence[str]:
        """What `task=explain` says of the case once for all scores of the metric: what was found in it and what is missing."""
        return ()

    async def measure(self, case: Case, judge: Judge) -> Score | Sequence[Score]:
        """Measure one case. Only called when `absent(case)` is None."""
        raise NotImplementedError(f"{type(self).__name__} must define `measure`")


class Computed(Metric):
    """A metric that asks nobody. It gets cases in blocks, so that it may work on arrays; each case stands alone."""

    def compute(self, cases: Sequence[Case]) -> Sequence[Score | Sequence[Score]]:
        """One entry a case, in order. Cases for which `absent` gives a reason are not among them."""
        raise NotImplementedError(f"{type(self).__name__} must define `compute`")


def _is_labelled(sample: Sample) -> bool:
    labels = (
        sample.relevant_docs,
        sample.relevant_chunks,
        sample.gains,
        sample.anchors,
        sample.required_support_groups,
    )
    return any(label is not None for label in labels)
