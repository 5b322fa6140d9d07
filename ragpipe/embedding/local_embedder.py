"""A transport to a local model: waiting texts are computed in one batch, in a thread, while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from ragpipe.core.errors import RagpipeError
from ragpipe.judging.cache_key import Question
from ragpipe.judging.vector_replies import Floats, vector_text
from ragpipe.schema.call import Call, Paid

TOGETHER = 256  # questions of one round at most: the others see the end of a run sooner
Texts = tuple[str, ...]


class ComputedReplies(NamedTuple):
    """A reply; `cut`: the model read only the beginning of the text."""

    text: str
    cut: bool = False


Compute = Callable[[Sequence[Texts]], Sequence[ComputedReplies | str]]


class TextEncoder(Protocol):
    """What turns texts into vectors and knows which of them it cuts."""

    def __call__(self, texts: Sequence[str]) -> list[Floats]: ...

    def cut(self, text: str) -> bool: ...


def vectors_by(embed: TextEncoder) -> Compute:
    """The replies to questions of one text each: its vector's bytes."""

    def compute(asked: Sequence[Texts]) -> list[ComputedReplies]:
        texts = [text for (text,) in asked]
        return [
            ComputedReplies(vector_text(vector), embed.cut(text))
            for text, vector in zip(texts, embed(texts), strict=True)
        ]

    return compute


class LocalTransport:
    """Replies by `compute`, from the texts of a question's messages; it runs in one thread at a time. Such a reply is a
    call without attempts and without a price; its `finish_reason` is "length" where the model cut the text.

    What `compute` raises, every waiting question raises: a model that cannot be loaded ends the run. At most `together` questions
    (None: 256) are computed in one round. With `drops_waiting` a run that is stopped ends after the round that is being computed: what waits
    was not paid for, and a slow model would need minutes for it.
    """

    def __init__(self, compute: Compute, *, together: int | None = None, drops_waiting: bool = False):
        self._compute, self._together, self._drops_waiting = compute, together, drops_waiting
        self._waiting: list[tuple[Texts, asyncio.Future[ComputedReplies]]] = []
        self._round: asyncio.Task[None] | None = None
        self._stopped: RagpipeError | None = None
        self.computed = 0
        self._in_batch = 0

    @property
    def uncomputed(self) -> int:
        """Questions whose reply is not computed yet."""
        return len(self._waiting) + self._in_batch

    def slot(self) -> AbstractAsyncContextManager[None]:
        """No limit: a question that waits costs nothing."""
        return nullcontext()

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Compute one reply, together with those that wait at the same time. Nobody is paid for it."""
        if self._stopped is not None:
            raise self._stopped
        future: asyncio.Future[ComputedReplies] = asyncio.get_running_loop().create_future()
        self._waiting.append((tuple(message["content"] for message in question.payload.messages), future))
        if self._round is None:
            self._round = asyncio.create_task(self._rounds())
        reply = await future
        return Call(
            question.key,
            question.payload.id,
            question.judge,
            "ok",
            text=reply.text,
            model=question.judge,
            finish_reason="length" if reply.cut else None,
            tokens_in=0,
            tokens_out=0,
            tokens_cached=0,
            attempts=0,
            output_mode="local",
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def stop(self, why: RagpipeError) -> None:
        """Begin no new question; what waits is computed, or raises `why` where it is dropped."""
        self._stopped = self._stopped or why
        if self._drops_waiting:
            waiting, self._waiting = self._waiting, []
            for _, future in waiting:
                if not future.done():
                    future.set_exception(self._stopped)

    async def close(self) -> None:
        if self._round is not None:
            self._round.cancel()
            self._round = None

    async def _rounds(self) -> None:
        await asyncio.sleep(0)  # whoever asks at the same time comes along
        while self._waiting:
            together = self._together or TOGETHER
            batch, self._waiting = self._waiting[:together], self._waiting[together:]
            batch = [(texts, future) for texts, future in batch if not future.done()]  # a cancelled one waits no more
            self._in_batch = len(batch)
            different = list(dict.fromkeys(texts for texts, _ in batch))
            try:
                results = await asyncio.to_thread(self._compute, different)
                replies = {
                    t: ComputedReplies(r) if isinstance(r, str) else r for t, r in zip(different, results, strict=True)
                }
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                self.computed += len(batch)
                for texts, future in batch:
                    if not future.done():
                        future.set_result(replies[texts])
            self._in_batch = 0
        self._round = None
