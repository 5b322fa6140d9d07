"""The base classes of metrics: `Metric`, and `Computed` for metrics that ask no judge.

A metric gets one case and a judge and returns scores in their native scale. It knows nothing of caches, retries, rate
limits, batching, files, thresholds or weights. Its parameters are the fields of the class, checked by pydantic; its
prompt steps are the fields annotated `Prompt`, filled from `prompts/<folder>/<step>.<version>.jinja`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ragpipe.core.sample import NOT_RECORDED, PARTS, Case, Chunk, OutputPart, Sample, distinct_references
from ragpipe.core.score import LabelQuestion, Score, ScoreColumns, ScoreSpec, Stage
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import GradedExamples
from ragpipe.judge.question import Judge

Need = Literal["answer", "contexts", "reference", "labels", "citations"]

Prefix = Annotated[
    str, Field(description="Text put before every score name, so that the metric can be in a run twice. Default: none.")
]
NO_ANSWER = "no_answer"
_STATEMENT = "The harbour has four basins."


class Metric(BaseModel):
    """Base of every metric.

    Field `name` is the key under `metrics:`. Class attributes:

    - `needs`: parts of the case without which the metric is skipped, whether they are empty or not recorded.
    - `reads`: parts of the output that it uses too, and that may be empty: an empty part is a finding with a value. The
      metric is skipped where the data set does not record the part (`not_recorded: contexts`). Contexts of which only the ids are
      known are enough where `reads_ids` is true (`not_recorded: context_texts` elsewhere).
    - `measures_retrieval`: it judges the retrieval although it neither needs nor reads contexts. A system that retrieves
      nothing by design gets no score of a metric that needs or reads contexts, or that measures retrieval.
    - `gives`: how its only score is declared; its name is that of the metric. Several are declared by `scores`.
    - `folder`: the prompt folder; by default the name of the module.
    - `shared_prompts`: by step, the folder of another metric whose template it uses. The same question is then asked
      once for both metrics.
    - `answer_types`: by step, the answer types that its templates may ask for. Where there are several, a template names its
      own in the front matter (`answer_type: QuotedClaims`); one that names none asks for the first. The replies of graded
      examples are checked by them.
    - `version`: raise it whenever the same replies would give another value.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[frozenset[OutputPart]] = frozenset()
    reads_ids: ClassVar[bool] = False
    measures_retrieval: ClassVar[bool] = False
    gives: ClassVar[ScoreSpec] = ScoreSpec("")
    folder: ClassVar[str] = ""
    shared_prompts: ClassVar[Mapping[str, str]] = {}
    answer_types: ClassVar[Mapping[str, tuple[type[Answer], ...]]] = {}
    version: ClassVar[int] = 1

    name: str = Field(description="Name of the metric: its key under `metrics`.")
    _label_question: LabelQuestion | None = PrivateAttr(default=None)
    _graded_examples: Mapping[str, GradedExamples] = PrivateAttr(default_factory=dict)

    @property
    def label_question(self) -> LabelQuestion | None:
        """What a person is asked who labels its scores: `label` of its section. No parameter, and no part of any identity."""
        return self._label_question

    def with_label_question(self, label: LabelQuestion | None) -> Self:
        """The same metric with this `label`."""
        self._label_question = label
        return self

    @property
    def graded_examples(self) -> Mapping[str, GradedExamples]:
        """The graded examples in use, by step: those of the versions that `examples` names."""
        return self._graded_examples

    def with_graded_examples(self, examples: Mapping[str, GradedExamples]) -> Self:
        """The same metric with these graded examples, which were checked."""
        self._graded_examples = dict(examples)
        return self

    @classmethod
    def prompt_folder(cls, step: str) -> str:
        """The folder below `prompts/` with the templates of a step."""
        return cls.shared_prompts.get(step) or cls.folder or cls.__module__.rpartition(".")[2]

    @classmethod
    @lru_cache(maxsize=256)  # a class has the same fields for ever, and every case asks for them
    def step_names(cls) -> tuple[str, ...]:
        """Names of all prompt steps, in the order of their fields."""
        return tuple(name for name, f in cls.model_fields.items() if f.annotation in (Prompt, Prompt | None))

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """Steps that these parameters make unnecessary: `Prompt | None` fields, which are not loaded and stay None.

        The parameters are those of the YAML and not validated yet.
        """
        return frozenset()

    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by step."""
        prompts = {step: getattr(self, step) for step in self.step_names()}
        return {step: prompt for step, prompt in prompts.items() if prompt is not None}

    def answer_type(self, step: str) -> type[Answer]:
        """The answer type that the prompt of a step asks for. Raises KeyError for a step that is not in `answer_types`."""
        known = self.answer_types[step]
        name = self.prompts()[step].answer_type
        return next((answer for answer in known if answer.__name__ == name), known[0])

    def files(self) -> Mapping[str, str]:
        """Hashes, by name, of the files that determine its values, prompts excepted. They are part of a run's identity."""
        return {}

    def scores(self) -> tuple[ScoreSpec, ...]:
        """The scores it gives, in the order of the tables. Default: `gives` under the metric's name, by default in 0..1."""
        return (replace(self.gives, name=self.name),)

    @cached_property
    def score_specs(self) -> tuple[ScoreSpec, ...]:
        """Its scores, in declared order, each with the metric's name and stage."""
        return tuple(replace(spec, metric=self.name, stage=self.stage) for spec in self.scores())

    @cached_property
    def score_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(spec.name for spec in self.score_specs)

    @property
    def stage(self) -> Stage:
        """By what it uses: contexts alone are retrieval, contexts with the answer generation, anything else is end to end."""
        used = {*self.required, *self.reads}
        uses_answer = bool(used & {"answer", "citations"})
        if self.measures_retrieval or "contexts" in used:
            return "generation" if uses_answer else "retrieval"
        return "end_to_end"

    @property
    def required(self) -> frozenset[Need]:
        """`needs`, plus what the parameters add to it."""
        return self.needs

    def required_parts(self, case: Case) -> frozenset[OutputPart]:
        """The parts of the output that must be recorded for this case: those it needs or reads."""
        used = self.required | self.reads
        parts = frozenset(part for part in PARTS if part in used)
        return parts | {"context_texts"} if "contexts" in parts and not self.reads_ids else parts

    def sample_skip_reason(self, sample: Sample) -> str | None:
        """Why the metric does not apply to this sample, whatever a system outputs: a required label or reference is
        missing, or its value rules the metric out. None when it applies."""
        if "reference" in self.required and not distinct_references(sample.references):
            return "no_reference_answer"
        labels = (sample.relevant_docs, sample.relevant_chunks, sample.gains, sample.anchors, sample.required_support_groups)
        return "no_relevance_labels" if "labels" in self.required and all(label is None for label in labels) else None

    def unrecorded_part(self, case: Case) -> str | None:
        """`not_recorded: contexts`, `context_texts` or `answer` where the output lacks a part that the metric needs or reads."""
        parts = self.required_parts(case)
        return next((f"{NOT_RECORDED}{part}" for part in PARTS if part in parts and not case.records(part)), None)

    def skip_reason(self, case: Case) -> str | None:
        """Why the metric is skipped for this case, None when it applies.

        The reasons, in this order: `sample_skip_reason`, no recorded citations, `unrecorded_part`, an empty part of the
        output that it needs.
        """
        if reason := self.sample_skip_reason(case.sample):
            return reason
        if "citations" in self.required and case.output.citations is None:
            return "no_citations_recorded"
        if reason := self.unrecorded_part(case):
            return reason
        if "answer" in self.required and not any(c.isalnum() for c in case.answer):
            return NO_ANSWER
        if "contexts" in self.required and not case.contexts:
            return "no_context_retrieved"
        return None

    @property
    def needs_embedder(self) -> bool:
        """Whether it asks for vectors (`judge.embed`). Without an embedder it is skipped: `no_embedder`."""
        return False

    @property
    def encoder_settings(self) -> Any:
        """Settings of the encoder it compares texts with (`judge.match`); None when it has none. A run whose encoder is
        not installed is refused."""
        return None

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        """How the value of one of its scores follows from the score's details, as one line for `task=explain`. None where
        the value is the judge's own, or where there is nothing to calculate."""
        return None

    def with_whole_output(self, case: Case) -> Case | None:
        """The case as it would be if nothing of its output were missing: with a chunk where there is none, and an answer that
        states something where it has no word.

        Values that cost no question count only where the rules judge, if it judges, could answer about this case. None: such
        values are findings of their own and always count.
        """
        chunks = case.output.chunks or [Chunk(id="c1", rank=1, text=_STATEMENT)]
        answer = case.answer if any(c.isalnum() for c in case.answer) else _STATEMENT
        return replace(case, output=case.output.model_copy(update={"chunks": chunks, "answer": answer}))

    def notes(self, case: Case) -> Sequence[str]:
        """Lines about the case that `task=explain` prints once for all scores of the metric: what matched, what is missing."""
        return ()

    async def measure(self, case: Case, judge: Judge) -> Score | Sequence[Score]:
        """Measure one case. Only called when `skip_reason(case)` is None."""
        raise NotImplementedError(f"{type(self).__name__} must define `measure`")


class Computed(Metric):
    """A metric that asks no judge. It gets blocks of cases, so that it can work on arrays; each case is independent.

    `reads_cells`: of chunks it reads the fields alone, so it may get chunks that are named tuples with the fields of a Chunk. Cases
    are then read in a third of the time.
    """

    reads_cells: ClassVar[bool] = False

    def compute(self, cases: Sequence[Case]) -> Sequence[Score | Sequence[Score]]:
        """One entry per case, in order. Cases with a `skip_reason` are not among them."""
        raise NotImplementedError(f"{type(self).__name__} must define `compute`")

    def prepare(self, case: Case) -> Any:
        """What the metric needs of a case for `compute_columns`: a block's cases then need not stay in memory together.
        Default: the case itself."""
        return case

    def compute_columns(self, prepared: Sequence[Any]) -> ScoreColumns | None:
        """What `compute` gives, as columns, from what `prepare` took of each case: for a metric that works on arrays and has
        many scores. None: `compute` is used, on whole cases."""
        return None


def read_cells_alone(metrics: Iterable[Metric]) -> bool:
    """Whether the fields of chunks are all that the metrics read of them."""
    return all(isinstance(metric, Computed) and metric.reads_cells for metric in metrics)


def computed_scores(metrics: Iterable[Metric]) -> set[str]:
    """The names of the scores that no judge decides."""
    return {spec.name for metric in metrics if isinstance(metric, Computed) for spec in metric.scores()}


def run_skip_reason(metric: Metric, case: Case, *, embedder: bool) -> str | None:
    """Why a run skips the metric for this case, None when it applies. `embedder`: whether the run has one.

    Plan, judging and replay all ask here. Reasons that hold for any output come first: a failure of the system takes no
    score away from a metric that does not apply to the question. `unrecorded_part` is checked again, because a metric
    may override `skip_reason`.
    """
    if not case.output.retrieves and (metric.measures_retrieval or "contexts" in metric.required_parts(case)):
        return "retrieves_nothing"
    no_embedder = metric.needs_embedder and not embedder
    if no_embedder or case.output.error:
        return metric.sample_skip_reason(case.sample) or ("no_embedder" if no_embedder else "system_error")
    return metric.skip_reason(case) or metric.unrecorded_part(case)
