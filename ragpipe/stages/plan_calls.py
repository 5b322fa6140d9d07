"""What a run will do, before anything is spent: cases, questions, tokens, money, and what is skipped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ragpipe.core.errors import PromptTooLong
from ragpipe.metrics.base import Metric, PlannedCall, run_skip_reason
from ragpipe.metrics.shared.multi_reference import ReferenceMetric
from ragpipe.prompting.template_language import MAX_RENDERED
from ragpipe.schema.call import Message
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.reference_answers import ReferenceRule
from ragpipe.schema.sample import NOT_RECORDED, Case
from ragpipe.scoring.unrecorded_fields import Gap, Recording
from ragpipe.stages.resume import ResumedCases

RENDERED = 50
"""Questions of one step that are rendered to estimate tokens; the rest is scaled from them."""
REPEATED = 4
"""How often a template may show the same values without being rendered to see whether a question is too long."""
TOKENS_OUT = 150
"""Completion tokens assumed for one reply: a reply's length is not known before it is asked for."""


@dataclass(slots=True)
class StepPlan:
    """Expected questions of one prompt step. `shared` more are the same as those of an earlier step and are asked once for
    both. `tokens_in` is scaled from the first `RENDERED` questions."""

    metric: str
    step: str
    prompt: str
    calls: int = 0
    shared: int = 0
    rendered: int = 0
    tokens_rendered: int = 0

    @property
    def tokens_in(self) -> int:
        return round(self.calls * self.tokens_rendered / self.rendered) if self.rendered else 0


@dataclass(slots=True)
class MetricPlan:
    """One metric over all cases: how many it applies to, and why it is skipped for the others. `too_long` are cases whose
    texts fit no question, with the first of them: their score will be an error."""

    name: str
    cases: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    first_too_long: str = ""


@dataclass(slots=True)
class SeveralReferences:
    """Cases with several references, and the metrics that measure by them in one and the same way."""

    cases: int = 0
    metrics: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """The whole run, all iterations. Calls are an upper estimate where they depend on replies.

    `stored` of the questions already have a reply, `missing` (at most) have none; None where nobody looked. `embeddings`
    are texts to the embedder, stored or not; a text counts once a case and metric, whatever the iteration. `several` are the
    cases with several references, by which of them count. `gaps` are the parts of the outputs that are not recorded, each
    with the metrics that are skipped for it. `resumed` is what became of the replies of finished cases.
    """

    cases: int
    iterations: int
    metrics: list[MetricPlan]
    steps: list[StepPlan]
    stored: int | None = None
    missing: int | None = None
    embeddings: int = 0
    several: dict[ReferenceRule, SeveralReferences] = field(default_factory=dict)
    gaps: list[tuple[Gap, list[str]]] = field(default_factory=list)
    resumed: ResumedCases = field(default_factory=ResumedCases)

    @property
    def calls(self) -> int:
        return sum(step.calls for step in self.steps)

    @property
    def shared(self) -> int:
        """Questions that several metrics ask in the same words: each is counted, asked and paid once."""
        return sum(step.shared for step in self.steps)

    @property
    def new_calls(self) -> int:
        """The questions that are really asked: those without a stored reply."""
        return self.calls if self.missing is None else min(self.calls, self.missing)

    @property
    def tokens_in(self) -> int:
        """Prompt tokens of the new calls."""
        whole = sum(step.tokens_in for step in self.steps)
        return round(whole * self.new_calls / self.calls) if self.calls else 0

    @property
    def tokens_out(self) -> int:
        """Completion tokens of the new calls."""
        return self.new_calls * TOKENS_OUT


def make_plan(
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    *,
    iterations: int,
    count_tokens: Callable[[str], int],
    embedder: bool = False,
) -> Plan:
    """Walk over all cases once and add up what the metrics declare. Renders few prompts and asks nobody. Raises
    ConfigError for an answer type that cannot be asked for.

    `embedder`: whether the run has one.
    """
    plans = {metric.name: MetricPlan(metric.name) for metric in metrics}
    steps: dict[tuple[str, str], StepPlan] = {}
    several: dict[ReferenceRule, SeveralReferences] = {}
    total = embeddings = 0
    gaps = _Gaps()
    for case in cases:
        total += 1
        gaps.recording.add_case(case)
        asked: dict[str, list[PlannedCall]] = {}
        applying: list[Metric] = []
        for metric in metrics:
            if reason := run_skip_reason(metric, case, embedder=embedder):
                plans[metric.name].skipped[reason] += 1
                gaps.skipped(case.output.method, metric.name, reason)
                continue
            applying.append(metric)
            plans[metric.name].cases += 1
            embeddings += metric.planned_embeddings(case)
            for ask in metric.planned_calls(case):
                answer_schema(ask.answer)  # a type that cannot be asked for is refused before anything is
                key = (metric.name, ask.prompt.name)
                step = steps.get(key) or StepPlan(metric.name, ask.prompt.step, ask.prompt.signature)
                shared = _asked_before(ask, asked)
                try:
                    messages = _rendered(ask, always=step.rendered < RENDERED and not shared)
                except PromptTooLong as error:
                    plan = plans[metric.name]
                    plan.first_too_long = plan.first_too_long or f"{case.key}: {error}"
                    plan.too_long += 1
                    break
                steps[key] = step
                if shared:
                    step.shared += ask.times * iterations
                    continue
                step.calls += ask.times * iterations
                if messages and step.rendered < RENDERED:
                    step.rendered += 1
                    step.tokens_rendered += sum(count_tokens(message["content"]) for message in messages)
        _count_several(case, applying, several)
    found = (list(plans.values()), list(steps.values()))
    return Plan(total, iterations, *found, embeddings=embeddings, several=several, gaps=gaps.named())


class _Gaps:
    """What the outputs do not record, and which metrics are skipped for it."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._metrics: dict[tuple[str, str], dict[str, None]] = {}

    def skipped(self, method: str, metric: str, reason: str) -> None:
        if reason.startswith(NOT_RECORDED):
            self._metrics.setdefault((method, reason.removeprefix(NOT_RECORDED)), {})[metric] = None

    def named(self) -> list[tuple[Gap, list[str]]]:
        """The gaps that a metric is skipped for."""
        named = ((gap, list(self._metrics.get((gap.method, gap.part), ()))) for gap in self.recording.gaps())
        return [(gap, names) for gap, names in named if names]


def _count_several(case: Case, metrics: Sequence[Metric], several: dict[ReferenceRule, SeveralReferences]) -> None:
    """Count a case with several references once for each rule by which a metric measures it."""
    if len(case.references) < 2:
        return
    using = [metric for metric in metrics if isinstance(metric, ReferenceMetric) and metric.uses_references]
    for rule in dict.fromkeys(metric.rule for metric in using):
        found = several.setdefault(rule, SeveralReferences())
        found.cases += 1
        found.metrics += [m.name for m in using if m.rule == rule and m.name not in found.metrics]


def _asked_before(ask: PlannedCall, asked: dict[str, list[PlannedCall]]) -> bool:
    """Whether an earlier metric asks the same question about this case; if not, it is remembered in `asked`."""
    earlier = asked.setdefault(ask.prompt.sha256, [])
    if any((ask.answer, ask.times, ask.values) == (one.answer, one.times, one.values) for one in earlier):
        return True
    earlier.append(ask)
    return False


def _rendered(ask: PlannedCall, *, always: bool) -> tuple[Message, ...]:
    """The messages of a question; none where nobody needs them and its values are short. Raises PromptTooLong."""
    if always or ask.prompt.length(ask.values) * REPEATED > MAX_RENDERED:
        return ask.prompt.render(**ask.values)
    return ()
