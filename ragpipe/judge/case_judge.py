"""The judge as one metric sees it for one case: render, ask, parse, repair once, and record every use of a reply.

The order in which the items of a question are shown to the judge, drawn by a seed, and the way back from its reply.

Judges favour what stands first or last. With `judge.shuffle_seed` the contexts, claims, citations, rules and references of a
question stand in an order of their own, and the numbers of the reply are those of the original items again before a metric
sees them. This is the one place for both: metrics know nothing of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragpipe.core.call import Call, Message, Payload
from ragpipe.core.digest import sha256
from ragpipe.core.errors import JudgeError, PromptTooLong, Skipped
from ragpipe.core.fences import printable_texts
from ragpipe.core.sample import AnyReference, CaseKey, Chunk
from ragpipe.judge.answer_parsing import Unparsable, read_answer
from ragpipe.judge.answer_type import Answer, ItemRole, answer_schema
from ragpipe.judge.http_responses import ODD_END, is_odd_end, replace_surrogates
from ragpipe.judge.pricing import PROMPT_CUT, is_cut
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import MATCH, STEP, Question
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.vectors import Floats, TokenMatch, Vector, pair_payload, text_payload

A = TypeVar("A", bound=Answer)

_REPAIR = (
    "Your reply could not be read: {fault}\n"
    "Answer the same question again, with exactly the content that was asked for and in exactly the form that was asked "
    "for, and nothing else."
)


@dataclass(frozen=True, slots=True)
class JudgeCallUse:
    """One use of a reply: a row of `judge_inputs.parquet`.

    `answer` names the type that the reply is parsed into. `prompt` is None where no template was rendered: for a text
    that is embedded or a pair that is matched.
    """

    metric: str
    step: str
    turn: str
    prompt: Prompt | None
    payload: Payload
    answer: str
    call: Call
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class CaseJudge:
    """The judge as one metric sees it for one case (`ragpipe.judge.question.Judge`).

    `uses` are the questions asked so far, `truncated` the texts of which the embedder read only the beginning. `repeat` is which repetition of its questions this is; None: that of
    the session.
    """

    session: JudgeSession
    case: CaseKey
    metric: str
    uses: list[JudgeCallUse] = field(default_factory=list)
    truncated: set[str] = field(default_factory=set)
    repeat: int | None = None

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        """Render the prompt, ask it and parse the reply; an unparsable reply is repaired once."""
        seed, order = self.session.shuffle_seed, None
        if seed is not None:
            order = shown_order(prompt, values, answer, seed, self.case.sample_id)
            values = dict(order.values)
        try:
            messages = prompt.render(**values)
        except PromptTooLong as error:
            raise JudgeError("too_long", f"{self.case}: {self.metric}/{error}") from error
        payload = Payload(messages, answer_schema(answer))
        question = self._question(payload, answer, prompt)
        computed = await self.session.compute(question, prompt, values)
        call = computed or await self.session.reply(question)
        material = () if computed else _echoable_material(prompt, payload, values)
        try:
            parsed = self._read(prompt, "ask", payload, call, answer, material)
        except Unparsable as error:
            parsed = await self._repair(prompt, payload, call, answer, error, material)
        return parsed if order is None else order.restored(parsed)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        """One vector per text, in order; equal texts are asked once."""
        embedder = self.session.embedder
        if embedder is None:
            raise Skipped("no_embedder")
        unique = list(dict.fromkeys(texts))
        tasks = (self._embed_text(embedder, text) for text in unique)
        vectors: dict[str, Floats] = {}
        for text, result in zip(unique, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if isinstance(result, BaseException):
                raise result
            vectors[text] = result
        return [vectors[text] for text in texts]

    def was_truncated(self, text: str, /) -> bool:
        """Whether the embedder read only the beginning of this text."""
        return text in self.truncated

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        """The token match of two texts. Raises Skipped (`no_corpus`) where `idf` is wanted and the run has no corpus."""
        corpus = self.session.corpus if idf else None
        if idf and corpus is None:
            raise Skipped("no_corpus")
        encoder_session = self.session.encoder_session(encoder, corpus)
        weighted_by = corpus.digest if corpus else None
        payload = pair_payload(replace_surrogates(candidate)[0], replace_surrogates(reference)[0], weighted_by)
        call = await self._reply_in_first_iteration(encoder_session, payload, TokenMatch, MATCH)
        try:
            return self._read(None, "ask", payload, call, TokenMatch)
        except Unparsable as error:
            raise JudgeError("unparsable", f"{MATCH}: {error}", text=call.text) from error

    async def _embed_text(self, embedder: JudgeSession, text: str) -> Floats:
        payload = text_payload(replace_surrogates(embedder.prefix + text)[0])
        call = await self._reply_in_first_iteration(embedder, payload, Vector, STEP)
        try:
            values: Floats = self._read(None, "ask", payload, call, Vector).values
        except Unparsable as error:
            raise JudgeError("unparsable", f"{STEP}: {error}", text=call.text) from error
        if call.finish_reason == "length":
            self.truncated.add(text)
        return values

    async def _reply_in_first_iteration(self, session: JudgeSession, payload: Payload, answer: type[Answer], step: str) -> Call:
        """The reply to a question whose key names iteration 1: vectors depend on texts and model alone."""
        asker = f"{self.case} / {self.metric} / {step}"
        return await session.reply(session.question(payload, answer, 1, asker, asked_in=self.case.iteration))

    async def _repair(
        self, prompt: Prompt, payload: Payload, unparsable: Call, answer: type[A], error: Unparsable, material: Sequence[str]
    ) -> A:
        """Ask once more and say what was wrong: at temperature 0 the same question would give the same bad reply."""
        messages: list[Message] = [*payload.messages]
        messages.append({"role": "assistant", "content": unparsable.text or ""})
        messages.append({"role": "user", "content": _REPAIR.format(fault=error)})
        repair = Payload(tuple(messages), payload.schema)
        question = self._question(repair, answer, prompt)
        unread: JudgeCallUse | None = None
        for again in (False, True) if self.session.retry_errors else (False,):
            call = await self.session.reply(question, again=again)
            if unread is not None:  # another reply takes its place
                self.uses = [use for use in self.uses if use is not unread]
            try:
                return self._read(prompt, "repair", repair, call, answer, material)
            except Unparsable as second_error:
                error, unread = second_error, self.uses[-1]
        raise JudgeError("unparsable", f"{prompt.step}: {error} (also after one repair)", text=call.text) from error

    def _question(self, payload: Payload, answer: type[Answer], prompt: Prompt) -> Question:
        asker = f"{self.case} / {self.metric} / {prompt.step}"
        return self.session.question(payload, answer, self.case.iteration, asker, repeat=self.repeat)

    def _read(
        self, prompt: Prompt | None, turn: str, payload: Payload, call: Call, answer: type[A], material: Sequence[str] = ()
    ) -> A:
        flags: tuple[str, ...] = ()
        try:
            parsed, flags = _parse(call, answer, material)
            return parsed
        except Unparsable:
            flags = ("unparsable",)
            raise
        finally:
            step = prompt.step if prompt else STEP if answer is Vector else MATCH
            served = self.session.served if prompt else None  # vectors and pairs come from another session's model
            flags += served.flags(call) if served else ()
            if served and call.status == "ok" and call.attempts and is_cut(payload.messages, call.tokens_in):
                flags += (PROMPT_CUT,)
            if served and call.status == "ok" and call.attempts and is_odd_end(call.finish_reason):
                flags += (ODD_END,)
            self.uses.append(JudgeCallUse(self.metric, step, turn, prompt, payload, answer.__name__, call, flags))


def _echoable_material(prompt: Prompt, payload: Payload, values: Mapping[str, Any]) -> Sequence[str]:
    """The texts under test that the question showed, of which a reply might be an echo: none where no message has a brace."""
    if any("{" in message["content"] for message in payload.messages):
        return prompt.material(payload.messages, values)
    return ()


def _parse(call: Call, answer: type[A], material: Sequence[str]) -> tuple[A, tuple[str, ...]]:
    if call.status == "skipped":
        raise Skipped(call.message or "the judge cannot answer")
    if call.status != "ok":
        raise JudgeError(call.status, call.message or "the judge gave no answer", text=call.text)  # type: ignore[arg-type]
    if call.output_mode == "computed":
        return answer.model_validate_json(call.text or ""), ()
    return read_answer(call.text or "", answer, material)


_LISTED: tuple[ItemRole, ...] = ("claims", "citations", "rules")
_NUMBERS = "numbers"
_MARK = re.compile(
    r"[\[【［]\s*\^?\d{1,3}\s*[\]】］,;–-]|\(\d{1,2}\)|\b(?:contexts?|passages?|sources?|documents?|chunks?|excerpts?)\s*(?:no\.?\s*|#\s*)?\d",
    re.I,
)
"""What a text may call a context by its number: `[2]`, `(2)`, `source 2`."""


@dataclass(frozen=True, slots=True)
class ShownOrder:
    """The values of a question as they are shown, and by role the original number (from 1) of the item at each place.

    A role without an entry is shown in its own order, or under numbers that the question shows beside the items.
    """

    values: Mapping[str, Any]
    numbers: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def restored(self, answer: A) -> A:
        """The answer with the numbers of the original items. A number that no item was shown under stays as it is, so that
        whoever checks numbers still finds it wrong."""
        if not self.numbers:
            return answer
        updated = {name: self._restored_field(answer, name, value) for name, value in answer}
        return answer.model_copy(update=updated)

    def _restored_field(self, answer: Answer, name: str, value: Any) -> Any:
        if numbers := self.numbers.get(answer.numbered_items.get(name, "")):
            if isinstance(value, list):
                return [_original(number, numbers) for number in value]
            return _original(value, numbers)
        if isinstance(value, list):
            return [self.restored(item) if isinstance(item, Answer) else item for item in value]
        return self.restored(value) if isinstance(value, Answer) else value


def shown_order(prompt: Prompt, values: Mapping[str, Any], answer: type[Answer], seed: int, sample_id: str) -> ShownOrder:
    """The values of a question in an order drawn from sha256(seed, sample, template's folder and step, variable): the same
    for all methods and iterations of a sample. Shuffled are the items of the roles sources, claims, citations and rules, and
    several references that count alike; not earlier turns, worked examples, grades of a rubric, and items whose number the
    answer type does not declare. The numbers that an answer's marks give to contexts move with them (`numbers`). A template
    that numbers contexts by their place, beside a text that names one by its number, keeps them in order."""
    if _has_undeclared_numbers(answer):
        return ShownOrder(values)
    draw = f"{seed}\n{sample_id}\n{prompt.name}"
    updated = dict(values)
    numbers: dict[str, Sequence[int]] = {}
    _shuffle_sources(prompt, updated, numbers, draw)
    for name, role in prompt.roles.items():
        items = updated.get(name)
        if isinstance(items, AnyReference):
            updated[name] = AnyReference([items.texts[place] for place in _drawn(draw, name, len(items.texts))])
        elif role in _LISTED and isinstance(items, list | tuple) and [*prompt.roles.values()].count(role) == 1:
            places = _drawn(draw, name, len(items))
            updated[name] = [items[place] for place in places]
            numbers[role] = [place + 1 for place in places]
    return ShownOrder(updated, numbers)


def _drawn(draw: str, name: str, count: int) -> list[int]:
    """The original places, from 0, in an order drawn by hashes: the same on every machine and in every version of Python."""
    return sorted(range(count), key=lambda place: sha256(f"{draw}\n{name}\n{place}"))


def _shuffle_sources(prompt: Prompt, values: dict[str, Any], numbers: dict[str, Sequence[int]], draw: str) -> None:
    """Shuffle each list of contexts within itself, and what refers to its places with it."""
    groups = [name for name, role in prompt.roles.items() if role == "sources" and _holds_chunks(values.get(name))]
    others = [name for name, value in values.items() if name not in groups and _holds_chunks(value)]
    are_numbered = _NUMBERS in values
    if are_numbered and len(values[_NUMBERS]) != sum(len(values[name]) for name in groups):
        return
    if not are_numbered and (len(groups) > 1 or _names_a_number(values, {*groups, *others})):
        return
    parallel: list[int] = []  # the numbers of all groups, one after another, as the step gives them
    for name in groups:
        places = _drawn(draw, name, len(values[name]))
        values[name] = [values[name][place] for place in places]
        if are_numbered:
            parallel += [values[_NUMBERS][len(parallel) : len(parallel) + len(places)][place] for place in places]
        else:
            numbers["sources"] = [place + 1 for place in places]
        _point_to_places(prompt, values, places)
    if are_numbered:
        values[_NUMBERS] = parallel
    for name in others:  # no role names them; they have numbers of their own (`free`, `free_numbers`)
        places = _drawn(draw, name, len(values[name]))
        values[name] = [values[name][place] for place in places]
        if own := values.get(f"{name}_{_NUMBERS}"):
            values[f"{name}_{_NUMBERS}"] = [own[place] for place in places]


def _point_to_places(prompt: Prompt, values: dict[str, Any], places: Sequence[int]) -> None:
    """Let citations point to the new places of their contexts (`source`, from 1)."""
    new_place = {place + 1: number for number, place in enumerate(places, 1)}
    for name, role in prompt.roles.items():
        if role == "citations" and isinstance(values.get(name), list | tuple):
            values[name] = [
                {**item, "source": new_place[item["source"]]}
                if isinstance(item, Mapping) and item.get("source") in new_place
                else item
                for item in values[name]
            ]


def _holds_chunks(value: Any) -> bool:
    """Whether a value of a question is a list of retrieved chunks, and not empty."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Chunk) for item in value)


def _names_a_number(values: Mapping[str, Any], sources: set[str]) -> bool:
    """Whether a text beside the contexts may name one of them by its number."""
    texts = (text for name, value in values.items() if name not in sources for text in printable_texts(value))
    return any(_MARK.search(text) for text in texts)


def _has_undeclared_numbers(answer: type[Answer]) -> bool:
    """Whether a field `index` of the answer, or of its items, is not declared: nobody could lead it back."""
    for name, fact in answer.model_fields.items():
        if name == "index" and name not in answer.numbered_items:
            return True
        arguments = (fact.annotation, *getattr(fact.annotation, "__args__", ()))
        items = (item for item in arguments if isinstance(item, type) and issubclass(item, Answer))
        if any(_has_undeclared_numbers(item) for item in items):
            return True
    return False


def _original(number: int, numbers: Sequence[int]) -> int:
    return numbers[number - 1] if 1 <= number <= len(numbers) else number
