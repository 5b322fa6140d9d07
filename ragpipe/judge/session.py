"""The judge session of a run: a client that caches replies and never sends the same question twice at a time.

A metric's question becomes a payload with a content hash. Its reply is in the call store under that hash before the
metric sees it, so running again means resuming: stored replies are read, missing ones are requested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from ragpipe.core.call import Call, Paid, Payload, Payment
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Interrupted, JudgeError, OutputError, Problem, RagpipeError, Skipped
from ragpipe.core.sample import Corpus
from ragpipe.core.usage import Usage
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.attempts import AttemptRunner
from ragpipe.judge.budget import Budget
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.provider_state import ProviderRegistry, ServedModel
from ragpipe.judge.question import InProcessJudge, Question, Transport, judge_parts, key_parts, question_key
from ragpipe.store.call_store import ReplyStore
from ragpipe.store.ledger import Freshness

A = TypeVar("A", bound=Answer)


class JudgeSession:
    """Answers questions from the store, from a judge in this process or through a transport. `identity` goes into every key.
    With `retry_errors` what failed or is unreadable is asked again. `embedder` computes vectors, of texts with a `prefix`;
    `reader` what a rules judge reads by a model. Replies of models that are not `served` are flagged; by `shuffle_seed`
    items of a question are put into another order."""

    def __init__(
        self,
        *,
        identity: Mapping[str, Any],
        label: str,
        transport: Transport | None = None,
        store: ReplyStore | None = None,
        in_process: InProcessJudge | None = None,
        retry_errors: bool = False,
        repeat: int = 1,
        embedder: JudgeSession | None = None,
        reader: JudgeSession | None = None,
        prefix: str = "",
        served: ServedModel | None = None,
        shuffle_seed: int | None = None,
    ):
        if (in_process is None) == (transport is None):
            raise ValueError("a session needs either a transport or a rules judge")
        self.label, self.repeat = label, repeat
        self.embedder, self.prefix, self.served, self.shuffle_seed = embedder, prefix, served, shuffle_seed
        self.encoder_factory: Callable[[Any, Corpus | None], JudgeSession] | None = None
        """Opens the session of an encoder that compares texts token by token, from its settings and a corpus."""
        self.corpus: Corpus | None = None
        """The references of the run's data set, by which an encoder weighs tokens where it is asked to."""
        self.members: Mapping[str, JudgeSession] = {}
        """The sessions of a jury by the names of its members, where this is that of the first; empty where one judge judges."""
        self.budget: Budget | None = None
        """What the calls of this session and its children may cost; None without a limit."""
        self.retry_errors = retry_errors
        self.asked = self.failed = 0
        """The questions that the transport returned a call for, and the failed calls among them."""
        self.spend = Usage()
        """The sum over all answered attempts."""
        self._judge = judge_parts(identity)
        self._transport, self._store, self._in_process, self._reader = transport, store, in_process, reader
        self._waits_for_model = in_process if isinstance(in_process, ReadsByModel) else None
        self.in_process = in_process
        """The judge in this process that answers, or answered in the run that is replayed; None for a language model."""
        self._encoder_sessions: dict[str, JudgeSession] = {}
        self._retried: set[str] = set()
        self._began_at = time.time()
        self._in_flight: dict[str, asyncio.Task[Call]] = {}
        self._stop_reason: RagpipeError | None = None
        if transport is not None:
            # while texts are embedded or compared: what waits for them may ask the judge afterwards
            transport.is_busy = lambda: any(session._in_flight for session in self._children())

    def stop(self, why: RagpipeError) -> None:
        """Send no new questions; requests in flight complete. Later questions that are not in the store raise `why`."""
        self._stop_reason = self._stop_reason or why
        if self._transport is not None:
            self._transport.stop(why)
        if self._store is not None:
            self._store.abort(why)
        for session in self._children():
            session.stop(why)

    def share_provider_state(self, providers: ProviderRegistry) -> None:
        """Continue with the call budget, rate limits and output modes that this process has used and learned so far."""
        for session in (self, *self._children()):
            if session._transport is not None:
                session._transport.share_provider_state(providers)

    def set_beginning(self, began_at: float) -> None:
        """When the start of the run began, in seconds of the epoch; without this, when the session was made. With
        `retry_errors` a failure that was stored later is of this start, be it by another process, and is not asked again."""
        for session in (self, *self._children()):
            session._began_at = began_at

    @property
    def colleagues(self) -> tuple[JudgeSession, ...]:
        """The sessions of the other members of a jury."""
        return tuple(session for session in self.members.values() if session is not self)

    def total_asked(self) -> int:
        return sum(session.asked for session in (self, *self.colleagues))

    def total_spend(self) -> Usage:
        return Usage.sum(session.spend for session in (self, *self.colleagues))

    def own_attempts(self) -> AttemptRunner | None:
        """The attempts that the questions of this session itself make; None where it asks no server."""
        return self._transport.attempts if self._transport is not None else None

    def asking_attempts(self) -> list[AttemptRunner]:
        """The attempts of the judges: of this session, and of its colleagues."""
        judges = (self, *self.colleagues)
        return [attempts for session in judges if (attempts := session.own_attempts()) is not None]

    def child_attempts(self) -> list[AttemptRunner]:
        """The attempts of the sessions that embed texts for this one."""
        children = (session for session in self._children() if session not in self.colleagues)
        return [attempts for session in children if (attempts := session.own_attempts()) is not None]

    def texts(self) -> tuple[int, int]:
        """How many texts the models of this process have embedded, and how many wait for them."""
        models = [session._transport for session in self._children() if session._transport is not None]
        return sum(model.computed for model in models), sum(model.uncomputed for model in models)

    async def drain(self) -> None:
        """Wait until nothing is in flight: a question can outlive its caller, and its reply is paid for, so it is stored."""
        while self._in_flight:
            await asyncio.wait(tuple(self._in_flight.values()))
        for session in self._children():
            await session.drain()

    def cancel(self) -> None:
        """Cancel everything in flight."""
        for flight in tuple(self._in_flight.values()):
            flight.cancel()
        for session in self._children():
            session.cancel()

    def question(
        self,
        payload: Payload,
        answer: type[Answer],
        iteration: int,
        asker: str,
        *,
        asked_in: int | None = None,
        repeat: int | None = None,
    ) -> Question:
        """The question with its key, which the same content has for the same judge. `asker` (`case / metric / step`) is for
        messages; `asked_in` is the iteration that asks, where the key has another one; `repeat` None: that of the
        session."""
        parts = key_parts(payload, self._judge, iteration, self.repeat if repeat is None else repeat)
        return Question(question_key(parts), payload, answer, self.label, parts, asker, asked_in or iteration)

    async def compute(self, question: Question, prompt: Prompt, values: Mapping[str, Any]) -> Call | None:
        """The reply of a judge in this process, as a call; its status is `skipped` where the judge cannot answer, and the kind of
        failure where its model could not. None where the judge is not in this process."""
        if self._in_process is None:
            return None
        status, text, message = "ok", None, None
        try:
            if self._waits_for_model is not None:
                text = (await self._waits_for_model.read(prompt, question.answer, values)).model_dump_json()
            else:
                text = self._in_process.answer(prompt, question.answer, values).model_dump_json()
        except Skipped as error:
            status, message = "skipped", error.reason
        except JudgeError as error:
            status, message = error.kind, error.message
        return Call(
            question.key,
            question.payload.id,
            self.label,
            status,
            text=text,
            message=message,
            model=self.label,
            tokens_in=0,
            tokens_out=0,
            tokens_cached=0,
            attempts=0,
            output_mode="computed",
        )

    async def reply(self, question: Question, *, again: bool = False) -> Call:
        """The reply to a question: from the store where it has one, else through the transport. `again` asks afresh.

        A key is in flight once at a time, as a task of its own: a caller that is cancelled or times out stops waiting,
        and the request goes on.
        """
        if self._store is not None:
            call = self._store.at_hand(question.key, self._freshness(question, again))
            if call is not None:
                return call
        flight = self._in_flight.get(question.key)
        if flight is None:
            flight = asyncio.create_task(self._fetch(question, again))
            self._in_flight[question.key] = flight
            flight.add_done_callback(partial(self._forget, question.key))
        try:
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if flight.cancelled() and not (caller and caller.cancelling()):  # the run was cancelled, not this caller
                raise self._stop_reason or Interrupted("the run was cancelled") from None
            raise

    def _forget(self, key: str, flight: asyncio.Task[Call]) -> None:
        del self._in_flight[key]
        if not flight.cancelled():
            flight.exception()  # marks it as retrieved: perhaps no caller is left to do so

    async def _fetch(self, question: Question, again: bool) -> Call:
        if self._store is None or self._transport is None:
            raise RagpipeError("a rules judge has nothing to fetch")
        stored = await self._store.get_or_claim(question.key, freshness=self._freshness(question, again))
        if stored is not None:
            return stored
        if self.retry_errors:
            self._retried.add(question.key)
        try:
            return await self._ask(question, self._store, self._transport)
        except BaseException:
            # the first error counts: a claim that stays is released with its process
            with suppress(OutputError, DataError):
                await self._store.release_claim(question.key)
            raise

    def _freshness(self, question: Question, again: bool) -> Freshness:
        """Which stored calls may answer: with `retry_errors` failures of this start alone, and none asked again already."""
        if again:
            return Freshness.NONE
        retries = self.retry_errors and question.key not in self._retried
        return Freshness(failures_since=self._began_at) if retries else Freshness.ANY

    async def _ask(self, question: Question, store: ReplyStore, transport: Transport) -> Call:
        self._raise_if_stopped()
        async with transport.slot():
            self._raise_if_stopped()
            call = await transport.ask(question, partial(self._record_payment, question))
            if (call.fields, call.iteration) != (question.fields, question.iteration):
                call = replace(call, fields=question.fields, iteration=question.iteration)
            self.asked += 1
            self.failed += call.status != "ok"
            try:
                return await store.put(call)
            except (OutputError, DataError) as error:
                self.stop(error)  # before the slot is free: the next reply could not be stored either
                raise

    def _raise_if_stopped(self) -> None:
        if self._stop_reason:
            raise self._stop_reason

    def _record_payment(self, question: Question, payment: Payment, *, alone: bool = False) -> None:
        """Record the payment of an answered attempt before anything else can go wrong with its call."""
        self.spend += Usage.of_payment(payment)
        if self._store is not None:
            self._store.record_payment(question.key, question.iteration, payment, alone=alone)

    async def close(self) -> None:
        """Close the transports of this session and of its children."""
        if self._transport is not None:
            await self._transport.close()
        for session in self._children():
            await session.close()

    def encoder_session(self, encoder: Any, corpus: Corpus | None) -> JudgeSession:
        """The session of an encoder (given by its settings), opened once per encoder and corpus. Without a corpus all
        tokens weigh the same. Raises Skipped (`no_encoder`) where none can be opened."""
        if self.encoder_factory is None:
            raise Skipped("no_encoder")
        name = sha256([encoder.identity_of_embedder(), corpus.digest if corpus else None])
        if name not in self._encoder_sessions:
            self._encoder_sessions[name] = self.encoder_factory(encoder, corpus)
        return self._encoder_sessions[name]

    def _children(self) -> list[JudgeSession]:
        modelled = (session for session in (self.embedder, self._reader) if session is not None)
        return [*modelled, *self._encoder_sessions.values(), *self.colleagues]


class StoredTransport(Transport):
    """Answers every question that is not in the store with the failure `missing_reply`, which names case, metric and step.

    With `fix` a missing reply ends the run instead, with a DataError that says what to do.
    """

    def __init__(self, fix: str = ""):
        self._fix = fix

    async def ask(self, question: Question, paid: Paid) -> Call:
        if self._fix:
            nothing = f"none for this question (key {question.key[:12]})"
            problem = Problem(question.asker, "reply", nothing, "a stored reply", self._fix)
            raise DataError("a needed reply is not stored", [problem])
        return Call(
            question.key,
            question.payload.id,
            question.judge,
            "missing_reply",
            attempts=0,
            message=f"no stored reply for {question.asker} (key {question.key[:12]}): only a start that may ask "
            "the judge gets one (transport=live, and not rejudge.mode=stored)",
        )


@runtime_checkable
class ReadsByModel(Protocol):
    """A judge in this process that waits for a model: `read` gives its answers. Its `answer` tells, without the model, whether it
    could answer."""

    async def read(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A: ...
