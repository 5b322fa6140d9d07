"""The order of questions with the same beginning: one goes first, the others follow when the provider has it in its cache.

Providers cache the beginning of a prompt once a request with it is answered, from about 1,024 tokens on, and charge a
part of the price for what they find there. Questions about one case begin alike (instructions, contexts), and so do those
about several answers to one question. Sent at once, each would be charged in full.

Some providers (Anthropic) cache only what a request marks, and charge more for writing it. There the first question that repeats a
beginning marks its end, while others wait for it, and the rest find it in the cache.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from ragpipe.judging.cache_key import Question
from ragpipe.judging.capabilities import LOCAL, capabilities
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.call import Message

LEAST = 4096
"""Characters, about 1,024 tokens: a shorter beginning is cached by no provider, and not worth a wait."""
BLOCK = 512
"""Characters, about 128 tokens, in which beginnings are compared."""
MARKED = frozenset({"anthropic"})
"""Providers that cache what a request marks, and nothing else."""
REMEMBERED = 50_000
"""Beginnings that are remembered, the newest ones: providers forget theirs after some minutes."""


class SharedPrefixes:
    """The beginnings of the questions of one session. It belongs to one event loop.

    `sent` counts the characters of all prompts, `shared` those of beginnings that an earlier answered prompt had.

    Args:
        by_schema: whether questions with different answer schemas share nothing: the provider puts the schema before the
            messages.
        waits: whether questions wait for each other; if not, beginnings are only counted.
        marks: whether the provider caches only what is marked.
    """

    def __init__(self, *, by_schema: bool, waits: bool = True, marks: bool = False):
        self.sent = self.shared = 0
        self._by_schema, self._waits, self._marks = by_schema, waits, marks and waits
        self._answered: OrderedDict[int, int] = OrderedDict()  # how often each beginning was answered
        self._marked: OrderedDict[int, int] = OrderedDict()  # the same of those whose end was marked
        self._leading: dict[int, asyncio.Future[None]] = {}
        self._queued = Counter[int]()  # questions that wait, by the beginning that they wait for

    @classmethod
    def of(cls, settings: JudgeSettings) -> SharedPrefixes:
        """As a judge's provider caches."""
        mode = (
            settings.output_mode
            if settings.output_mode != "auto"
            else capabilities(settings.model, settings.capabilities).modes[0]
        )
        is_own = settings.api_base is not None or settings.provider in LOCAL
        marks = settings.provider in MARKED
        return cls(by_schema=mode == "json_schema" and not is_own, waits=settings.share_prefixes, marks=marks)

    @property
    def share(self) -> float | None:
        """The share of all characters that began as an earlier prompt did, 0 to 1; None before the first one."""
        return self.shared / self.sent if self.sent else None

    def turn(self, question: Question) -> AbstractAsyncContextManager[tuple[int, ...]]:
        """Wait while a question with the same long beginning is under way; ask inside. Takes no slot meanwhile. Gives the places of the
        prompt that are to be marked, in characters (`prompt_text`); none where the provider needs no marks."""
        text = prompt_text(question.payload.messages)
        starts = self._starts(text, question.payload.schema_json if self._by_schema else "")
        if starts:
            return self._turn(starts, len(text))
        self.sent += len(text)
        return nullcontext(())

    @asynccontextmanager
    async def _turn(self, starts: list[int], characters: int) -> AsyncIterator[tuple[int, ...]]:
        while self._waits and (shared := self._led(starts)) is not None:
            self._queued[shared] += 1
            try:
                await asyncio.shield(self._leading[shared])
            finally:
                self._queued[shared] -= 1
                if not self._queued[shared]:
                    del self._queued[shared]
        answered, cached = self._depth(starts, self._answered), self._depth(starts, self._cached)
        self.sent += characters
        self.shared += _characters(answered)
        marks = self._marks_for(starts, answered, cached)
        led = [start for start in starts[cached:] if start not in self._leading]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leading.update(dict.fromkeys(led, done))
        try:
            yield tuple(map(_characters, marks))
        finally:
            for start in led:
                del self._leading[start]
            _remember(self._answered, starts)
            _remember(self._marked, [starts[depth - 1] for depth in marks])
            done.set_result(None)

    @property
    def _cached(self) -> Container[int]:
        """The beginnings that the provider has."""
        return self._marked if self._marks else self._answered

    def _marks_for(self, starts: list[int], answered: int, cached: int) -> list[int]:
        """The depths at which a prompt is marked: where it is in the cache, and where it is worth writing: another question waits for
        this beginning, or two have had it."""
        if not self._marks:
            return []
        marks = [cached] if cached else []
        if answered > cached:
            last = starts[answered - 1]
            if self._queued[last] > 0 or self._answered[last] > 1:
                marks.append(answered)
        return marks

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

    def _led(self, starts: list[int]) -> int | None:
        """The beginning to wait for: that of a question under way which shares enough more than what is in the cache."""
        depth = self._depth(starts, self._leading)
        gained = _characters(depth) - _characters(self._depth(starts, self._cached))
        return starts[depth - 1] if gained >= LEAST else None

    @staticmethod
    def _depth(starts: list[int], known: Container[int]) -> int:
        """How many of the beginnings are known, counted to the longest one."""
        return next((depth for depth in range(len(starts), 0, -1) if starts[depth - 1] in known), 0)


def prompt_text(messages: Iterable[Message]) -> str:
    """The text of a prompt, in whose characters beginnings are measured."""
    return "".join([f"{message['role']}\n{message['content']}\n" for message in messages])


def _remember(known: OrderedDict[int, int], starts: Iterable[int]) -> None:
    for start in starts:
        known[start] = known.get(start, 0) + 1
        known.move_to_end(start)
    while len(known) > REMEMBERED:
        known.popitem(last=False)


def _characters(depth: int) -> int:
    """The length of the beginning at this depth."""
    return LEAST + (depth - 1) * BLOCK if depth else 0
