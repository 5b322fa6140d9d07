"""A call under way: its attempts, what they cost, and what the user hears of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ragpipe.core.call import Paid
from ragpipe.core.errors import ProviderUnusable
from ragpipe.core.usage import Amount, Price
from ragpipe.judge.attempts import AttemptRunner, Tally
from ragpipe.judge.budget import Budget, Hold
from ragpipe.judge.client import AttemptError, Completion
from ragpipe.judge.provider_state import RequestForm
from ragpipe.judge.question import Question
from ragpipe.judge.settings import JudgeSettings

NO_COMPLETION = Completion(None)


@dataclass(slots=True)
class AttemptTally(Tally):
    """A question and what its attempts have come to so far: `paid` is called for every answered attempt at once, `body` is
    the request of the last `form` without the model's name, `request` what the client sends of it, `usd` the price of the last answer."""

    question: Question = field(kw_only=True)
    paid: Paid = field(kw_only=True)
    form: RequestForm | None = None
    request: Any = None
    body: dict[str, Any] = field(default_factory=dict)
    wire_hash: str | None = None
    answers: int = 0
    usd: float | None = None
    last_completion: Completion = NO_COMPLETION


_NOTICE_AFTER_S = 8.0  # without any answer; the next notice comes after twice as long, and so on


async def notify_while_silent(tally: AttemptTally, *, tries: int, place: str, notify: Callable[[str], None]) -> None:
    """Tell the user that the provider has not answered yet, after 8, 16, 32 ... seconds, of up to so many tries."""
    began, wait = time.monotonic(), _NOTICE_AFTER_S
    while True:
        await asyncio.sleep(wait)
        passed = time.monotonic() - began
        text = f"no answer yet from {place} after {passed:.0f} s: try {max(1, tally.attempts)} of {tries}"
        notify(f"{text}; the one before: {tally.last_error}" if tally.last_error else text)
        wait = passed


_PER_REQUEST = 64  # tokens of a chat template: its opening, a default system prompt
_PER_MESSAGE = 16  # tokens that separate messages and name their roles
_STRUCTURED = 512  # tokens with which a provider introduces a schema or a tool; Anthropic documents up to 346


class RequestCosts:
    """Sends requests within a budget, at the `price` of the judge or embedder of `settings`. The bytes of messages and
    schema are never fewer than a prompt's tokens; where a provider counts more all the same, `tell` gets a notice, and later
    holds grow by the largest ratio seen."""

    def __init__(self, budget: Budget, settings: JudgeSettings, price: Price, tell: Callable[[str], None]):
        self.budget, self._price, self._tell = budget, price, tell
        self._max_tokens = settings.max_tokens or 0  # an embedding has none; a judge without a bound is refused
        self._schemas: dict[int, tuple[Any, int]] = {}  # by the identity of a response format, with the format itself
        self._surplus = 1.0

    def bound(self, body: dict[str, Any]) -> Amount:
        """The most that a request can cost; its tokens are those of the longest reply, and the most that the prompt can have."""
        messages = body["messages"]
        tokens = _PER_REQUEST + sum(_PER_MESSAGE + len(message["content"].encode()) for message in messages)
        if (response_format := body.get("response_format")) is not None:
            tokens += self._schema_bound(response_format)
        if self._surplus > 1:
            tokens = round(tokens * self._surplus) + 1
        usd = self._price.most_usd(tokens, self._max_tokens)
        return Amount(usd or 0.0, tokens + self._max_tokens, 1)

    def _schema_bound(self, response_format: Any) -> int:
        """The tokens that a response format adds to the prompt, at most. That of a schema is one object in all requests."""
        if "json_schema" not in response_format:
            return _STRUCTURED
        name = id(response_format)
        if name not in self._schemas:  # the format is kept too, so that no other gets its identity
            size = len(json.dumps(response_format).encode())
            self._schemas[name] = (response_format, size + _STRUCTURED)
        return self._schemas[name][1]

    async def run(
        self, attempts: AttemptRunner, exchange: Callable[[float], Coroutine[Any, Any, Completion]], tally: AttemptTally
    ) -> Completion:
        """As `attempts.run`, with each attempt admitted once it fits, and booked. Raises BudgetUsedUp, and what ended the run while
        it waited."""
        holds: list[Hold] = []

        async def admit() -> None:
            holds.append(await self.budget.reserve(self.bound(tally.body)))
            try:
                attempts.check()  # the wait for the budget may have been long
            except BaseException:
                self.budget.settle(holds.pop(), Amount())
                raise

        async def send(seconds: float) -> Completion:
            return await self.send(holds.pop(), tally, partial(exchange, seconds))

        return await attempts.run(tally.question.key, send, tally, admit=admit)

    async def send(self, hold: Hold, tally: AttemptTally, send: Callable[[], Coroutine[Any, Any, Completion]]) -> Completion:
        """Send one request that was admitted, and book it. Raises what `send` raises.

        An attempt that was answered costs what its usage says, or its hold where it names none. One that was refused costs nothing.
        One whose end nobody knows is assumed to have cost its hold.
        """
        answers = tally.answers
        try:
            completion = await send()
        except BaseException as error:
            is_refused = isinstance(error, ProviderUnusable) or (isinstance(error, AttemptError) and error.unbilled)
            if tally.answers > answers:  # what was answered all the same
                self.budget.settle(hold, self._cost(tally.last_completion, hold))
            else:
                self.budget.settle(hold, Amount() if is_refused else None)
            raise
        self.budget.settle(hold, self._cost(completion, hold))
        return completion

    def _cost(self, completion: Completion, hold: Hold) -> Amount:
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        if tokens_in is None or tokens_out is None:
            return hold.amount
        prompt_bound = hold.amount.tokens - self._max_tokens
        if tokens_in > prompt_bound:
            self._grow(tokens_in / prompt_bound)
        return Amount(completion.price(self._price) or 0.0, tokens_in + tokens_out, 1)

    def _grow(self, ratio: float) -> None:
        """Hold more from here on: the provider counted so many times the bound."""
        if self._surplus == 1:
            self._tell(
                f"the provider counted {ratio:.2f} times the prompt tokens that the request can have by its bytes: it adds a "
                "prompt of its own. That call may have gone beyond the budget; later ones hold as much more"
            )
        self._surplus *= 1.1 * ratio
