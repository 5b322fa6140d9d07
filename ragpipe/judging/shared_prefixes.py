"""The order of questions with the same beginning: one goes first, the others follow when the provider has it in its cache.

Providers cache the beginning of a prompt once a request with it is answered, from about 1,024 tokens on, and charge a
part of the price for what they find there. Questions about one case begin alike (instructions, contexts), and so do those
about several answers to one question. Sent at once, each would be charged in full.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

from ragpipe.judging.cache_key import Question
from ragpipe.judging.capabilities import LOCAL, capabilities
from ragpipe.judging.settings import JudgeSettings

LEAST = 4096
"""Characters, about 1,024 tokens: a shorter beginning is cached by no provider, and not worth a wait."""
BLOCK = 512
"""Characters, about 128 tokens, in which beginnings are compared."""
REMEMBERED = 50_000
"""Beginnings that are remembered, the newest ones: providers forget theirs after some minutes."""


class SharedPrefixes:
    """The beginnings of the questions of one session. It belongs to one event loop.

    `sent` counts the characters of all prompts, `shared` those of beginnings that an earlier answered prompt had.

    Args:
        by_schema: whether questions with different answer schemas share nothing: the provider puts the schema before the
            messages.
        waits: whether questions wait for each other; if not, beginnings are only counted.
    """

    def __init__(self, *, by_schema: bool, waits: bool = True):
        self.sent = self.shared = 0
        self._by_schema, self._waits = by_schema, waits
        self._answered: OrderedDict[int, None] = OrderedDict()
        self._leading: dict[int, asyncio.Future[None]] = {}

    @classmethod
    def of(cls, settings: JudgeSettings) -> SharedPrefixes:
        """As a judge's provider caches."""
        mode = (
            settings.output_mode
            if settings.output_mode != "auto"
            else capabilities(settings.model, settings.capabilities).modes[0]
        )
        is_own = settings.api_base is not None or settings.provider in LOCAL
        return cls(by_schema=mode == "json_schema" and not is_own, waits=settings.share_prefixes)

    @property
    def share(self) -> float | None:
        """The share of all characters that began as an earlier prompt did, 0 to 1; None before the first one."""
        return self.shared / self.sent if self.sent else None

    @asynccontextmanager
    async def turn(self, question: Question) -> AsyncIterator[None]:
        """Wait while a question with the same long beginning is under way; ask inside. Takes no slot meanwhile."""
        text = "".join([f"{message['role']}\n{message['content']}\n" for message in question.payload.messages])
        starts = self._starts(text, question.payload.schema_json if self._by_schema else "")
        if not starts:
            self.sent += len(text)
            yield
            return
        while self._waits and (leader := self._leader(starts)) is not None:
            await asyncio.shield(leader)
        answered = self._depth(starts, self._answered)
        self.sent += len(text)
        self.shared += _characters(answered)
        led = [start for start in starts[answered:] if start not in self._leading]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leading.update(dict.fromkeys(led, done))
        try:
            yield
        finally:
            for start in led:
                del self._leading[start]
            self._remember(starts)
            done.set_result(None)

    def _starts(self, text: str, seed: str) -> list[int]:
        """The hashes of the text's beginnings: of the shortest that counts, and of each block more."""
        if len(text) < LEAST:
            return []
        last = hash((seed, text[:LEAST]))
        starts = [last]
        for end in range(LEAST + BLOCK, len(text) + 1, BLOCK):
            last = hash((last, text[end - BLOCK : end]))
            starts.append(last)
        return starts

    def _leader(self, starts: list[int]) -> asyncio.Future[None] | None:
        """The question to wait for: one under way that shares enough more than those that were answered."""
        depth = self._depth(starts, self._leading)
        gained = _characters(depth) - _characters(self._depth(starts, self._answered))
        return self._leading[starts[depth - 1]] if gained >= LEAST else None

    @staticmethod
    def _depth(starts: list[int], known: Container[int]) -> int:
        """How many of the beginnings are known, counted to the longest one."""
        return next((depth for depth in range(len(starts), 0, -1) if starts[depth - 1] in known), 0)

    def _remember(self, starts: list[int]) -> None:
        for start in starts:
            self._answered[start] = None
            self._answered.move_to_end(start)
        while len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)


def _characters(depth: int) -> int:
    """The length of the beginning at this depth."""
    return LEAST + (depth - 1) * BLOCK if depth else 0
