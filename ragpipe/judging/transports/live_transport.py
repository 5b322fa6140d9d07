"""The live transport: questions go to a provider, within its limits, and are retried in one place.

Until one call has come back, one question goes alone and the others wait for it: it checks URL, key and model, and finds the
output mode and the name of the token limit. So does the first question of each answer schema, whose mode may be refused. Nothing that leaves here contains the key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

from ragpipe.core.errors import FATAL, Incomplete, JudgeError, ProviderUnusable, RagpipeError
from ragpipe.core.secret_detection import looks_random
from ragpipe.judging.cache_key import Question
from ragpipe.judging.clients.client import AttemptError, Client, Completion, PreparedRequest
from ragpipe.judging.clients.factory import make_client
from ragpipe.judging.clients.http_responses import is_odd_end, parse_response
from ragpipe.judging.limits.attempts import NO_ANSWER, AttemptRunner
from ragpipe.judging.limits.budget import Budget, BudgetUsedUp
from ragpipe.judging.limits.retries import RETRYABLE
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.redaction import Redactor, provider_secrets
from ragpipe.judging.served_model import ServedModel
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.token_count import is_cut
from ragpipe.judging.transports.call_records import AttemptTally, CallRecorder, Outcome, notify_while_silent
from ragpipe.judging.transports.provider_state import ProviderRegistry, ProviderState, RequestForm
from ragpipe.judging.transports.request_costs import RequestCosts
from ragpipe.schema.call import Call, Paid, Payment
from ragpipe.schema.price_rates import Rates

_PLAIN = "; where it is the answer's schema that is refused, judge.output_mode=plain sends none"


class LiveTransport:
    """Asks one provider. Lives in one event loop; `close` it there.

    `ask` returns a call whose status is `ok` or a kind of failure. It raises ProviderUnusable when the provider as a whole is
    unusable (every later `ask` raises the same), Incomplete when `max_calls` is used up, and JudgeError for a question that does
    not fit into the model's context window. A question that does not fit into the budget is a call with the status `budget`.
    `tell` gets notices for the user. What is learned is in `provider`, which all transports of a process share
    (`share_provider_state`). `rates` are the prices of replies; None: those of live ones.
    """

    section = "judge"
    """The part of the configuration that `settings` are."""

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        run_id: str,
        tell: Callable[[str], None] = lambda _: None,
        budget: Budget | None = None,
        rates: Rates | None = None,
    ):
        self.settings = settings
        self.provider: ProviderState = ProviderRegistry().state(settings)
        self._served = ServedModel(settings)
        self.attempts = AttemptRunner(settings, self.provider, give_up=self._end_of_outage, tell=self._notify)
        self._tell = tell
        self._rates = rates
        self._key = settings.api_key()
        secrets = [s for s in (self._key, *provider_secrets(settings.provider)) if s]
        self._redact = Redactor(secrets)
        # a server that wants no key is given a word such as `none`, and honest replies contain words
        redact_reply = Redactor(s for s in secrets if looks_random(s))
        self._calls = CallRecorder(run_id, self._redact, redact_reply)
        self._costs = None if budget is None else self._request_costs(budget)
        self._client: Client | None = None
        self._locks: dict[str, asyncio.Lock] = {}
        self._dead: ProviderUnusable | None = None

    def _request_costs(self, budget: Budget) -> RequestCosts:
        rates = self._rates or rates_for(self.settings)
        return RequestCosts(budget, self.settings, rates, check=self.attempts.check, tell=self._notify)

    def share_provider_state(self, providers: ProviderRegistry) -> None:
        """Continue with what this process has learned about the provider, and add to it."""
        self.provider = providers.state(self.settings)
        self.attempts.share(self.provider)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """One of `judge.concurrency` slots: hold it around `ask` and around the commit of its reply."""
        return self.attempts.questions

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Ask one question, with retries. Hold a `slot` meanwhile. `paid` is called for every answered attempt."""
        self._admit(question)
        tally = AttemptTally(paid)
        try:
            return await self._ask_in_turn(question, tally)
        except BudgetUsedUp as error:
            return self._held_back(question, error, tally)

    def _held_back(self, question: Question, error: BudgetUsedUp, tally: AttemptTally) -> Call:
        """The call of a question that does not fit into the budget."""
        self._notify(f"{error}; what was answered is kept, and questions without a reply are errors of this run")
        return self._calls.not_asked(question, "budget", f"{question.asker}: {error}", tally)

    def _admit(self, question: Question) -> None:
        """Count a question."""
        self.attempts.check()
        if excess := self.provider.window.excess(question.payload.messages):
            raise JudgeError("too_long", f"{question.asker}: {excess}")  # nothing was asked: nothing is stored
        self.provider.asked += 1
        if self.provider.asked > self.settings.max_calls:
            raise Incomplete(
                f"{self.section}.max_calls={self.settings.max_calls} is used up: this start has asked as many questions. What "
                f"was answered is kept: the same command goes on from here, with as many again; raise it to need fewer starts"
            )

    async def _ask_in_turn(self, question: Question, tally: AttemptTally) -> Call:
        """Ask a question whose form or schema is not proven alone."""
        kind = self.provider.output_modes.unproven(question)
        while kind not in self.provider.proven_forms:
            lock = self._lock_of(kind)
            async with lock:
                if kind not in self.provider.proven_forms and lock is self._lock_of(kind):
                    self.attempts.check()
                    return await self._ask_alone(question, kind, tally)
        return await self._ask(question, tally)

    def _lock_of(self, kind: str) -> asyncio.Lock:
        """What lets one question of a kind go alone: one lock for all until any call came back, then one for each kind."""
        return self._locks.setdefault(kind if self.provider.proven_forms else "", asyncio.Lock())

    async def _ask_alone(self, question: Question, kind: str, tally: AttemptTally) -> Call:
        """Ask the first question of its kind; a call that comes back, even with a refusal, proves the kind."""
        tries, notices = 1 + self.settings.retries, None
        if not self.provider.answered:
            watching = notify_while_silent(tally, tries=tries, place=self._place, notify=self._notify)
            notices = asyncio.create_task(watching)
        try:
            call = await self._ask(question, tally)
        finally:
            if notices is not None:
                notices.cancel()
        if call.status not in RETRYABLE or call.status == "empty_reply":
            self.provider.proven_forms.add(kind)
        return call

    def stop(self, why: RagpipeError) -> None:
        """Start no more attempts. Requests in flight go on; waiting questions raise `why` at once."""
        self.attempts.stop(why)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _ask(self, question: Question, tally: AttemptTally) -> Call:
        """Ask in the current request form, and again in another one where it is refused."""
        client, output_modes = self._open(), self.provider.output_modes
        while True:
            form = output_modes.form(question)
            tally.body = output_modes.body(question, form)
            request = client.prepare(tally.body)
            tally.wire_hash = request.wire_hash
            if self.provider.rate_limiter.counts_tokens:
                tally.demand = self.provider.token_demand.of(question.payload.messages)
            try:
                completion = await self._complete(client, request, question, tally)
            except AttemptError as attempt_error:
                error = attempt_error
            else:
                self.provider.circuit_breaker.record_success(question.step)
                output_modes.record_success(question, form)
                self.provider.window.observe(question.payload.messages, completion.tokens_in)
                if is_cut(question.payload.messages, completion.tokens_in):
                    self._notify_once(
                        "cut",
                        f"the server counted {completion.tokens_in:,} tokens of a prompt that has far more: it cuts prompts without a "
                        "word (Ollama: raise num_ctx); such replies are flagged (prompt_cut)",
                    )
                if is_odd_end(completion.finish_reason):
                    self._notify_once(
                        "end",
                        f"a reply has finish_reason {completion.finish_reason!r:.60}, which is not known: it may not be whole; such "
                        "replies are flagged (odd_end)",
                    )
                outcome = self._outcome(form, "ok", completion, "; ".join(completion.notes) or None)
                return self._calls.record(question, outcome, tally)
            if not output_modes.fall_back(error, question, form):
                return self._failed_call(question, form, tally, error)
            self._notify_of_form(question, form, error)

    def _notify_of_form(self, question: Question, refused: RequestForm, error: AttemptError) -> None:
        """Tell the user once what is asked in another form from here on: an answer schema, or all that has a system text."""
        if error.refused_parameter == "system_role":
            self._notify_once(
                "system_role",
                f"the system role was refused: its text begins the user's message from here on ({error.message})",
            )
        name = (question.payload.schema_json, refused.mode)
        if error.refused_parameter == "response_format" and name not in self.provider.announced:
            self.provider.announced.add(name)
            lower = self.provider.output_modes.form(question).mode
            self._notify(
                f"{refused.mode} was refused for {question.step}: it is asked as {lower} from here on ({error.message})"
            )

    async def _complete(
        self, client: Client, request: PreparedRequest, question: Question, tally: AttemptTally
    ) -> Completion:
        """Send one request until it succeeds or has no attempts left; within the budget, where there is one."""

        async def exchange(seconds: float) -> Completion:
            return await self.attempts.traffic.count(self._exchange(client, request, tally, seconds))

        if self._costs is not None:
            return await self._costs.run(self.attempts, question.key, exchange, tally)
        return await self.attempts.run(question.key, exchange, tally)

    def _end_of_outage(self, seconds: float, message: str) -> ProviderUnusable:
        return self._unusable(
            "unreachable",
            f"no answer for {seconds:.0f} s ({self.section}.outage_s={self.settings.outage_s:g}), the last: "
            f"{message}. What was answered is kept: the same command goes on from here",
        )

    async def _exchange(
        self, client: Client, request: PreparedRequest, tally: AttemptTally, seconds: float
    ) -> Completion:
        """One HTTP request with a total deadline in seconds, and its payment."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                response = await client.send(request)
        except TimeoutError:
            full = seconds >= self.settings.timeout_s
            limit = f"{self.section}.timeout_s={seconds:g} s" if full else f"{seconds:.3g} s"
            raise AttemptError("deadline", f"no whole answer within {limit}") from None
        except AttemptError as error:
            if error.no_connection and not self.provider.responded:
                raise self._unusable("unreachable", error.message) from None
            self._pay_for_error(error, tally)
            raise
        finally:
            tally.latency_ms = round((time.monotonic() - start) * 1000, 3)
        self.provider.responded = True
        self.provider.rate_limiter.observe(response.headers)
        try:
            completion = parse_response(response)
        except AttemptError as error:
            self._pay_for_error(error, tally)
            if error.retry_after is not None:
                self._pause(error.retry_after, error)
            raise
        self._pay(tally, completion)
        return completion

    def _pay_for_error(self, error: AttemptError, tally: AttemptTally) -> None:
        """An empty, cut or unreadable response that names its usage is paid for like any other."""
        if error.partial:
            self._pay(tally, Completion(**{"text": None, **error.partial}))

    def _pay(self, tally: AttemptTally, completion: Completion) -> None:
        if self._rates is None:
            self._rates = rates_for(self.settings)
        usd = completion.price(self._rates)
        if completion.usd is not None:
            self._notify_once(
                "usage.cost",
                "the provider names the price of each reply itself (usage.cost): that is what is booked as spent; what results "
                "rest on is priced by judge.prices where they are known",
            )
        tally.last_completion, tally.usd = completion, usd
        tally.answers += 1
        self._settle(tally, completion)
        tally.paid(
            Payment(self.settings.model, datetime.now(UTC).isoformat(timespec="milliseconds"), *completion.tokens, usd)
        )
        self._check_served_model(completion.model)

    def _notify_once(self, topic: str, text: str) -> None:
        if ("", topic) not in self.provider.announced:
            self.provider.announced.add(("", topic))
            self._notify(text)

    def _settle(self, tally: AttemptTally, completion: Completion) -> None:
        """Correct what the attempt took of a limit of tokens by what the provider has counted."""
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        if tally.demand is None or tokens_in is None or tokens_out is None:
            return
        limiter = self.provider.rate_limiter
        if not limiter.rules.counts_cached:
            tokens_in -= completion.tokens_cached or 0
        limiter.settle(self.provider.token_demand.record(tally.demand, tokens_in, tokens_out))

    def _check_served_model(self, model: str | None) -> None:
        """Raises ProviderUnusable for another model's reply where that is refused: it is paid for, and not kept."""
        if model is None or self._served.kind(model) != "other":
            return
        model = " ".join(model.split())[:100]
        finding = f"its reply is of {model!r}, and {self.settings.name!r} was asked"
        names = f"{self.section}.served_as=[{model}] takes that for the same model"
        option = f"{self.section}.served_model"
        if self._served.refuses:
            raise self._unusable(
                "other_model", f"{finding}: it was paid for and is not kept; {names}, {option}=warn keeps and flags it"
            )
        self._notify_once(
            model, f"{finding}: such replies are kept and flagged (other_model); {names}, {option}=refuse ends the run"
        )

    def _pause(self, seconds: float, error: AttemptError) -> None:
        """Pause all workers for as long as a rate limit asks, or end the run when any failure asks for too long a wait."""
        cap = self.settings.retry_after_cap_s
        if seconds > cap:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise self._unusable(
                error.kind,
                f"it asks to wait {seconds:,.0f} s, more than {self.section}.retry_after_cap_s={cap:g}: come back after "
                f"{back:%Y-%m-%d %H:%M:%S %Z} and start the same command again",
            )
        if error.kind == "rate_limit":
            self.provider.rate_limiter.pause(seconds)

    def _failed_call(self, question: Question, form: RequestForm, tally: AttemptTally, error: AttemptError) -> Call:
        """The call of a question that failed; raises ProviderUnusable when the provider as a whole is unusable."""
        self._check_provider(question, form, tally, error)
        message = error.message
        if error.kind == "bad_request" and "response_format" in tally.body:
            message += _PLAIN
        if error.kind == "cut_short":
            message = f"the reply was cut off at {self.section}.max_tokens={self.settings.max_tokens}: raise it"
        elif error.kind == "too_long":
            from ragpipe.judging.token_count import count_tokens

            tokens = sum(count_tokens(m["content"], self.settings.model) for m in question.payload.messages)
            self.provider.window.learn(error.message)
            message += f" (about {tokens:,} tokens by our own count)"
        completion = Completion(**{"text": None, **error.partial})
        outcome = self._outcome(form, error.kind, completion, f"{question.asker}: {message}")
        return self._calls.record(question, outcome, tally)

    def _check_provider(self, question: Question, form: RequestForm, tally: AttemptTally, error: AttemptError) -> None:
        """Raises ProviderUnusable when a failure means that later questions would fail too."""
        fix = self.provider.output_modes.fix(error, question, form) if error.refused_parameter else None
        if fix:
            message = f"it refuses {error.refused_parameter}: {error.message}. Set {fix}"
            raise self._unusable("bad_request", message) from None
        if error.kind in FATAL:
            raise self._unusable(error.kind, error.message) from None
        if error.kind in NO_ANSWER and not self.provider.answered:
            raise self._unusable(
                "unreachable", f"no answer came in this start, tries sent: {tally.attempts}; the last: {error.message}"
            ) from None
        breaker = self.provider.circuit_breaker
        if reason := breaker.record_failure(question.step, error, self.settings.breaker_after):
            kind, what = reason
            if kind == "bad_request" and "response_format" in tally.body:
                what += _PLAIN
            raise self._unusable(kind, what) from None

    def _outcome(self, form: RequestForm, status: str, completion: Completion, message: str | None) -> Outcome:
        return Outcome(status, completion, message, form.mode, self.provider.output_modes.parameters(form))

    def _open(self) -> Client:
        if self._client is None:
            variable = self.settings.key_variable
            if variable and self._key is None:
                raise self._unusable("auth", f"the environment variable {variable} is not set")
            self._client = make_client(self.settings, self._key)
            if self.settings.temperature is not None and "temperature" not in self.settings.sampling():
                self._notify(f"{self.settings.model} takes no temperature, so none is sent")
        return self._client

    def _unusable(self, kind: str, what: str) -> ProviderUnusable:
        """Mark the provider as unusable for all questions; the error to raise."""
        text = f"{self._place}: {what}"
        if kind == "auth":
            text += f"; {self.settings.key_source}"
        elif kind == "model_not_found":
            text += f"; check {self.section}.model and {self.section}.api_base"
        self._dead = self._dead or ProviderUnusable(self._redact(text), kind)
        self.attempts.stop(self._dead)
        return self._dead

    @property
    def _place(self) -> str:
        place = self.settings.api_base or f"the public endpoint of {self.settings.provider}"
        return f"{self.settings.model} at {place}"

    def _notify(self, text: str) -> None:
        """Tell the user, without the key."""
        self._tell(self._redact(f"{self.section}: {text}"))
