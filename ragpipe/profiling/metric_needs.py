"""What each metric needs: a judge, a language model, an embedder, labels; and what of it a data set lacks.

Nothing is listed here by metric. Whether a label is needed is asked of the metric itself (`run_skip_reason`): a case that has
everything is stripped of one field at a time. What the embedded judge can answer is tried on the same cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import yaml

from ragpipe.core.errors import Skipped
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.judging.any_judge import InProcessJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.metrics.computed.recorded import RecordedMetric
from ragpipe.metrics.from_config import load_metric
from ragpipe.profiling.label_fields import FIELDS, UNANSWERABLE, DataFacts, LabelField, recorded_name
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.sample import Anchor, Case, Chunk, Citation, ConflictRule, Expected, Output, Sample

Extent = Literal["yes", "partly", "no"]
CANNOT = "_cannot_answer"
"""How the reasons of judges in this process end for what they cannot answer."""


@dataclass(frozen=True, slots=True)
class MetricNeed:
    """What a metric needs.

    - `embedded_judge`: whether the embedded judge (judge=evidence) answers its questions: all of them, some of them (some of
      its scores, or in cases with a reference answer only), none. "yes" for a metric that asks no judge.
    - `needs_embedder`: it asks for vectors.
    - `labels`: fields of the sample or the output without which no case gets a score. `a or b` stands for alternatives.
    - `missing`: those of them that no case of the data has.
    """

    name: str
    embedded_judge: Extent
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
        embedded_extent(metric),
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
        sections = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
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
    labels = [_named(field, metric) for field in needed]
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


def _named(field: LabelField, metric: Metric) -> str:
    """The field's name; `answerable=false` where the metric is about questions without an answer only."""
    return UNANSWERABLE if field.name == "answerable" and not _applies(metric, ANSWERABLE) else field.name


def embedded_extent(metric: Metric, judge: InProcessJudge | None = None) -> Extent:
    """How much of a metric a judge in this process can answer (None: the embedded judge), tried with the questions that the metric
    plans for cases with and without a reference answer. "yes" where it asks nothing; "no" for a metric that applies to none of
    the cases."""
    if not metric.prompts():
        return "yes"
    reference = next(field for field in FIELDS if field.name == "reference")
    cases = [case for whole in WHOLE_CASES for case in (whole, reference.without(whole)) if _applies(metric, case)]
    cases = [case for case in cases if case.sample.answerable is not False] or cases  # a refusal is asked about by few
    answered = {_is_answered(metric, case, judge) for case in cases}
    if answered == {True, False}:
        return "partly"
    return "yes" if answered == {True} else "no"


def gives_value(metric: Metric, cases: Iterable[Case]) -> bool:
    """Whether the embedded judge answers every question that the metric plans for at least one of these cases. A case about
    which it asks nothing does not count."""
    asked = (case for case in cases if _applies(metric, case) and next(iter(metric.planned_calls(case)), None))
    return any(_is_answered(metric, case) for case in asked)


def _is_answered(metric: Metric, case: Case, judge: InProcessJudge | None = None) -> bool:
    """Whether a judge in this process answers every question that the metric plans for a case."""
    if judge is None:
        from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge

        judge = HeuristicJudge(HeuristicSettings())
    for call in metric.planned_calls(case):
        try:
            judge.answer(call.prompt, call.answer, call.values)
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
        citations=[
            Citation(marker="[1]", chunk_id="c1", text=_TEXT),
            Citation(marker="[2]", chunk_id="c2", text=_TEXT),
        ],
        abstained=not answerable,
        folder_mode="on",
        selected_folders=["a"],
    )
    return Case(sample, output)


_ANSWER = f"- {_TEXT} [1]\n- It has four basins. [2]"
ANSWERABLE = _whole(answerable=True, answer=_ANSWER)
REFUSED_CASE = _whole(answerable=False, answer="I cannot find this in the documents.")
WHOLE_CASES = (ANSWERABLE, REFUSED_CASE, _whole(answerable=True, answer=_ANSWER, rule="cite_newer"))
