"""What each metric needs: a judge, a language model, an embedder, labels; and what of it a data set lacks.

Nothing is listed here by metric. Whether a label is needed is asked of the metric itself (`run_skip_reason`): a case that has
everything is stripped of one field at a time. What the rules judge can answer is tried on the same cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import yaml

from ragpipe.core.errors import Skipped
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.core.sample import Anchor, Case, Chunk, Citation, ConflictRule, Expected, Output, Sample, is_unreadable, several
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.question import InProcessJudge
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.metrics.computed.recorded import RecordedMetric
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.recording_judge import Asked, questions_of

Extent = Literal["yes", "partly", "no"]
CANNOT = "_cannot_answer"
"""How the reasons of judges in this process end for what they cannot answer."""


@dataclass(frozen=True, slots=True)
class MetricNeed:
    """What a metric needs.

    - `rules_judge`: whether the rules judge (judge=rules) answers its questions: all of them, some of them (some of
      its scores, or in cases with a reference answer only), none. "yes" for a metric that asks no judge.
    - `needs_embedder`: it asks for vectors.
    - `labels`: fields of the sample or the output without which no case gets a score. `a or b` stands for alternatives.
    - `missing`: those of them that no case of the data has.
    """

    name: str
    rules_judge: Extent
    needs_embedder: bool
    labels: tuple[str, ...]
    missing: tuple[str, ...]


def metric_needs(facts: DataFacts) -> list[MetricNeed]:
    """The needs of every shipped metric with its default parameters, by name, for data with these facts."""
    return [need_of(metric, facts) for metric in default_metrics()]


def need_of(metric: Metric, facts: DataFacts) -> MetricNeed:
    """The needs of one metric with its own parameters, for data with these facts."""
    labels = needed_labels(metric)
    return MetricNeed(
        metric.name,
        answered_extent(metric),
        metric.needs_embedder,
        labels,
        tuple(label for label in labels if not facts.has(label)),
    )


@lru_cache(maxsize=1)
def default_metrics() -> tuple[Metric, ...]:
    """All metrics of `conf/metrics/` with their default parameters, in the order of their names."""
    library = PromptLibrary([prompts_dir()])
    metrics = []
    for path in option_files("metrics").values():
        sections = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader) or {}
        metrics += [load_metric(name, section, library) for name, section in sections.items()]
    return tuple(metrics)


def needed_labels(metric: Metric) -> tuple[str, ...]:
    """The fields without which the metric is skipped for every case; alternatives as one entry, `a or b`.

    A metric that is skipped for every whole case (one of a plugin, about something else) gives an empty tuple.
    """
    if isinstance(metric, RecordedMetric):
        names = dict.fromkeys((spec.source or name).split(".")[0] for name, spec in metric.take.items())
        return (" or ".join(map(recorded_name, names)),) if names else ("recorded",)
    whole = next((case for case in WHOLE_CASES if _applies(metric, case)), None)
    if whole is None:
        return ()
    needed = [field for field in FIELDS if not _applies(metric, field.without(whole))]
    others = [field for field in FIELDS if field not in needed]
    labels = [
        (UNANSWERABLE if field.name == "answerable" and not _applies(metric, ANSWERABLE) else field.name) for field in needed
    ]
    bare = _without(whole, others)
    if not _applies(metric, bare):
        labels.append(" or ".join(field.name for field in others if _applies(metric, _only(whole, others, field))))
    return tuple(filter(None, labels))


def _applies(metric: Metric, case: Case) -> bool:
    return run_skip_reason(metric, case, embedder=True) is None


def _without(case: Case, fields: Iterable[LabelField]) -> Case:
    for field in fields:
        case = field.without(case)
    return case


def _only(case: Case, others: Sequence[LabelField], kept: LabelField) -> Case:
    return _without(case, (field for field in others if field is not kept and not field.name.startswith(kept.name)))


def answered_extent(metric: Metric, judge: InProcessJudge | None = None) -> Extent:
    """How much of a metric a judge in this process can answer (None: the rules judge), tried with the questions that the metric
    asks about cases with and without a reference answer. "yes" where it asks nothing; "no" for a metric that applies to none of
    the cases."""
    if not metric.prompts():
        return "yes"
    reference = next(field for field in FIELDS if field.name == "reference")
    cases = [case for whole in WHOLE_CASES for case in (whole, reference.without(whole)) if _applies(metric, case)]
    cases = [case for case in cases if case.sample.answerable is not False] or cases  # a refusal is asked about by few
    answered = {_are_answered(questions_of(metric, case), judge) for case in cases}
    if answered == {True, False}:
        return "partly"
    return "yes" if answered == {True} else "no"


def gives_value(metric: Metric, cases: Iterable[Case]) -> bool:
    """Whether the rules judge answers every question that the metric asks about at least one of these cases. A case about
    which it asks nothing does not count."""
    asked = (questions_of(metric, case) for case in cases if _applies(metric, case))
    return any(_are_answered(questions) for questions in asked if questions)


def _are_answered(questions: Iterable[Asked], judge: InProcessJudge | None = None) -> bool:
    if judge is None:
        from ragpipe.judge.rules.rules_judge import RulesJudge

        judge = RulesJudge(RulesSettings())
    for asked in questions:
        try:
            judge.answer(asked.prompt, asked.answer, asked.values)
        except Skipped as reason:
            if str(reason).endswith(CANNOT):
                return False
    return True


_TEXT = "The harbour of Altona was opened in 1881. It has four basins."


def _whole(*, answerable: bool, answer: str, rule: ConflictRule = "acknowledge_both") -> Case:
    """A case with every label; `answerable` sets the label of that name and the expected behaviour, `rule` the one for conflicts."""
    sample = Sample(
        id="q",
        question="When was the harbour opened, and how many basins does it have?",
        references=[_TEXT],
        relevant_docs=["d1"],
        relevant_chunks=["c1"],
        gains={"d1": 1},
        anchors=[Anchor(rel_path="a/1.md", role="newer"), Anchor(rel_path="a/2.md", role="older")],
        required_support_groups=[["d1", Anchor(rel_path="a/1.md")]],
        recency_conflict_rule=rule,
        answerable=answerable,
        expected=Expected(
            behavior="answer" if answerable else "reject",
            rejection_reason=None if answerable else "no_context",
            citations=["c1"],
            must_quote=True,
            context_has=2,
        ),
    )
    chunks = [
        Chunk(id="c1", doc_id="d1", rank=1, score=2.0, rel_path="a/1.md", text=_TEXT, policy="quote_only"),
        Chunk(id="c2", doc_id="d2", rank=2, score=1.0, rel_path="a/2.md", text="The town has a railway."),
    ]
    output = Output(
        sample_id="q",
        answer=answer,
        chunks=chunks,
        citations=[Citation(marker="[1]", chunk_id="c1", text=_TEXT), Citation(marker="[2]", chunk_id="c2", text=_TEXT)],
        abstained=not answerable,
        folder_mode="on",
        selected_folders=["a"],
    )
    return Case(sample, output)


_ANSWER = f"- {_TEXT} [1]\n- It has four basins. [2]"
ANSWERABLE = _whole(answerable=True, answer=_ANSWER)
REFUSED_CASE = _whole(answerable=False, answer="I cannot find this in the documents.")
WHOLE_CASES = (ANSWERABLE, REFUSED_CASE, _whole(answerable=True, answer=_ANSWER, rule="cite_newer"))


@dataclass(frozen=True, slots=True)
class LabelField:
    """A field of a sample or an output by its path below the case (`output.chunks[].score`), and the name that it has in data."""

    path: str
    name: str

    def is_in(self, case: Case) -> bool:
        """Whether a case has it."""
        return bool(case.references) if self.name == "reference" else _has(case, self.path)

    def without(self, case: Case) -> Case:
        """The case without it."""
        part, _, path = self.path.partition(".")
        return replace(case, **{part: _emptied(getattr(case, part), path)})


def _has(owner: Any, path: str) -> bool:
    """Whether a field differs from what it is where nobody gave it; of a field of a list whether it does in some entry."""
    name, _, rest = path.partition(".")
    value = getattr(owner, name.removesuffix("[]"))
    if rest:
        return any(_has(part, rest) for part in (value if isinstance(value, list) else [] if value is None else [value]))
    return bool(value != type(owner).model_fields[name].get_default(call_default_factory=True))


def _emptied(owner: Any, path: str) -> Any:
    """A part of a case in which a field is as where nobody gave it."""
    name, _, rest = path.partition(".")
    name = name.removesuffix("[]")
    value = getattr(owner, name)
    if not rest:
        value = type(owner).model_fields[name].get_default(call_default_factory=True)
    elif value is not None:
        value = [_emptied(part, rest) for part in value] if isinstance(value, list) else _emptied(value, rest)
    return owner.model_copy(update={name: value})


_NAMES = {"chunks": "contexts", "references": "reference"}
_PATHS = (
    *(f"output.{name}" for name in ("answer", "chunks", "chunks[].policy", "chunks[].score", "citations", "abstained")),
    *(f"output.{name}" for name in ("folder_mode", "selected_folders")),
    *(f"sample.{name}" for name in ("references", "relevant_docs", "relevant_chunks", "gains", "anchors")),
    *(f"sample.{name}" for name in ("required_support_groups", "anchors[].role", "recency_conflict_rule", "answerable")),
    *(f"sample.expected.{name}" for name in ("behavior", "citations", "must_quote", "context_has", "requires_citations")),
)


def _field(path: str) -> LabelField:
    own = path.partition(".")[2]
    return LabelField(path, _NAMES.get(own) or own.replace("chunks[]", "contexts[]"))


FIELDS: tuple[LabelField, ...] = tuple(map(_field, _PATHS))
"""Every field that a shipped metric may ask for, outputs first."""

UNANSWERABLE = "answerable=false"
"""Names the label of a question that has no answer: `answerable` is there, and false."""


def recorded_name(name: str) -> str:
    """How a recorded value is named among the fields."""
    return f"recorded.{name}"


class DataFacts:
    """Which of the fields some case has: `fields` by name. A recorded value counts as `recorded`, and as `recorded.NAME`."""

    def __init__(self, fields: Iterable[str] = ()):
        self.fields = set(fields)

    @classmethod
    def of(cls, cases: Iterable[Case]) -> DataFacts:
        """The facts of these cases, read to the end."""
        facts = cls()
        for case in cases:
            facts.add(case)
        return facts

    def add(self, case: Case) -> None:
        """Take one more case into account."""
        self.fields.update(field.name for field in FIELDS if field.name not in self.fields and field.is_in(case))
        if case.sample.answerable is False:
            self.fields.add(UNANSWERABLE)
        for name in case.output.recorded:
            self.fields.update(("recorded", recorded_name(name)))

    def has(self, label: str) -> bool:
        """Whether some case has a field; of alternatives (`a or b`) whether some case has any of them."""
        return any(name in self.fields for name in label.split(" or "))


_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 5.0), (0.0, 10.0), (0.0, 100.0))


@dataclass
class SeenVerdicts:
    """What the verdicts of one name were: `n` numbers from `low` to `high`, all of them true or false where `is_boolean`."""

    n: int = 0
    low: float = 0.0
    high: float = 0.0
    is_boolean: bool = True
    unreadable: int = 0

    def add(self, verdict: Any) -> None:
        """Take one verdict into account. Null, where none was given, counts for nothing."""
        if verdict is None:
            return
        if is_unreadable(verdict):
            self.unreadable += 1
            return
        value = float(verdict)
        self.low, self.high = (min(self.low, value), max(self.high, value)) if self.n else (value, value)
        self.is_boolean = self.is_boolean and isinstance(verdict, bool)
        self.n += 1

    def add_recorded(self, value: Any) -> None:
        """Take a recorded value into account, which may be several verdicts: their mean is neither true nor false."""
        verdicts = several(value)
        for verdict in [value] if verdicts is None else verdicts.values():
            self.add(verdict)
        self.is_boolean = self.is_boolean and verdicts is None

    @property
    def scale(self) -> tuple[float, float] | None:
        """The narrowest of 0-1, 1-5, 0-5, 0-10 and 0-100 that holds every value; None where none does: a count without a scale."""
        return next(((low, high) for low, high in _SCALES if low <= self.low and self.high <= high), None)
