"""What the requests of one transport may cost at most, and what they did cost: held in a budget and booked in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragpipe.core.errors import ProviderUnusable
from ragpipe.judging.clients.client import AttemptError, Completion
from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.limits.budget import Budget, Reservation
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.call_records import AttemptTally
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.usage import Amount

_PER_REQUEST = 64  # tokens of a chat template: its opening, a default system prompt
_PER_MESSAGE = 16  # tokens that separate messages and name their roles
_STRUCTURED = 512  # tokens with which a provider introduces a schema or a tool; Anthropic documents up to 346


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """What is held for a request, and the most prompt tokens that it can have."""

    hold: Reservation
    prompt_bound: int


class RequestCosts:
    """Sends requests within a budget.

    A token of a byte-level vocabulary has at least one byte. So the bytes of the messages and of the schema, with what a chat
    template adds, are never fewer than the tokens of the prompt, whatever the provider's encoding. Where a provider counts more all
    the same, the user is told, and later holds grow by the largest ratio seen.

    Args:
        budget: the account.
        settings: the judge or embedder that is asked.
        rates: its prices.
        check: raises where nothing more is to be sent: a wait for the budget may be long.
        tell: gets a notice for the user.
    """

    def __init__(
        self,
        budget: Budget,
        settings: JudgeSettings,
        rates: Rates,
        *,
        check: Callable[[], None],
        tell: Callable[[str], None],
    ):
        self.budget, self._check = budget, check
        self._rates, self._tell = rates, tell
        self._max_tokens = (
            settings.max_tokens or 0
        )  # an embedding has no completion; a judge without a bound is refused
        self._schemas: dict[int, tuple[Any, int]] = {}  # by the identity of a response format, with the format itself
        self._surplus = 1.0

    def bound(self, body: dict[str, Any]) -> tuple[int, Amount]:
        """The most prompt tokens that a request body can have, and the most that the request can cost."""
        messages = body["messages"]
        tokens = _PER_REQUEST + sum(_PER_MESSAGE + len(message["content"].encode()) for message in messages)
        if (response_format := body.get("response_format")) is not None:
            tokens += self._schema_bound(response_format)
        if self._surplus > 1:
            tokens = round(tokens * self._surplus) + 1
        usd = self._rates.most_usd(tokens, self._max_tokens)
        return tokens, Amount(usd or 0.0, tokens + self._max_tokens, 1)

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
        self,
        attempts: AttemptRunner,
        key: str,
        exchange: Callable[[float], Coroutine[Any, Any, Completion]],
        tally: AttemptTally,
    ) -> Completion:
        """As `attempts.run`, with each attempt admitted and booked. Raises BudgetUsedUp too."""
        held: list[HeldRequest] = []

        async def admit() -> None:
            held.append(await self.admit(tally))

        async def send(seconds: float) -> Completion:
            return await self.send(held.pop(), tally, partial(exchange, seconds))

        return await attempts.run(key, send, tally, admit=admit)

    async def admit(self, tally: AttemptTally) -> HeldRequest:
        """Hold what the next attempt of a call may cost, once it fits. Raises BudgetUsedUp, and what ended the run by then."""
        held = await self.reserve(tally.body)
        try:
            self._check()
        except BaseException:
            self.budget.release(held.hold)
            raise
        return held

    async def send(
        self, held: HeldRequest, tally: AttemptTally, send: Callable[[], Coroutine[Any, Any, Completion]]
    ) -> Completion:
        """Send one request that was admitted, and book it. Raises what `send` raises.

        An attempt that was answered costs what its usage says. One that was refused costs nothing. One whose end nobody
        knows is assumed to have cost its hold.
        """
        answers = tally.answers
        try:
            completion = await send()
        except BaseException as error:
            self.book_failure(held, error, tally.last_completion if tally.answers > answers else None)
            raise
        self.book(held, completion)
        return completion

    async def reserve(self, body: dict[str, Any], name: str = "") -> HeldRequest:
        """Hold what a request may cost, once it fits. Raises BudgetUsedUp."""
        prompt_bound, amount = self.bound(body)
        return HeldRequest(await self.budget.reserve(amount, name), prompt_bound)

    def reserve_now(self, body: dict[str, Any], name: str) -> HeldRequest | None:
        """As `reserve`; None where it does not fit yet."""
        prompt_bound, amount = self.bound(body)
        hold = self.budget.reserve_now(amount, name)
        return None if hold is None else HeldRequest(hold, prompt_bound)

    def book(self, held: HeldRequest, completion: Completion) -> None:
        """Book what an answered request has cost."""
        self.budget.settle(held.hold, self._cost(completion, held.prompt_bound))

    def book_failure(self, held: HeldRequest, error: BaseException, completion: Completion | None) -> None:
        """Book a request that ended with an error: `completion` is what was answered all the same, None for nothing."""
        if completion is not None:
            self.book(held, completion)
        elif isinstance(error, ProviderUnusable) or (isinstance(error, AttemptError) and error.unbilled):
            self.budget.release(held.hold)
        else:
            self.budget.assume(held.hold)

    def _cost(self, completion: Completion, prompt_bound: int) -> Amount | None:
        """What an answered attempt has cost; None where it names no usage."""
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        if tokens_in is None or tokens_out is None:
            return None
        if tokens_in > prompt_bound:
            self._grow(tokens_in / prompt_bound)
        return Amount(completion.price(self._rates) or 0.0, tokens_in + tokens_out, 1)

    def _grow(self, ratio: float) -> None:
        """Hold more from here on: the provider counted so many times the bound."""
        if self._surplus == 1:
            self._tell(
                f"the provider counted {ratio:.2f} times the prompt tokens that the request can have by its bytes: it adds a "
                "prompt of its own. That call may have gone beyond the budget; later ones hold as much more"
            )
        self._surplus *= 1.1 * ratio
