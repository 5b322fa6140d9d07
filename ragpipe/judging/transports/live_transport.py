"""The live transport: questions go to a provider, through one retry owner and the limits of the whole provider.

Until one call has come back, one goes alone and the rest wait for it: it proves URL, key and model, and settles the
output mode and the name of the token limit. Nothing that leaves here holds the key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from ragpipe.core.errors import FATAL, Incomplete, ProviderUnusable, RagpipeError
from ragpipe.core.secret_detection import looks_random
from ragpipe.judging.cache_key import Question
from ragpipe.judging.clients.client import AttemptError, Client, Completion, PreparedRequest
from ragpipe.judging.clients.factory import make_client
from ragpipe.judging.clients.http_responses import parse_response
from ragpipe.judging.limits.outage import SILENT, Outage
from ragpipe.judging.limits.rate_limit import ConcurrencyLimit
from ragpipe.judging.limits.retries import RETRYABLE, RetryLoop
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.redaction import Redactor, provider_secrets
from ragpipe.judging.served_model import ServedModel
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.attempt_tally import AttemptTally
from ragpipe.judging.transports.output_modes import RequestForm
from ragpipe.judging.transports.provider_state import ProviderRegistry, ProviderState
from ragpipe.schema.call import Call, Paid, Payment
from ragpipe.schema.price_rates import Rates

_NO_ANSWER = SILENT | {"not_an_api_answer"}
"""Faults after which nothing is known of the provider but that it gave no answer."""
_SAY_AFTER_S = 8.0  # without any answer; said again after twice as long, and so on
_STRUCK = "the reply held the key, which was replaced by ***"


class LiveTransport:
    """Asks one provider. Lives in one event loop; `close` it there.

    `ask` gives a Call whose status is `ok` or a failure kind; it raises ProviderUnusable when the provider as a whole is
    unusable (every later `ask` raises the same) and Incomplete when `max_calls` is used up. `tell` gets what a user should
    know while it goes on. What it learns is in `known`, which all transports of a start share (`share_provider_state`).
    """

    section = "judge"
    """The part of the configuration that `settings` are."""

    def __init__(self, settings: JudgeSettings, *, run_id: str, tell: Callable[[str], None] = lambda _: None):
        self.settings = settings
        self.run_id = run_id
        self.known: ProviderState = ProviderRegistry().of(settings)
        self._slots = ConcurrencyLimit(settings.concurrency)
        self._wires = asyncio.Semaphore(settings.concurrency)
        self._served = ServedModel(settings)
        self._outage = Outage(settings.outage_s, settings.retries, self._say, self._slots.let_one_more_in)
        self._tell = tell
        self._stopped: RagpipeError | None = None
        self._stopping = asyncio.Event()
        self._rates: Rates | None = None
        self._key = settings.api_key()
        secrets = [s for s in (self._key, *provider_secrets(settings.provider)) if s]
        self._scrub = Redactor(secrets)
        # `none`, `anything`: where no key is wanted, a word stands for it, and honest replies hold words
        self._scrub_reply = Redactor(s for s in secrets if looks_random(s))
        self._client: Client | None = None
        self._alone = asyncio.Lock()
        self._dead: ProviderUnusable | None = None

    def share_provider_state(self, start: ProviderRegistry) -> None:
        """Begin with what this start has learnt of the provider, and add to it."""
        self.known = start.of(self.settings)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """One of `judge.concurrency` places: hold it around `ask` and around the commit of its reply."""
        return self._slots

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Ask one question, with retries. Hold a `slot` meanwhile. `paid` is told of every try that was answered."""
        self._still_usable()
        if self.known.asked >= self.settings.max_calls:
            raise Incomplete(
                f"{self.section}.max_calls={self.settings.max_calls} is used up: this start has asked as many questions. What "
                f"was answered is kept: the same command goes on from here, with as many again; raise it to need fewer starts"
            )
        self.known.asked += 1
        tally = AttemptTally(paid)
        if question.answer.form in self.known.settled:
            return await self._asked(question, tally)
        async with self._alone:
            if question.answer.form not in self.known.settled:
                self._still_usable()
                return await self._first(question, tally)
        return await self._asked(question, tally)

    async def _first(self, question: Question, tally: AttemptTally) -> Call:
        """The question that goes alone."""
        watch = None if self.known.answered else asyncio.create_task(self._say_when_late(tally))
        try:
            call = await self._asked(question, tally)
        finally:
            if watch is not None:
                watch.cancel()
        if call.status not in RETRYABLE or call.status == "empty_reply":  # it came back, be it with a refusal
            self.known.settled.add(question.answer.form)
        return call

    async def _say_when_late(self, tally: AttemptTally) -> None:
        """Nobody should wait for minutes before a terminal that says nothing."""
        began, wait = time.monotonic(), _SAY_AFTER_S
        while True:
            await asyncio.sleep(wait)
            passed = time.monotonic() - began
            text = f"no answer yet from {self._place} after {passed:.0f} s: try {max(1, tally.attempts)} of {1 + self.settings.retries}"
            self._say(f"{text}; the one before: {tally.fault}" if tally.fault else text)
            wait = passed

    def stop(self, why: RagpipeError) -> None:
        """Start no more tries. Requests under way go on; what waits for its turn or its next try raises `why` at once."""
        self._stopped = self._stopped or why
        self._stopping.set()
        self._outage.release()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _asked(self, question: Question, tally: AttemptTally) -> Call:
        client, ladder = self._open(), self.known.ladder
        while True:
            shape = ladder.shape(question)
            prepared = client.prepare(ladder.body(question, shape))
            tally.wire_hash = prepared.wire_hash
            try:
                content = await self._content(client, prepared, question, tally)
            except AttemptError as fault:
                failed = fault
            else:
                self.known.breaker.passed(question.step)
                ladder.passed(question, shape)
                return self._call(question, shape, tally, "ok", content, "; ".join(content.notes) or None)
            if not ladder.learn(failed, question, shape):
                return self._failed(question, shape, tally, failed)
            self._say_of_form(question, shape, failed)

    def _say_of_form(self, question: Question, refused: RequestForm, fault: AttemptError) -> None:
        """Say once for each answer type that it is asked for in another form from here on."""
        named = (question.payload.schema_json, refused.mode)
        if fault.refuses == "response_format" and named not in self.known.said:
            self.known.said.add(named)
            lower = self.known.ladder.shape(question).mode
            self._say(
                f"{refused.mode} was refused for {question.step}: it is asked as {lower} from here on ({fault.message})"
            )

    async def _content(
        self, client: Client, prepared: PreparedRequest, question: Question, tally: AttemptTally
    ) -> Completion:
        """One request, as often as it takes. Raises its last AttemptError."""
        tries = RetryLoop(self.settings)
        return await tries(partial(self._counted_try, client, prepared, question, tally, tries), self._sleep)

    async def _counted_try(
        self, client: Client, prepared: PreparedRequest, question: Question, tally: AttemptTally, tries: RetryLoop
    ) -> Completion:
        """A try that the call's own tries are counted by. Those of an outage come on top."""
        while True:
            probe = await self._turn(question)
            tally.attempts += 1
            try:
                content = await self._try(client, prepared, tally, self.settings.timeout_s if probe else tries.limit)
            except AttemptError as fault:
                tally.fault = fault.message
                if fault.kind not in _NO_ANSWER:
                    self._heard_of(fault)
                elif self._outage.failed(fault, question.key, probe=probe, armed=self.known.answered):
                    self._end_of_patience(fault)
                    continue  # it uses up none of the call's tries
                tries.failed(fault, (tally.latency_ms or 0) / 1000, self._outage.number)
                raise
            except BaseException:
                if probe:
                    self._outage.lost()
                raise
            self.known.answered = True
            self._outage.answered()
            return content

    async def _turn(self, question: Question) -> bool:
        """Wait until a try may start; whether it is the probe of an outage."""
        while True:
            probe = await self._outage.turn(question.key)
            try:
                self._still_usable()
                await self.known.pace.turn(self._sleep)
                self._still_usable()
            except BaseException:
                if probe:
                    self._outage.lost()
                raise
            if probe or not self._outage.on:
                return probe

    def _heard_of(self, fault: AttemptError) -> None:
        """A refusal is an answer too: the provider lives."""
        self._outage.answered()
        if fault.kind not in FATAL and fault.kind != "rate_limit":
            self.known.answered = True

    def _end_of_patience(self, fault: AttemptError) -> None:
        if self._outage.too_long:
            raise self._unusable(
                "unreachable",
                f"no answer for {self._outage.seconds:.0f} s (judge.outage_s={self.settings.outage_s:g}), the last: "
                f"{fault.message}. What was answered is kept: the same command goes on from here",
            )

    async def _try(self, client: Client, prepared: PreparedRequest, tally: AttemptTally, limit: float) -> Completion:
        """One HTTP try, with a total deadline."""
        async with self._wires:
            start = time.monotonic()
            try:
                async with asyncio.timeout(limit):
                    reply = await client.send(prepared)
            except TimeoutError:
                given = f"judge.timeout_s={limit:g} s" if limit >= self.settings.timeout_s else f"{limit:.3g} s"
                raise AttemptError("deadline", f"no whole answer within {given}") from None
            except AttemptError as fault:
                if fault.connect and not self.known.heard:
                    raise self._unusable("unreachable", fault.message) from None
                self._pay_for(fault, tally)
                raise
            finally:
                tally.latency_ms = round((time.monotonic() - start) * 1000, 3)
        self.known.heard = True
        try:
            content = parse_response(reply)
        except AttemptError as fault:
            self._pay_for(fault, tally)
            if fault.kind == "rate_limit":
                self.known.pace.limited(start)
            if fault.retry_after is not None:
                self._honour(fault.retry_after, fault)
            raise
        self.known.pace.passed()
        self._pay(tally, content)
        return content

    def _pay_for(self, fault: AttemptError, tally: AttemptTally) -> None:
        """An empty, a cut or an unreadable reply that names a usage is paid like any other."""
        if fault.reply:
            self._pay(tally, Completion(**{"text": None, **fault.reply}))

    def _pay(self, tally: AttemptTally, content: Completion) -> None:
        if self._rates is None:
            self._rates = rates_for(self.settings)
        told = (content.tokens_in, content.tokens_out, content.tokens_cached, content.tokens_reasoning)
        usd = self._rates.usd(*told)
        tally.last, tally.usd = content, usd
        tally.answers += 1
        tally.paid(Payment(self.settings.model, datetime.now(UTC).isoformat(timespec="milliseconds"), *told, usd))
        self._compare(content.model)

    def _compare(self, model: str | None) -> None:
        """Raises ProviderUnusable for the reply of another model where that is refused: it is paid for, and not kept."""
        if model is None or self._served.kind(model) != "other":
            return
        model = " ".join(model.split())[:100]
        told = f"its reply is of {model!r}, and {self.settings.name!r} was asked"
        names = f"judge.served_as=[{model}] takes that for the same model"
        if self._served.refuses:
            raise self._unusable(
                "other_model",
                f"{told}: it was paid for and is not kept; {names}, judge.served_model=warn keeps and flags it",
            )
        if ("", model) not in self.known.said:
            self.known.said.add(("", model))
            self._say(
                f"{told}: such replies are kept and flagged (other_model); {names}, judge.served_model=refuse ends the run"
            )

    def _honour(self, seconds: float, fault: AttemptError) -> None:
        """Close the gate for all workers for as long as the provider asked, or stop when that is too long."""
        cap = self.settings.retry_after_cap_s
        if seconds > cap:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise self._unusable(
                fault.kind,
                f"it asks to wait {seconds:,.0f} s, more than judge.retry_after_cap_s={cap:g}: come back after "
                f"{back:%Y-%m-%d %H:%M:%S %Z} and start the same command again",
            )
        self.known.pace.wait(seconds)

    def _failed(self, question: Question, shape: RequestForm, tally: AttemptTally, fault: AttemptError) -> Call:
        """The record of a call that failed; raises ProviderUnusable when the fault is the provider's as a whole."""
        fix = self.known.ladder.fix(fault, question, shape) if fault.refuses else None
        if fix:
            raise self._unusable("bad_request", f"it refuses {fault.refuses}: {fault.message}. Set {fix}") from None
        if fault.kind in FATAL:
            raise self._unusable(fault.kind, fault.message) from None
        if fault.kind in _NO_ANSWER and not self.known.answered:
            raise self._unusable(
                "unreachable", f"no answer came in this start, tries sent: {tally.attempts}; the last: {fault.message}"
            ) from None
        if told := self.known.breaker.failed(question.step, fault, self.settings.breaker_after):
            raise self._unusable(*told) from None
        message = fault.message
        if fault.kind == "cut_short":
            message = f"the reply was cut off at judge.max_tokens={self.settings.max_tokens}: raise it"
        elif fault.kind == "too_long":
            message += f" (about {self._tokens(question):,} tokens by our own count)"
        beside = {"text": None, **fault.reply}
        return self._call(question, shape, tally, fault.kind, Completion(**beside), f"{question.asker}: {message}")

    def _tokens(self, question: Question) -> int:
        from ragpipe.judging.token_count import count_tokens

        return sum(count_tokens(m["content"], self.settings.model) for m in question.payload.messages)

    def _call(
        self,
        question: Question,
        shape: RequestForm,
        tally: AttemptTally,
        status: str,
        content: Completion,
        message: str | None,
    ) -> Call:
        last = tally.last
        text = None if content.text is None else self._scrub_reply(content.text)
        message = None if message is None else self._scrub(message)
        if text != content.text:
            message = "; ".join(filter(None, (message, _STRUCK)))
        return Call(
            key=question.key,
            payload_id=question.payload.id,
            judge=question.judge,
            status=status,
            text=text,
            message=message,
            model=None if content.model is None else self._scrub_reply(content.model),
            finish_reason=content.finish_reason,
            tokens_in=last.tokens_in,
            tokens_out=last.tokens_out,
            tokens_cached=last.tokens_cached,
            tokens_reasoning=last.tokens_reasoning,
            fingerprint=None if content.fingerprint is None else self._scrub_reply(content.fingerprint),
            paid_usd=tally.usd,
            answers=tally.answers,
            latency_ms=tally.latency_ms,
            attempts=tally.attempts,
            output_mode=shape.mode,
            sent=dict(self.known.ladder.sent(shape)),
            wire_hash=tally.wire_hash,
            fields=dict(question.fields),
            run_id=self.run_id,
            iteration=question.iteration,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _open(self) -> Client:
        if self._client is None:
            variable = self.settings.key_variable
            if variable and self._key is None:
                raise self._unusable("auth", f"the environment variable {variable} is not set")
            self._client = make_client(self.settings, self._key)
        return self._client

    def _still_usable(self) -> None:
        if self._dead is not None:
            raise ProviderUnusable(str(self._dead), self._dead.kind)
        if self._stopped is not None:
            raise self._stopped

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless nothing is worth waiting for any more: a provider may ask for minutes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self._still_usable()

    def _unusable(self, kind: str, what: str) -> ProviderUnusable:
        """Mark the provider as unusable for all, and say so."""
        text = f"{self._place}: {what}"
        if kind == "auth":
            text += f"; {self.settings.key_source}"
        elif kind == "model_not_found":
            text += "; check judge.model and judge.api_base"
        self._dead = self._dead or ProviderUnusable(self._scrub(text), kind)
        self._stopping.set()
        self._outage.release()
        return self._dead

    @property
    def _place(self) -> str:
        place = self.settings.api_base or f"the public endpoint of {self.settings.provider}"
        return f"{self.settings.model} at {place}"

    def _say(self, text: str) -> None:
        """Tell the user, without the key."""
        self._tell(self._scrub(f"{self.section}: {text}"))
