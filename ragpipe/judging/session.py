"""The only door to a model.

A metric's question becomes a payload with a content hash; its reply is in the call store under that hash before the
metric sees it. So running again is resuming: what was answered is read, what is missing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Interrupted, JudgeError, OutputError, RagpipeError, Skipped, TooLong
from ragpipe.judging.answer_parsing import Unparsable, read_answer
from ragpipe.judging.cache_key import Question, judge_parts, key_of, key_parts
from ragpipe.judging.http_responses import replace_surrogates
from ragpipe.judging.provider_state import ProviderState
from ragpipe.judging.served_model import ServedModel
from ragpipe.judging.vector_replies import MATCH, STEP, Floats, TokenMatch, Vector, pair_payload, text_payload
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.call import Call, Message, Paid, Payload, Payment
from ragpipe.schema.corpus import Corpus
from ragpipe.schema.judge_answers.answers import Answer, answer_schema
from ragpipe.schema.sample import CaseKey
from ragpipe.store.calls.call_store import Fresh

A = TypeVar("A", bound=Answer)

_REPAIR = (
    "Your reply could not be read: {fault}\n"
    "Answer the same question again, with exactly the content that was asked for and in exactly the form that was asked "
    "for, and nothing else."
)


class Transport(Protocol):
    """How a question reaches a model. `slot` bounds the questions under way; it is held until the reply is committed."""

    def slot(self) -> AbstractAsyncContextManager[None]: ...
    async def ask(self, question: Question, paid: Paid) -> Call: ...
    def stop(self, why: RagpipeError) -> None: ...
    async def close(self) -> None: ...


@runtime_checkable
class OutputModeLearner(Protocol):
    """A transport that learns what a start need not learn twice."""

    def go_on_from(self, start: ProviderState) -> None: ...


class ReplySource(Protocol):
    """Where replies are looked up and kept, by key (`ragpipe.store.calls.call_store.CallStore` says what each does)."""

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None: ...
    async def put(self, call: Call) -> Call: ...
    def pay(self, key: str, iteration: int, payment: Payment) -> None: ...
    async def release(self, key: str) -> None: ...
    def give_up(self, why: RagpipeError) -> None: ...


class TextEmbedder(Protocol):
    """A judge that computes its answers in this process; they are not stored."""

    version: str

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A: ...


@dataclass(frozen=True, slots=True)
class JudgeCallUse:
    """One use of a reply: a row of `judge_inputs.parquet`. `answer` names the type that the reply is read as; `prompt` is
    None where the question was not rendered: a text for the embedder."""

    metric: str
    step: str
    turn: str
    prompt: Prompt | None
    payload: Payload
    answer: str
    call: Call
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class SessionUsage:
    """What this process's door asked and paid. `asked` counts questions that the transport gave a call for, `attempts`
    their HTTP tries; tokens and money are those of every try that was answered, `unpriced` how many had no known price."""

    uses: int = 0
    asked: int = 0
    attempts: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    unpriced: int = 0

    def add(self, call: Call) -> None:
        self.asked += 1
        self.attempts += call.attempts
        self.failed += call.status != "ok"

    def pay(self, payment: Payment) -> None:
        self.tokens_in += payment.tokens_in or 0
        self.tokens_out += payment.tokens_out or 0
        self.usd += payment.usd or 0.0
        self.unpriced += payment.usd is None


class JudgeSession:
    """Takes questions from metrics, answers them from the store, an embedded judge or a transport.

    `identity` is what goes into the key; `label` the judge's printable name. With `retry_errors` stored failures and
    unreadable replies are asked again. `embedder` is the door to what makes vectors, None where nothing does; `prefix` is
    what such a door puts before every text; `matching` opens the door to an encoder that compares texts token by token,
    `corpus` are the references of the run's data set, by which such a door weighs tokens where it is asked to. `served`
    says which models may answer: replies of others are flagged.
    """

    def __init__(
        self,
        *,
        identity: Mapping[str, Any],
        label: str,
        transport: Transport | None = None,
        store: ReplySource | None = None,
        embedded: TextEmbedder | None = None,
        retry_errors: bool = False,
        repeat: int = 1,
        embedder: JudgeSession | None = None,
        prefix: str = "",
        served: ServedModel | None = None,
    ):
        if (embedded is None) == (transport is None):
            raise ValueError("a door needs either a transport or an embedded judge")
        self.label, self.repeat = label, repeat
        self.embedder, self.prefix, self.served = embedder, prefix, served
        self.matching: Callable[[Any, Corpus | None], JudgeSession] | None = None
        self.corpus: Corpus | None = None
        self._matchers: dict[str, JudgeSession] = {}
        self._judge = judge_parts(identity)
        self.spent = SessionUsage()
        self._transport, self._store, self._embedded = transport, store, embedded
        self.retry_errors = retry_errors
        self._retried: set[str] = set()
        self._flights: dict[str, asyncio.Task[Call]] = {}
        self._closed: RagpipeError | None = None

    def stop(self, why: RagpipeError) -> None:
        """Let nothing new out; what is in flight lands. Later questions that are not in the store raise `why`."""
        self._closed = self._closed or why
        if self._transport is not None:
            self._transport.stop(why)
        if self._store is not None:
            self._store.give_up(why)
        for door in self._beside():
            door.stop(why)

    def go_on_from(self, start: ProviderState) -> None:
        """Begin with what this start has asked and learnt through other doors: limits are those of the start."""
        for door in (self, *self._beside()):
            if isinstance(door._transport, OutputModeLearner):
                door._transport.go_on_from(start)

    async def settle(self) -> None:
        """Wait until nothing is in flight. Whoever asked may have gone: a metric that asks several things at once ends with
        the first that fails, one may be cancelled. What they left under way is paid for, and is stored."""
        while self._flights:
            await asyncio.wait(tuple(self._flights.values()))
        for door in self._beside():
            await door.settle()

    def cancel(self) -> None:
        """Give up what is in flight."""
        for flight in tuple(self._flights.values()):
            flight.cancel()
        for door in self._beside():
            door.cancel()

    def for_case(self, case: CaseKey, metric: str) -> CaseJudge:
        """The judge that a metric gets for one case; its `uses` are the record of what it asked."""
        return CaseJudge(self, case, metric)

    def question(
        self, payload: Payload, answer: type[Answer], iteration: int, asker: str, *, asked_in: int | None = None
    ) -> Question:
        """Name the payload: the same content by the same judge is the same question. `asked_in` is the iteration that asks,
        where it is not the one in the key."""
        parts = key_parts(payload, self._judge, iteration, self.repeat)
        return Question(key_of(parts), payload, answer, self.label, parts, asker, asked_in or iteration)

    def compute(self, question: Question, prompt: Prompt, values: Mapping[str, Any]) -> Call | None:
        """The embedded judge's reply as a call, `skipped` when it has none; None when the judge is not embedded."""
        if self._embedded is None:
            return None
        status, text, why = "ok", None, None
        try:
            text = self._embedded.answer(prompt, question.answer, values).model_dump_json()
        except Skipped as unknown:
            status, why = "skipped", unknown.reason
        return Call(
            question.key,
            question.payload.id,
            self.label,
            status,
            text=text,
            message=why,
            model=self.label,
            tokens_in=0,
            tokens_out=0,
            tokens_cached=0,
            attempts=0,
            output_mode="computed",
        )

    async def reply(self, question: Question, *, again: bool = False) -> Call:
        """The reply to a question: one flight per key, from the store where it has one. `again` asks afresh.

        A flight is a task of its own: whoever is cancelled while waiting for it, or puts a time limit round it, gives up
        waiting and nothing else.
        """
        flight = self._flights.get(question.key)
        if flight is None:
            flight = asyncio.create_task(self._fetch(question, again))
            self._flights[question.key] = flight
            flight.add_done_callback(partial(self._landed, question.key))
        try:
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if flight.cancelled() and not (asker and asker.cancelling()):  # the run gave it up, not the one who waits
                raise self._closed or Interrupted("the run was cancelled") from None
            raise

    def _landed(self, key: str, flight: asyncio.Task[Call]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # marked as seen: there may be nobody left to look at it

    async def _fetch(self, question: Question, again: bool) -> Call:
        if self._store is None or self._transport is None:
            raise RagpipeError("an embedded judge has nothing to fetch")
        retry = self.retry_errors and question.key not in self._retried
        found = await self._store.take(question.key, fresh="all" if again else retry)
        if found is not None:
            return found
        if self.retry_errors:
            self._retried.add(question.key)
        try:
            if self._closed:
                raise self._closed
            async with self._transport.slot():
                if self._closed:
                    raise self._closed
                call = await self._transport.ask(question, partial(self._paid, question))
                call = replace(call, fields=question.fields, iteration=question.iteration)
                self.spent.add(call)
                try:
                    return await self._store.put(call)
                except (OutputError, DataError) as full:
                    self.stop(full)  # before this place is free: the next reply would find no room either
                    raise
        except BaseException:
            # what went wrong first counts: a claim that stays is freed with its process
            with suppress(OutputError, DataError):
                await self._store.release(question.key)
            raise

    def _paid(self, question: Question, payment: Payment) -> None:
        """A try was answered: it is in the ledger before anything else can go wrong with its call."""
        self.spent.pay(payment)
        if self._store is not None:
            self._store.pay(question.key, question.iteration, payment)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
        for door in self._beside():
            await door.close()

    def matcher(self, encoder: Any, corpus: Corpus | None) -> JudgeSession:
        """The door to an encoder (its settings) that weighs tokens by a corpus or all alike, opened once. Raises Skipped
        (`no_encoder`) where none can be."""
        if self.matching is None:
            raise Skipped("no_encoder")
        name = sha256([encoder.identity_of_embedder(), corpus.digest if corpus else None])
        if name not in self._matchers:
            self._matchers[name] = self.matching(encoder, corpus)
        return self._matchers[name]

    def _beside(self) -> list[JudgeSession]:
        return [*([self.embedder] if self.embedder else []), *self._matchers.values()]


@dataclass(slots=True)
class CaseJudge:
    """The judge as one metric sees it for one case (`ragpipe.judging.judge_protocol.Judge`)."""

    door: JudgeSession
    case: CaseKey
    metric: str
    uses: list[JudgeCallUse] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        try:
            messages = prompt.render(**values)
        except TooLong as error:
            raise JudgeError("too_long", f"{self.case}: {self.metric}/{error}") from error
        payload = Payload(messages, answer_schema(answer))
        question = self._question(payload, answer, prompt)
        computed = self.door.compute(question, prompt, values)
        call = computed or await self.door.reply(question)
        material = () if computed else prompt.material(payload.messages, values)
        try:
            return self._read(prompt, "ask", payload, call, answer, material)
        except Unparsable as fault:
            return await self._repair(prompt, payload, call, answer, fault, material)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        door = self.door.embedder
        if door is None:
            raise Skipped("no_embedder")
        different = list(dict.fromkeys(texts))
        tasks = (self._embedded(door, text) for text in different)
        found = dict(zip(different, await asyncio.gather(*tasks, return_exceptions=True), strict=True))
        for one in found.values():
            if isinstance(one, BaseException):
                raise one
        return [found[text] for text in texts]  # type: ignore[misc]

    def was_cut(self, text: str, /) -> bool:
        return text in self.cut

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        corpus = self.door.corpus if idf else None
        if idf and corpus is None:
            raise Skipped("no_corpus")
        door = self.door.matcher(encoder, corpus)
        weighted_by = corpus.digest if corpus else None
        payload = pair_payload(replace_surrogates(candidate)[0], replace_surrogates(reference)[0], weighted_by)
        asker, now = f"{self.case} / {self.metric} / {MATCH}", self.case.iteration
        question = door.question(payload, TokenMatch, 1, asker, asked_in=now)
        call = await door.reply(question)
        try:
            return self._read(None, "ask", payload, call, TokenMatch)
        except Unparsable as fault:
            raise JudgeError("unparsable", f"{MATCH}: {fault}", text=call.text) from fault

    async def _embedded(self, door: JudgeSession, text: str) -> Floats:
        """A vector depends on the text and the model alone: no iteration is in its key, all share the first."""
        payload = text_payload(replace_surrogates(door.prefix + text)[0])
        asker, now = f"{self.case} / {self.metric} / {STEP}", self.case.iteration
        question = door.question(payload, Vector, 1, asker, asked_in=now)
        call = await door.reply(question)
        try:
            values: Floats = self._read(None, "ask", payload, call, Vector).values
        except Unparsable as fault:
            raise JudgeError("unparsable", f"{STEP}: {fault}", text=call.text) from fault
        if call.finish_reason == "length":
            self.cut.add(text)
        return values

    async def _repair(
        self, prompt: Prompt, payload: Payload, bad: Call, answer: type[A], fault: Unparsable, material: Sequence[str]
    ) -> A:
        """At temperature 0 the same question gives the same bad text: say what was wrong with it, once."""
        messages: list[Message] = [*payload.messages]
        messages.append({"role": "assistant", "content": bad.text or ""})
        messages.append({"role": "user", "content": _REPAIR.format(fault=fault)})
        second = Payload(tuple(messages), payload.schema)
        question = self._question(second, answer, prompt)
        for again in (False, True) if self.door.retry_errors else (False,):
            call = await self.door.reply(question, again=again)
            try:
                return self._read(prompt, "repair", second, call, answer, material)
            except Unparsable as still:
                fault = still
        raise JudgeError("unparsable", f"{prompt.step}: {fault} (also after one repair)", text=call.text) from fault

    def _question(self, payload: Payload, answer: type[Answer], prompt: Prompt) -> Question:
        return self.door.question(payload, answer, self.case.iteration, f"{self.case} / {self.metric} / {prompt.step}")

    def _read(
        self,
        prompt: Prompt | None,
        turn: str,
        payload: Payload,
        call: Call,
        answer: type[A],
        material: Sequence[str] = (),
    ) -> A:
        self.door.spent.uses += 1
        flags: tuple[str, ...] = ()
        try:
            if call.status == "skipped":
                raise Skipped(call.message or "the judge cannot answer")
            if call.status != "ok":
                raise JudgeError(call.status, call.message or "the judge gave no answer", text=call.text)  # type: ignore[arg-type]
            if call.output_mode == "computed":
                return answer.model_validate_json(call.text or "")
            found, flags = read_answer(call.text or "", answer, material)
            return found
        except Unparsable:
            flags = ("unparsable",)
            raise
        finally:
            step = prompt.step if prompt else STEP if answer is Vector else MATCH
            served = self.door.served if prompt else None  # vectors and pairs are another door's
            flags += served.flags(call) if served else ()
            self.uses.append(JudgeCallUse(self.metric, step, turn, prompt, payload, answer.__name__, call, flags))
