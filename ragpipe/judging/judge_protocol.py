"""What a metric sees of a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ragpipe.judging.vector_replies import Floats, TokenMatch
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answers import Answer

A = TypeVar("A", bound=Answer)


class Judge(Protocol):
    """Ask one question and get a typed answer.

    `prompt` is rendered with `values`; the answer is read strictly. Raises JudgeError when no valid answer can be had
    and Skipped when this judge cannot answer such a question; a metric lets both pass. Calls may be awaited one after
    another (a chain) or together (`asyncio.gather`).
    """

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A: ...

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        """One vector (float32) for each text, in order, by the run's embedder. Raises Skipped (`no_embedder`) when it has
        none and JudgeError when a vector cannot be had. Only for metrics with `needs_embedder`."""
        ...

    def was_truncated(self, text: str, /) -> bool:
        """Whether the embedder said that it read only the beginning of this text: known once its vector is there, False
        where the embedder does not know."""
        ...

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        """Both texts compared token by token, by the encoder of these settings (the metric's `encoder_settings`). `idf`: a
        token weighs by its rarity in the references of the run's whole data set."""
        ...
