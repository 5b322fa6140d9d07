"""The plan of a run before anything is spent: cases, questions, tokens, cost, and what is skipped and why."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.call import Message
from ragpipe.core.errors import PromptTooLong, RagpipeError
from ragpipe.core.sample import NOT_RECORDED, Case
from ragpipe.core.usage import Price
from ragpipe.judge.answer_type import Answer, answer_schema, without_defaults
from ragpipe.judge.capabilities import LOCAL, capabilities
from ragpipe.judge.pricing import CHARACTERS_PER_TOKEN, count_tokens
from ragpipe.judge.prompt import MAX_RENDERED, Prompt, line_of, template_error, without_comments
from ragpipe.judge.provider_state import schema_request
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.metrics.needs import SeenVerdicts
from ragpipe.metrics.recording_judge import Asked, RecordingJudge, expected_tokens, run_in_place
from ragpipe.score.accumulators import Gap, Recording
from ragpipe.store.run_folder import RunFolder, manifest_of
from ragpipe.store.run_tables import read_columns

PER_MESSAGE, PER_REQUEST = 4, 3
"""Tokens that the chat format of OpenAI's models adds to each message, and to the request for the reply to come."""

SchemaPlace = Literal["message", "request", "none"]


@dataclass(frozen=True)
class PromptCounter:
    """Counts prompts as the judge's server does: `count` gives the tokens of a text, `schema` says where the answer's schema
    is counted: in the last `message`, in the `request` beside the messages, or `none`."""

    count: Callable[[str], int]
    schema: SchemaPlace = "none"

    def tokens(self, messages: Sequence[Message], answer: type[Answer]) -> int:
        """The prompt tokens of one question."""
        texts = sum(PER_MESSAGE + self.count(message["content"]) for message in messages)
        return PER_REQUEST + texts + self.schema_tokens(answer)

    def schema_tokens(self, answer: type[Answer]) -> int:
        """The tokens of an answer's schema; 0 for a text answer."""
        if answer.form == "text" or self.schema == "none":
            return 0
        return self.count(_schema_text(answer, self.schema))


@lru_cache(maxsize=64)
def _schema_text(answer: type[Answer], place: SchemaPlace) -> str:
    schema = answer_schema(answer)
    return schema_request(schema) if place == "message" else json.dumps(without_defaults(schema, strict=True))


def prompt_counter(judge: object, *, rough: bool = False) -> PromptCounter:
    """How the judge's server counts a prompt, as far as it is known: by the model's encoding, with the answer's schema where
    the provider bills it. `rough`: four characters a token."""
    if rough or not isinstance(judge, JudgeSettings):
        return PromptCounter(lambda text: len(text) // CHARACTERS_PER_TOKEN)
    mode = judge.output_mode if judge.output_mode != "auto" else capabilities(judge.model, judge.capabilities).modes[0]
    place: SchemaPlace = "message" if mode != "json_schema" else "request"
    if place == "request" and (judge.api_base is not None or judge.provider in LOCAL):
        place = "none"  # such servers constrain the decoding by the schema, and do not show it to the model
    return PromptCounter(lru_cache(maxsize=64)(partial(count_tokens, model=judge.model)), place)  # instructions come again


@dataclass(slots=True)
class TokenSample:
    """Prompt tokens against the characters of the values, over the questions that were rendered: tokens grow in a straight
    line with them, so all others are counted by their own lengths."""

    n: int = 0
    lengths: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    calls: int = 0
    length_of_all: float = 0.0
    replies: float = 0.0

    def add(self, length: int, tokens: int) -> None:
        """Add a question that was rendered."""
        self.n += 1
        self.lengths += length
        self.tokens += tokens
        self.squares += length * length
        self.products += length * tokens

    def add_calls(self, length: int, reply_tokens: float, times: int) -> None:
        """Add questions of this length, rendered or not, and what their replies will have."""
        self.calls += times
        self.length_of_all += times * length
        self.replies += times * reply_tokens

    def scale(self, factor: float) -> None:
        """Let these questions stand for so many times as many. The rendered ones stay what they are."""
        self.calls = round(self.calls * factor)
        self.length_of_all *= factor
        self.replies *= factor

    def tokens_in(self) -> float:
        """Prompt tokens of all questions, by the line of least squares through the rendered ones."""
        if not self.n:
            return 0.0
        mean, mean_length = self.tokens / self.n, self.lengths / self.n
        spread = self.squares - self.n * mean_length**2
        slope = (self.products - self.n * mean_length * mean) / spread if spread > 1e-9 else 0.0
        return self.calls * mean + max(slope, 0.0) * (self.length_of_all - self.calls * mean_length)


RENDERED = 50
"""Questions of one step that are rendered to estimate tokens; all others are counted by the lengths of their texts."""
REPEATED = 4
"""How often a template may show the same values without being rendered to see whether a question is too long."""
FEWEST_REPLIES = 10
"""Replies of the judge to a template from which on their mean length is expected of further ones."""


@dataclass(frozen=True, slots=True)
class PastReplies:
    """Replies of this judge to a template in earlier runs: how many, and their completion tokens on average."""

    n: int
    tokens_out: float


@dataclass(slots=True)
class StepPlan:
    """Expected questions of one prompt step. `shared` more are the same as others about the same question of the data, of an
    earlier metric or method, and are asked once for all. `measured` is the number of earlier replies that `tokens_out` is measured on; 0: it follows from the form of the
    answer. `sample` has the prompts."""

    metric: str
    step: str
    prompt: str
    calls: int = 0
    shared: int = 0
    sample: TokenSample = field(default_factory=TokenSample)
    past: PastReplies | None = None

    @property
    def measured(self) -> int:
        """On how many earlier replies the completion tokens are measured."""
        return self.past.n if self.past is not None and self.past.n >= FEWEST_REPLIES else 0

    @property
    def tokens_in(self) -> int:
        """Prompt tokens of all calls of the step."""
        return round(self.sample.tokens_in())

    @property
    def tokens_out(self) -> int:
        """Completion tokens of all calls of the step."""
        if self.past is not None and self.measured:
            return round(self.calls * self.past.tokens_out)
        return round(self.sample.replies)

    def scale(self, factor: float) -> None:
        """Let these questions stand for so many times as many."""
        self.calls, self.shared = round(self.calls * factor), round(self.shared * factor)
        self.sample.scale(factor)


@dataclass(slots=True)
class MetricPlan:
    """One metric over all cases: how many it applies to, and why it is skipped for the others. `too_long` counts the cases whose
    texts fit into no question: their score will be an error; `unforeseen` those about which it may ask more than is planned."""

    name: str
    cases: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    first_too_long: str = ""
    unforeseen: int = 0
    first_unforeseen: str = ""

    def note(self, case: Case, too_long: str, unforeseen: str) -> None:
        """Count a case with what ended its questions early; empty for nothing."""
        if too_long:
            self.too_long += 1
            self.first_too_long = self.first_too_long or f"{case.key}: {too_long}"
        if unforeseen:
            self.unforeseen += 1
            self.first_unforeseen = self.first_unforeseen or f"{case.key}: {unforeseen}"

    def scale(self, factor: float) -> None:
        """Let these cases stand for so many times as many."""
        self.cases, self.too_long = round(self.cases * factor), round(self.too_long * factor)
        self.unforeseen = round(self.unforeseen * factor)
        self.skipped = Counter({reason: round(count * factor) for reason, count in self.skipped.items()})


@dataclass(slots=True)
class Plan:
    """The whole run, all iterations. Calls are an estimate where they depend on replies.

    `stored` of the questions already have a reply, `missing` (at most) have none; None where the store was not read.
    `embeddings` counts texts to the embedder, stored or not: once per case and metric, whatever the iteration. `gaps` are the parts
    of the outputs that are not recorded, each with the metrics that are skipped for it. `recorded` counts the cases that have a recorded value of
    a name, `verdicts` are what these values were. `sampled` is the number of cases that the other counts are estimated from;
    None where all cases were looked at. `rounds` is the longest chain of questions that wait for each other, at
    most, all iterations, but for questions that are asked again because a reply was of no use.
    """

    cases: int
    iterations: int
    metrics: list[MetricPlan]
    steps: list[StepPlan]
    stored: int | None = None
    missing: int | None = None
    embeddings: int = 0
    gaps: list[tuple[Gap, list[str]]] = field(default_factory=list)
    recorded: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, SeenVerdicts] = field(default_factory=dict)
    rounds: int = 0
    sampled: int | None = None

    @property
    def calls(self) -> int:
        """All questions, with or without a stored reply."""
        return sum(step.calls for step in self.steps)

    @property
    def shared(self) -> int:
        """Questions that several metrics, methods or repeats ask in the same words: each is asked and paid once."""
        return sum(step.shared for step in self.steps)

    @property
    def new_calls(self) -> int:
        """The questions that are really asked: those without a stored reply."""
        return self.calls if self.missing is None else min(self.calls, self.missing)

    @property
    def tokens_in(self) -> int:
        """Prompt tokens of the new calls."""
        return self._of_new_calls(sum(step.tokens_in for step in self.steps))

    @property
    def tokens_out(self) -> int:
        """Completion tokens of the new calls."""
        return self._of_new_calls(sum(step.tokens_out for step in self.steps))

    def usd(self, rates: Price) -> float | None:
        """The price of the new calls, each of mean length: long prompts may cost more. None where it is not known."""
        new = max(1, self.new_calls)
        usd = rates.usd(self.tokens_in / new, self.tokens_out / new)
        return None if usd is None else usd * self.new_calls

    def scale_to(self, cases: int) -> None:
        """Let the cases of this plan, which were taken at even distances, stand for so many."""
        factor = cases / self.cases
        for metric in self.metrics:
            metric.scale(factor)
        for step in self.steps:
            step.scale(factor)
        for gap, _ in self.gaps:
            gap.scale(factor)
        self.embeddings = round(self.embeddings * factor)
        self.recorded = Counter({name: round(count * factor) for name, count in self.recorded.items()})
        self.cases, self.sampled = cases, self.cases

    def _of_new_calls(self, tokens: int) -> int:
        return round(tokens * self.new_calls / self.calls) if self.calls else 0


def make_plan(
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    *,
    iterations: int,
    counter: PromptCounter,
    has_embedder: bool = False,
    past: Mapping[tuple[str, bool], PastReplies] = MappingProxyType({}),
) -> Plan:
    """Let the metrics measure all cases of one iteration once over likely replies, and add up what they ask. Renders few
    prompts and asks no judge. `past` are the judge's earlier replies by the hash of a template, and whether it asks for the
    reasons step by step.

    Raises ConfigError for an answer type that cannot be asked for, PromptError for a template that does not ask for what its
    step reads.
    """
    planner = _Planner(metrics, iterations, counter, has_embedder, past)
    run_in_place(planner.add_all(cases))
    return planner.plan()


class _Planner:
    """Adds up the plan, case by case. Cases of one question of the data stand together: what they all ask is planned once."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        iterations: int,
        counter: PromptCounter,
        has_embedder: bool,
        past: Mapping[tuple[str, bool], PastReplies],
    ):
        self._metrics, self._iterations = metrics, iterations
        self._counter, self._has_embedder, self._past = counter, has_embedder, past
        self._plans = {metric.name: MetricPlan(metric.name) for metric in metrics}
        self._steps: dict[tuple[str, str], StepPlan] = {}
        self._gaps = _Gaps()
        self._recorded: Counter[str] = Counter()
        self._verdicts: dict[str, SeenVerdicts] = {}
        self._cases = self._samples = self._embeddings = self._rounds = 0
        self._sample_id: str | None = None
        # about this sample, by template and length: each with the number of its case
        self._asked: dict[tuple[str, int], list[tuple[int, Asked]]] = {}

    async def add_all(self, cases: Iterable[Case]) -> None:
        for case in cases:
            self._cases += 1
            if case.sample.id != self._sample_id:
                self._sample_id, self._asked = case.sample.id, {}
                self._samples += 1
            self._gaps.recording.add_case(case)
            for name, value in case.output.recorded.items():
                if value is not None:
                    self._recorded[name] += 1
                    self._verdicts.setdefault(name, SeenVerdicts()).add_recorded(value)
            for metric in self._metrics:
                await self._add(metric, case)

    async def _add(self, metric: Metric, case: Case) -> None:
        """Add what a metric asks about a case, or why it is skipped."""
        plan = self._plans[metric.name]
        if reason := run_skip_reason(metric, case, embedder=self._has_embedder):
            plan.skipped[reason] += 1
            self._gaps.skipped(case.output.method, metric.name, reason)
            return
        plan.cases += 1
        if isinstance(metric, Computed):
            return
        questions = _Questions(self, metric)
        judge = RecordingJudge(questions.add, yes=self._samples % 2 == 0)
        await judge.run(metric, case)
        self._embeddings += len(judge.texts)
        self._rounds = max(self._rounds, judge.rounds)
        plan.note(case, questions.too_long, judge.unforeseen)

    def add_question(self, metric: Metric, asked: Asked, is_known: bool) -> bool:
        """Add one question about a case, which waits for no reply but known ones if `is_known`. Returns whether its own is known."""
        prompt, key = asked.prompt, (metric.name, asked.prompt.name)
        if key not in self._steps:  # what cannot be asked for is refused before anything is
            others = [other for other in metric.answer_types.get(prompt.step, ()) if other is not asked.answer]
            schemas = {other.__name__: answer_schema(other) for other in others}
            check_reply_keys(prompt, answer_schema(asked.answer), schemas)
        past = self._past.get((prompt.sha256, bool(getattr(metric, "reasoning", False))))
        step = self._steps.get(key) or StepPlan(metric.name, prompt.step, prompt.signature, past=past)
        length = prompt.length(asked.values)
        is_shared = self._asked_before(asked, length, is_known)
        messages = _rendered(asked, length, always=step.sample.n < RENDERED and not is_shared)
        self._steps[key] = step
        if is_shared:
            step.shared += self._iterations
            return is_known
        step.calls += self._iterations
        step.sample.add_calls(length, expected_tokens(asked.answer, asked.size), self._iterations)
        if messages and step.sample.n < RENDERED:
            step.sample.add(length, self._counter.tokens(messages, asked.answer))
        return False

    def _asked_before(self, asked: Asked, length: int, is_known: bool) -> bool:
        """Whether the same is asked before about this case or, for certain, about another output; if not, it is kept."""
        earlier = self._asked.setdefault((asked.prompt.sha256, length), [])
        for number, item in earlier:
            if (is_known or number == self._cases) and (asked.answer, asked.values) == (item.answer, item.values):
                return True
        earlier.append((self._cases, asked))
        return False

    def plan(self) -> Plan:
        return Plan(
            self._cases,
            self._iterations,
            list(self._plans.values()),
            list(self._steps.values()),
            embeddings=self._embeddings,
            gaps=self._gaps.named(),
            recorded=self._recorded,
            verdicts=self._verdicts,
            rounds=self._rounds * self._iterations,  # one iteration follows the other
        )


@dataclass(slots=True)
class _Questions:
    planner: _Planner
    metric: Metric
    too_long: str = ""
    are_known: bool = True

    def add(self, asked: Asked) -> None:
        """Add one. Raises PromptTooLong."""
        try:
            self.are_known = self.planner.add_question(self.metric, asked, self.are_known)
        except PromptTooLong as error:
            self.too_long = self.too_long or str(error)
            raise


class _Gaps:
    """The parts that outputs do not record, and the metrics that are skipped for it."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._metrics: dict[tuple[str, str], dict[str, None]] = {}

    def skipped(self, method: str, metric: str, reason: str) -> None:
        if reason.startswith(NOT_RECORDED):
            self._metrics.setdefault((method, reason.removeprefix(NOT_RECORDED)), {})[metric] = None

    def named(self) -> list[tuple[Gap, list[str]]]:
        named = ((gap, list(self._metrics.get((gap.method, gap.part), ()))) for gap in self.recording.gaps())
        return [(gap, names) for gap, names in named if names]


def _rendered(asked: Asked, length: int, *, always: bool) -> tuple[Message, ...]:
    """The messages of a question; empty where they are not needed and its values, `length` characters, are short."""
    if always or length * REPEATED > MAX_RENDERED:
        return asked.prompt.render(**asked.values)
    return ()


RUNS = 8
"""The newest runs whose replies are looked at for their lengths."""
_COLUMNS = ["judge", "metric", "template_sha256", "status", "turn", "tokens_out", "sent"]


def past_replies(output_dir: Path, judge: str, effort: str | None = None) -> dict[tuple[str, bool], PastReplies]:
    """By the hash of a template, and whether it asked for the reasons step by step, the replies of a judge (its printable name) in
    the newest run of each experiment. Replies for which the model thought with another `effort` are left out, as are runs that
    cannot be read: a plan needs none."""
    totals: defaultdict[tuple[str, bool], list[float]] = defaultdict(lambda: [0, 0.0])
    folders = [RunFolder(path) for path in output_dir.glob("*/latest")]
    folders = [folder for folder in folders if folder.iteration(1).judge_inputs.is_file()]
    for folder in sorted(folders, key=lambda folder: -folder.iteration(1).judge_inputs.stat().st_mtime)[:RUNS]:
        try:
            identity = manifest_of(folder.manifest)["identity"]
            replies = _by_template(read_columns(folder.iteration(1).judge_inputs, _COLUMNS), judge, effort)
        except (RagpipeError, OSError, ValueError, KeyError):
            continue
        for row in replies.to_pylist():
            reasoning = identity["metrics"].get(row["metric"], {}).get("parameters", {}).get("reasoning", False)
            total = totals[row["template_sha256"], bool(reasoning)]
            total[0] += row["tokens_out_count"]
            total[1] += row["tokens_out_sum"]
    return {asked: PastReplies(int(n), tokens / n) for asked, (n, tokens) in totals.items()}


def _by_template(calls: pa.Table, judge: str, effort: str | None) -> pa.Table:
    """Number and completion tokens of the judge's replies to each template, by metric, without repairs and failures."""
    is_reply = (
        (pc.field("judge") == judge)
        & (pc.field("status") == "ok")
        & (pc.field("turn") == "ask")
        & pc.field("template_sha256").is_valid()
        & pc.field("tokens_out").is_valid()
    )
    sent = pc.fill_null(calls["sent"], "{}")
    wanted = f'"reasoning_effort":"{effort}"' if effort else '"reasoning_effort"'
    has_effort = pc.match_substring(sent, wanted)
    calls = calls.filter(has_effort if effort else pc.invert(has_effort))
    grouped = calls.filter(is_reply).group_by(["template_sha256", "metric"], use_threads=False)
    return grouped.aggregate([("tokens_out", "count"), ("tokens_out", "sum")])


def check_reply_keys(prompt: Prompt, schema: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Raises PromptError, with the line, for a template that asks for another reply than its step reads: it names, in
    quotes, some of the keys that every reply must have, but not all, or a key that only another answer type of the step has
    (`others`, the schemas by name)."""
    others = others or {}
    own = without_comments(prompt.text).partition("\n---\n")[2]
    text = "\n".join((own, *map(without_comments, prompt.includes.values())))
    required = list(dict.fromkeys(_required(schema)))
    missing = [key for key in required if not _names(text, key)]
    last_line = line_of(prompt.text, r"\S[^\n]*\s*\Z")
    if missing and len(missing) < len(required):
        expected = f"the keys {', '.join(required)}, each in double quotes"
        raise template_error(prompt.path, last_line, f"keys of the reply without {', '.join(missing)}", expected)
    values = {value for one in (schema, *others.values()) for value in _enumerated(one)}
    for name, other in others.items():
        foreign = [key for key in dict.fromkeys(_required(other)) if key not in required and key not in values]
        if named := [key for key in foreign if _names(text, key)]:
            expected = f"answer_type: {name} in the front matter, or no such key"
            raise template_error(prompt.path, last_line, f"the key {named[0]} of another answer type", expected)


def _names(text: str, key: str) -> bool:
    return re.search(rf"[\"'`]{re.escape(key)}[\"'`]", text) is not None


def _required(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from node.get("required", ())
        for name, value in node.items():
            if name != "required":
                yield from _required(value)
    elif isinstance(node, list):
        for item in node:
            yield from _required(item)


def _enumerated(node: Any) -> Iterator[str]:
    """The values among which a schema lets a judge choose."""
    if isinstance(node, Mapping):
        yield from node.get("enum", ())
    parts: Sequence[Any] = list(node.values()) if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for part in parts:
        yield from _enumerated(part)
