"""The `stored` transport: replies come from the call store alone. No network; a missing reply is an error that says whose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.judging.cache_key import Question
from ragpipe.schema.call import Call, Paid


class StoredTransport:
    """Answers every question that the store did not with the failure `missing_reply`, naming case, metric and step.

    With `fix` a missing reply ends the run instead, as a DataError that says how to fix it.
    """

    def __init__(self, fix: str = ""):
        self._fix = fix

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        yield

    async def ask(self, question: Question, paid: Paid) -> Call:
        if self._fix:
            raise DataError(
                "a reply that is needed was never given",
                [
                    Problem(
                        question.asker,
                        "reply",
                        f"none for this question (key {question.key[:12]})",
                        "a stored reply",
                        self._fix,
                    )
                ],
            )
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
        pass  # nothing is ever under way

    async def close(self) -> None:
        pass
