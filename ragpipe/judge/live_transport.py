"""The live transport: questions go to a provider, within its limits, and are retried in one place.

Until one call has come back, one question goes alone and the others wait for it: it checks URL, key and model, and finds the
output mode and the name of the token limit. So does the first question of each answer schema, whose mode may be refused. Nothing that leaves here contains the key.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

from ragpipe.core.call import Call, Paid, Payment
from ragpipe.core.errors import FATAL, Incomplete, JudgeError, Problem, ProviderUnusable, RagpipeError
from ragpipe.core.secrets import Redactor, looks_random, provider_secrets
from ragpipe.core.usage import Price
from ragpipe.judge.attempts import NO_ANSWER, RETRY_AFTER_CAP_S, RETRYABLE, AttemptRunner, is_passing
from ragpipe.judge.budget import Budget, BudgetUsedUp
from ragpipe.judge.call_records import NO_COMPLETION, AttemptTally, RequestCosts, notify_while_silent
from ragpipe.judge.capabilities import OPENAI_COMPATIBLE
from ragpipe.judge.client import AttemptError, Client, Completion
from ragpipe.judge.http_responses import is_odd_end, parse_response
from ragpipe.judge.limits import REACHED
from ragpipe.judge.pricing import count_tokens, is_cut, rates_for
from ragpipe.judge.provider_state import ProviderRegistry, ProviderState, RequestForm, ServedModel, context_excess
from ragpipe.judge.question import Question, Transport
from ragpipe.judge.settings import JudgeSettings

_REDACTED = "the reply held the key, which was replaced by ***"
_PLAIN = "; where it is the answer's schema that is refused, judge.output_mode=plain sends none"


class LiveTransport(Transport):
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
        rates: Price | None = None,
    ):
        self.settings = settings
        self.provider: ProviderState = ProviderRegistry().state(settings)
        self._served = ServedModel(settings)
        self.attempts: AttemptRunner = AttemptRunner(settings, self.provider, give_up=self._end_of_outage, tell=self._notify)
        self._tell = tell
        self._rates = rates
        self._key = settings.api_key()
        secrets = [s for s in (self._key, *provider_secrets(settings.provider)) if s]
        self._redact = Redactor(secrets)
        # a server that wants no key is given a word such as `none`, and honest replies contain words
        self._redact_reply = Redactor(s for s in secrets if looks_random(s))
        self._run_id = run_id
        self._costs: RequestCosts | None = None
        if budget is not None:
            price = rates or rates_for(settings)
            self._costs = RequestCosts(budget, settings, price, self._notify)
        self._client: Client | None = None
        self._locks: dict[str, asyncio.Lock] = {}
        self._dead: ProviderUnusable | None = None

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
        tally = AttemptTally(question=question, paid=paid)
        try:
            return await self._ask_in_turn(tally)
        except BudgetUsedUp as error:
            return self._held_back(tally, error)

    def _held_back(self, tally: AttemptTally, error: BudgetUsedUp) -> Call:
        self._notify(f"{error}; what was answered is kept, and questions without a reply are errors of this run")
        tally.form = None
        return self._call(tally, "budget", f"{tally.question.asker}: {error}")

    def _admit(self, question: Question) -> None:
        self.attempts.check()
        if excess := context_excess(self.settings, question.payload.messages):
            raise JudgeError("too_long", f"{question.asker}: {excess}")  # nothing was asked: nothing is stored
        self.provider.asked += 1
        if self.provider.asked > self.settings.max_calls:
            raise Incomplete(
                f"{self.section}.max_calls={self.settings.max_calls} is used up: this start has asked as many questions. What "
                f"was answered is kept: the same command goes on from here, with as many again; raise it to need fewer starts"
            )

    async def _ask_in_turn(self, tally: AttemptTally) -> Call:
        """Ask a question whose form or schema is not proven alone."""
        kind = self.provider.output_modes.unproven(tally.question)
        while kind not in self.provider.proven_forms:
            lock = self._lock_of(kind)
            async with lock:
                if kind not in self.provider.proven_forms and lock is self._lock_of(kind):
                    self.attempts.check()
                    return await self._ask_alone(kind, tally)
        return await self._ask(tally)

    def _lock_of(self, kind: str) -> asyncio.Lock:
        """What lets one question of a kind go alone: one lock for all until any call came back, then one for each kind."""
        return self._locks.setdefault(kind if self.provider.proven_forms else "", asyncio.Lock())

    async def _ask_alone(self, kind: str, tally: AttemptTally) -> Call:
        """Ask the first question of its kind; a call that comes back, even with a refusal, proves the kind."""
        tries, notices = 1 + self.settings.retries, None
        if not self.provider.answered:
            watching = notify_while_silent(tally, tries=tries, place=self._place, notify=self._notify)
            notices = asyncio.create_task(watching)
        try:
            call = await self._ask(tally)
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
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _ask(self, tally: AttemptTally) -> Call:
        """Ask in the current request form, and again in another one where it is refused."""
        client, output_modes, question = self._open(), self.provider.output_modes, tally.question
        while True:
            tally.form = form = output_modes.form(question)
            tally.body = output_modes.body(question, form)
            tally.request, tally.wire_hash = client.prepare(tally.body)
            if self.provider.rate_limiter.counts_tokens:
                tally.demand = self.provider.token_demand.of(question.payload.messages)
            try:
                completion = await self._complete(client, tally)
            except AttemptError as attempt_error:
                error = attempt_error
            else:
                return self._answered(tally, form, completion)
            if not output_modes.fall_back(error, question, form):
                return self._failed_call(tally, form, error)
            self._notify_of_form(question, form, error)

    def _answered(self, tally: AttemptTally, form: RequestForm, completion: Completion) -> Call:
        question, tokens_in = tally.question, completion.tokens_in
        self.provider.circuit_breaker.record_success(question.step)
        self.provider.output_modes.record_success(question, form)
        if is_cut(question.payload.messages, tokens_in):
            self._notify_once(
                "cut",
                f"the server counted {tokens_in:,} tokens of a prompt that has far more: it cuts prompts without a word (Ollama: "
                "raise num_ctx); such replies are flagged (prompt_cut)",
            )
        if is_odd_end(completion.finish_reason):
            self._notify_once(
                "end",
                f"a reply has finish_reason {completion.finish_reason!r:.60}, which is not known: it may not be whole; such "
                "replies are flagged (odd_end)",
            )
        return self._call(tally, "ok", "; ".join(completion.notes) or None, completion)

    def _notify_of_form(self, question: Question, refused: RequestForm, error: AttemptError) -> None:
        """Tell the user once what is asked in another form from here on: an answer schema, or all that has a system text."""
        if error.refused_parameter == "system_role":
            self._notify_once(
                "system_role", f"the system role was refused: its text begins the user's message from here on ({error.message})"
            )
        name = (question.payload.schema_json, refused.mode)
        if error.refused_parameter == "response_format" and name not in self.provider.announced:
            self.provider.announced.add(name)
            lower = self.provider.output_modes.form(question).mode
            self._notify(
                f"{refused.mode} was refused for {question.step}: it is asked as {lower} from here on ({error.message})"
            )

    async def _complete(self, client: Client, tally: AttemptTally) -> Completion:
        """Send one request until it succeeds or has no attempts left; within the budget, where there is one."""

        async def exchange(seconds: float) -> Completion:
            return await self.attempts.traffic.count(self._exchange(client, tally, seconds))

        if self._costs is not None:
            return await self._costs.run(self.attempts, exchange, tally)
        return await self.attempts.run(tally.question.key, exchange, tally)

    def _end_of_outage(self, seconds: float, message: str) -> ProviderUnusable:
        return self._unusable(
            "unreachable",
            f"no answer for {seconds:.0f} s ({self.section}.outage_s={self.settings.outage_s:g}), the last: "
            f"{message}. What was answered is kept: the same command goes on from here",
        )

    async def _exchange(self, client: Client, tally: AttemptTally, seconds: float) -> Completion:
        start = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                response = await client.send(tally.request)
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
            self._pay(tally, Completion(**{"text": None, **error.partial}), alone=is_passing(error))

    def _pay(self, tally: AttemptTally, completion: Completion, *, alone: bool = False) -> None:
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
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        tally.paid(Payment(self.settings.model, at, *completion.tokens, usd), alone=alone)
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
        if seconds > RETRY_AFTER_CAP_S:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise self._unusable(
                error.kind,
                f"it asks to wait {seconds:,.0f} s, more than {RETRY_AFTER_CAP_S:g} s: come back after "
                f"{back:%Y-%m-%d %H:%M:%S %Z} and start the same command again",
            )
        if error.kind == "rate_limit":
            self.provider.rate_limiter.pause(seconds)

    def _failed_call(self, tally: AttemptTally, form: RequestForm, error: AttemptError) -> Call:
        self._check_provider(tally, form, error)
        question, message = tally.question, error.message
        if error.kind == "bad_request" and "response_format" in tally.body:
            message += _PLAIN
        if error.kind == "cut_short":
            message = f"the reply was cut off at {self.section}.max_tokens={self.settings.max_tokens}: raise it"
        elif error.kind == "too_long":
            tokens = sum(count_tokens(m["content"], self.settings.model) for m in question.payload.messages)
            message += f" (about {tokens:,} tokens by our own count)"
        completion = Completion(**{"text": None, **error.partial})
        return self._call(tally, error.kind, f"{question.asker}: {message}", completion)

    def _check_provider(self, tally: AttemptTally, form: RequestForm, error: AttemptError) -> None:
        """Raises ProviderUnusable when a failure means that later questions would fail too."""
        question = tally.question
        fix = self.provider.output_modes.fix(error, question, form) if error.refused_parameter else None
        if fix:
            message = f"it refuses {error.refused_parameter}: {error.message}. Set {fix}"
            raise self._unusable("bad_request", message) from None
        if error.kind in FATAL:
            raise self._unusable(error.kind, error.message) from None
        has_answered = self.provider.answered or (self.provider.answered_before and error.kind in REACHED)
        if error.kind in NO_ANSWER and not has_answered:
            raise self._unusable(
                "unreachable", f"no answer came in this start, tries sent: {tally.attempts}; the last: {error.message}"
            ) from None
        breaker = self.provider.circuit_breaker
        if reason := breaker.record_failure(question.step, error, self.settings.breaker_after):
            kind, what = reason
            if kind == "bad_request" and "response_format" in tally.body:
                what += _PLAIN
            raise self._unusable(kind, what) from None

    def _call(self, tally: AttemptTally, status: str, message: str | None, completion: Completion = NO_COMPLETION) -> Call:
        """The call, without the provider's keys in `message`. Its tokens are those of the last answered attempt."""
        question, last, form = tally.question, tally.last_completion, tally.form
        text = self._redacted(completion.text)
        message = None if message is None else self._redact(message)
        if text != completion.text:
            message = "; ".join(filter(None, (message, _REDACTED)))
        return Call(
            key=question.key,
            payload_id=question.payload.id,
            judge=question.judge,
            status=status,
            text=text,
            message=message,
            model=self._redacted(completion.model),
            finish_reason=completion.finish_reason,
            tokens_in=last.tokens_in,
            tokens_out=last.tokens_out,
            tokens_cached=last.tokens_cached,
            tokens_reasoning=last.tokens_reasoning,
            tokens_written=last.tokens_written,
            fingerprint=self._redacted(completion.fingerprint),
            paid_usd=tally.usd,
            answers=tally.answers,
            latency_ms=tally.latency_ms,
            attempts=tally.attempts,
            output_mode="" if form is None else form.mode,
            sent={} if form is None else self.provider.output_modes.parameters(form),
            wire_hash=tally.wire_hash,
            fields=question.fields,
            run_id=self._run_id,
            iteration=question.iteration,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._redact_reply(text)

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


def client_name(settings: JudgeSettings) -> str:
    """`direct` for OpenAI-compatible endpoints whose address is known, else `litellm`."""
    if settings.client != "auto":
        return settings.client
    known = settings.api_base is not None or settings.provider == "openai"
    return "direct" if known and settings.provider in OPENAI_COMPATIBLE else "litellm"


def make_client(settings: JudgeSettings, key: str | None) -> Client:
    """The client, not yet connected. Its libraries are imported here or later, so that offline commands need none."""
    if client_name(settings) == "direct":
        from ragpipe.judge.http import DirectClient

        return DirectClient(settings, key)
    from ragpipe.judge.litellm_client import LitellmClient

    return LitellmClient(settings, key)


_OPENAI = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_OTHER_VARIABLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ai21", "aiohttp_openai", "custom_openai", "litellm_proxy", "lm_studio", "xinference"), _OPENAI),
    "text-completion-openai": _OPENAI,
    "azure": ("AZURE_OPENAI_ENDPOINT",),
    "bedrock": ("AWS_BEDROCK_RUNTIME_ENDPOINT",),
    "datarobot": ("DATAROBOT_ENDPOINT",),
    "featherless_ai": ("FEATHERLESS_API_BASE",),
    "fireworks_ai": ("FIREWORKS_API_BASE",),
    "gradient_ai": ("GRADIENT_AI_AGENT_ENDPOINT",),
    "huggingface": ("HF_API_BASE",),
    "lambda_ai": ("LAMBDA_API_BASE",),
    "meta_llama": ("LLAMA_API_BASE",),
    "mistral": ("MISTRAL_AZURE_API_BASE",),
    "ollama_chat": ("OLLAMA_API_BASE",),
    "text-completion-codestral": ("CODESTRAL_API_BASE",),
    "vertex_ai": ("VERTEXAI_API_BASE", "VERTEX_API_BASE"),
    "volcengine": ("ARK_API_BASE",),
    "watsonx": ("WATSONX_URL", "WX_URL", "WML_URL"),
}
"""Variables that litellm reads besides `<PROVIDER>_API_BASE` and `<PROVIDER>_BASE_URL`. Found with litellm 1.106.2, by the
requests that reached another server."""


def base_url_variables(provider: str) -> tuple[str, ...]:
    """The environment variables from which litellm would take a provider's base URL."""
    head = provider.upper().replace("-", "_")
    return tuple(dict.fromkeys((f"{head}_API_BASE", f"{head}_BASE_URL", *_OTHER_VARIABLES.get(provider, ()))))


def conflicting_base_url(settings: JudgeSettings, section: str, environ: Mapping[str, str] | None = None) -> Problem | None:
    """The problem when a variable names another server than the settings of this `section` do; None when none does."""
    if settings.api_base is not None:
        return None
    environ = os.environ if environ is None else environ
    direct = section == "judge" and client_name(settings) == "direct"
    name = next((name for name in base_url_variables(settings.provider) if environ.get(name)), None)
    if name is None:
        return None
    would = (
        f"the direct client would pass it over and ask the public {settings.provider}"
        if direct
        else "litellm would ask the server that it names"
    )
    return Problem(
        "environment",
        name,
        f"set, and {section}.api_base is not: {would}",
        f"the address of {settings.model} in the configuration, where it is part of the key of every reply",
        f"unset {name}, or set {section}.api_base to that server",
    )
