"""The `stored` transport: replies come from the call store alone, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.judging.cache_key import Question
from ragpipe.schema.call import Call, Paid


class StoredTransport:
    """Answers every question that is not in the store with the failure `missing_reply`, which names case, metric and step.

    With `fix` a missing reply ends the run instead, with a DataError that says what to do.
    """

    def __init__(self, fix: str = ""):
        self._fix = fix

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        yield

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

    def stop(self, why: RagpipeError) -> None:
        pass  # nothing is ever in flight

    async def close(self) -> None:
        pass
