"""The live transport: questions go to a provider, through one retry owner and the limits of the whole provider.

The first call goes alone, the rest wait for it: it proves URL, key and model, and settles the output mode and the name of
the token limit. Nothing that leaves here holds the key.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from ragpipe.credentials import looks_random
from ragpipe.errors import FATAL, Incomplete, ProviderUnusable, RagpipeError
from ragpipe.judging.clients.base import Client, Content, Fault, Prepared
from ragpipe.judging.clients.choose import make_client
from ragpipe.judging.cost import PriceTable
from ragpipe.judging.ladder import Ladder, Shape
from ragpipe.judging.limits import Pace
from ragpipe.judging.question import Question
from ragpipe.judging.replies import read_reply
from ragpipe.judging.retry import RETRYABLE, Retrying
from ragpipe.judging.secrecy import Scrubber, provider_secrets
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.call import Call, Paid, Payment

_STRUCK = "the reply held the key, which was replaced by ***"


@dataclass(slots=True)
class _Tally:
    """The tries of one question: `latency_ms` of the last one, the bills of all that were answered, and the last answer.

    `paid` is told of every answer at once, so that its price is kept whatever becomes of the call.
    """

    paid: Paid
    attempts: int = 0
    latency_ms: float | None = None
    wire_hash: str | None = None
    bills: list[tuple[float | None, str | None]] = field(default_factory=list)
    last: Content = field(default_factory=lambda: Content(None))


class LiveTransport:
    """Asks one provider. Lives in one event loop; `close` it there.

    `ask` gives a Call whose status is `ok` or a failure kind; it raises ProviderUnusable when the provider as a whole is
    unusable (every later `ask` raises the same) and Incomplete when `max_calls` is used up, over all transports that share
    its `counts`.
    """

    section = "judge"
    """The part of the configuration that `settings` are."""

    def __init__(self, settings: JudgeSettings, *, run_id: str, prices: PriceTable | None = None):
        self.settings = settings
        self.run_id = run_id
        self.counts: Counter[str] = Counter()  # questions by the section that asks; several transports may share it
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._stopped: RagpipeError | None = None
        self._stopping = asyncio.Event()
        self._pace = Pace(settings.rpm, sleep=self._sleep)
        self._ladder = Ladder(settings)
        self._retrying = Retrying(settings.retries, sleep=self._sleep)
        self._prices = prices
        self._key = settings.api_key()
        secrets = [s for s in (self._key, *provider_secrets(settings.provider)) if s]
        self._scrub = Scrubber(secrets)
        # `none`, `anything`: where no key is wanted, a word stands for it, and honest replies hold words
        self._scrub_reply = Scrubber(s for s in secrets if looks_random(s))
        self._client: Client | None = None
        self._alone = asyncio.Lock()
        self._settled: set[str] = set()  # the answer forms (json, text) of which a first call has come back
        self._answered = False  # whether any HTTP answer ever came
        self._failures = 0  # calls in a row that ended in a transient fault
        self._dead: ProviderUnusable | None = None

    def slot(self) -> AbstractAsyncContextManager[None]:
        """One of `judge.concurrency` places: hold it around `ask` and around the commit of its reply."""
        return self._slots

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Ask one question, with retries. Hold a `slot` meanwhile. `paid` is told of every try that was answered."""
        self._still_usable()
        if self.counts[self.section] >= self.settings.max_calls:
            raise Incomplete(
                f"{self.section}.max_calls={self.settings.max_calls} is used up: this start has asked as many questions. What "
                f"was answered is kept: the same command goes on from here, with as many again; raise it to need fewer starts"
            )
        self.counts[self.section] += 1
        form = question.answer.form
        if form in self._settled:
            return await self._asked(question, paid)
        async with self._alone:
            if form in self._settled:
                first = False
            else:
                first = True
                self._still_usable()
                call = await self._asked(question, paid)
                self._settled.add(form)
        return call if first else await self._asked(question, paid)

    def stop(self, why: RagpipeError) -> None:
        """Start no more tries. Requests under way go on; what waits for its turn or its next try raises `why` at once."""
        self._stopped = self._stopped or why
        self._stopping.set()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _asked(self, question: Question, paid: Paid) -> Call:
        client = self._open()
        tally = _Tally(paid)
        while True:
            shape = self._ladder.shape(question)
            prepared = client.prepare(self._ladder.body(question, shape))
            tally.wire_hash = prepared.wire_hash
            try:
                content = await self._retrying(partial(self._try, client, prepared, tally))
            except Fault as fault:
                failed = fault
            else:
                self._failures = 0
                self._ladder.passed(question, shape)
                return self._call(question, shape, tally, "ok", content, "; ".join(content.notes) or None)
            if not self._ladder.learn(failed, shape):
                return self._failed(question, shape, tally, failed)

    async def _try(self, client: Client, prepared: Prepared, tally: _Tally) -> Content:
        """One HTTP try, with a total deadline."""
        await self._pace.turn()
        self._still_usable()
        tally.attempts += 1
        limit, start = self.settings.timeout_s, time.monotonic()
        try:
            async with asyncio.timeout(limit):
                reply = await client.send(prepared)
        except TimeoutError:
            raise Fault("deadline", f"no whole answer within judge.timeout_s={limit:g} s") from None
        except Fault as fault:
            if fault.connect and not self._answered:
                raise self._unusable("unreachable", fault.message) from None
            raise
        finally:
            tally.latency_ms = round((time.monotonic() - start) * 1000, 3)
        self._answered = True
        try:
            content = read_reply(reply)
        except Fault as fault:
            if fault.reply:  # an empty or a cut reply is paid like any other
                self._pay(tally, Content(**{"text": None, **fault.reply}))
            if fault.kind == "rate_limit":
                self._pace.limited(start)
            if fault.retry_after is not None:
                self._honour(fault.retry_after, fault)
            raise
        self._pace.passed()
        self._pay(tally, content)
        return content

    def _pay(self, tally: _Tally, content: Content) -> None:
        usd, reason = self._price(content)
        tally.last = content
        tally.bills.append((usd, reason))
        tally.paid(Payment(
            self.settings.model, datetime.now(UTC).isoformat(timespec="milliseconds"), content.tokens_in,
            content.tokens_out, content.tokens_cached, content.tokens_reasoning, usd,
        ))  # fmt: skip

    def _honour(self, seconds: float, fault: Fault) -> None:
        """Close the gate for all workers for as long as the provider asked, or stop when that is too long."""
        cap = self.settings.retry_after_cap_s
        if seconds > cap:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise self._unusable(
                fault.kind,
                f"it asks to wait {seconds:,.0f} s, more than judge.retry_after_cap_s={cap:g}: come back after "
                f"{back:%Y-%m-%d %H:%M:%S %Z} and start the same command again",
            )
        self._pace.wait(seconds)

    def _failed(self, question: Question, shape: Shape, tally: _Tally, fault: Fault) -> Call:
        """The record of a call that failed; raises ProviderUnusable when the fault is the provider's as a whole."""
        mend = self._ladder.mend(fault) if fault.refuses else None
        if mend:
            raise self._unusable("bad_request", f"it refuses {fault.refuses}: {fault.message}. Set {mend}") from None
        if fault.kind in FATAL:
            raise self._unusable(fault.kind, fault.message) from None
        self._failures = self._failures + 1 if fault.kind in RETRYABLE and fault.kind != "empty_reply" else 0
        if self._failures >= self.settings.breaker_after:
            raise self._unusable(
                "breaker", f"{self._failures} calls in a row failed after all their tries; the last: {fault.message}"
            ) from None
        message = fault.message
        if fault.kind == "cut_short":
            message = f"the reply was cut off at judge.max_tokens={self.settings.max_tokens}: raise it"
        elif fault.kind == "too_long":
            message += f" (about {self._tokens(question):,} tokens by our own count)"
        beside = {"text": None, **fault.reply}
        return self._call(question, shape, tally, fault.kind, Content(**beside), f"{question.asker}: {message}")

    def _tokens(self, question: Question) -> int:
        from ragpipe.judging.tokens import count_tokens

        return sum(count_tokens(m["content"], self.settings.model) for m in question.payload.messages)

    def _call(
        self, question: Question, shape: Shape, tally: _Tally, status: str, content: Content, message: str | None
    ) -> Call:
        usd, reason = _together(tally)
        last = tally.last
        text = None if content.text is None else self._scrub_reply(content.text)
        message = None if message is None else self._scrub(message)
        if text != content.text:
            message = "; ".join(filter(None, (message, _STRUCK)))
        return Call(
            key=question.key, payload_id=question.payload.id, judge=question.judge, status=status, text=text,
            message=message, model=None if content.model is None else self._scrub_reply(content.model), finish_reason=content.finish_reason,
            tokens_in=last.tokens_in, tokens_out=last.tokens_out, tokens_cached=last.tokens_cached,
            tokens_reasoning=last.tokens_reasoning,
            fingerprint=None if content.fingerprint is None else self._scrub_reply(content.fingerprint),
            cost_usd=usd, cost_reason=reason, latency_ms=tally.latency_ms, attempts=tally.attempts,
            output_mode=shape.mode, sent=dict(self._ladder.sent(shape)), wire_hash=tally.wire_hash,
            fields=dict(question.fields), run_id=self.run_id, iteration=question.iteration,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )  # fmt: skip

    def _price(self, content: Content) -> tuple[float | None, str | None]:
        """The price of one answer, or why it is not known."""
        if content.tokens_in is None or content.tokens_out is None:
            return None, content.usage_reason or "no reply with a usage came"
        own = self.settings.prices
        if self.settings.api_base is not None and own is None:
            section = self.settings.section
            return (
                None,
                f"{section}.api_base names a server of your own, which has no public price: set {section}.prices",
            )
        if self._prices is None:
            self._prices = PriceTable.load({self.settings.model: own} if own else None, section=self.settings.section)
        return self._prices.price(self.settings.model, content.tokens_in, content.tokens_out, content.tokens_cached)

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
        place = self.settings.api_base or f"the public endpoint of {self.settings.provider}"
        text = f"{self.settings.model} at {place}: {what}"
        if kind == "auth":
            text += f"; {self._key_came_from()}"
        elif kind == "model_not_found":
            text += "; check judge.model and judge.api_base"
        self._dead = self._dead or ProviderUnusable(self._scrub(text), kind)
        self._stopping.set()
        return self._dead

    def _key_came_from(self) -> str:
        variable = self.settings.key_variable
        if variable:
            return f"the key comes from the environment variable {variable} (judge.api_key_env)"
        if self.settings.api_base:
            return "no key was sent: name the environment variable that holds it in judge.api_key_env"
        return (
            f"litellm looked for the key in its own variable, usually {self.settings.provider.upper()}_API_KEY; another "
            f"one is named by judge.api_key_env"
        )


def _together(tally: _Tally) -> tuple[float | None, str | None]:
    """The price of all tries: none is for nothing because the next one gave the answer."""
    reasons = [reason for usd, reason in tally.bills if usd is None]
    if reasons or not tally.bills:
        return None, reasons[0] if reasons else "no reply with a usage came"
    return sum(usd for usd, _ in tally.bills if usd is not None), None
