"""The judge as a metric sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ragpipe.judging.vector_replies import Floats, TokenMatch
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer

A = TypeVar("A", bound=Answer)


class Judge(Protocol):
    """Ask one question and get a typed answer.

    `prompt` is rendered with `values`, and the reply is parsed strictly. Raises JudgeError when there is no valid answer,
    and Skipped when this judge cannot answer such a question; a metric catches neither. Calls may be awaited one after
    another or together (`asyncio.gather`).
    """

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A: ...

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        """One float32 vector per text, in order, from the run's embedder. Raises Skipped (`no_embedder`) when the run has
        none, and JudgeError when there is no vector. Only for metrics with `needs_embedder`."""
        ...

    def was_truncated(self, text: str, /) -> bool:
        """Whether the embedder read only the beginning of this text. Known once its vector is there; False where the
        embedder does not report it."""
        ...

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        """Compare two texts token by token with the encoder of these settings (the metric's `encoder_settings`). With
        `idf` tokens are weighted by their rarity in the references of the run's data set."""
        ...
