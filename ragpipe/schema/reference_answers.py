"""Reference answers: which of several count, and several of them as one text for a judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from ragpipe.schema.text_forms import is_blank

ReferenceRule = Literal["any", "first", "all"]
"""Which of a case's references count: any one of them, the first alone, or all of them."""


def distinct_references(texts: Iterable[str]) -> list[str]:
    """The references that say something, each once, in order: people who wrote the same answer are one reference."""
    by_text: dict[str, str] = {}
    for text in texts:
        if not is_blank(text):
            by_text.setdefault(text.strip(), text)
    return list(by_text.values())


class AnyReference(str):
    """Several reference answers (`texts`) as one text that numbers them and says that any one will do.

    It takes the place of a single reference. A prompt prints every answer between tags of its own (`laid_out`) and what
    is said of them outside: a judge takes no instructions from text between tags.
    """

    texts: tuple[str, ...]

    def __new__(cls, texts: Sequence[str]) -> AnyReference:
        made = super().__new__(cls, _laid_out(texts, str))
        made.texts = tuple(texts)
        return made

    def __getnewargs__(self) -> tuple[tuple[str, ...]]:  # type: ignore[override]
        return (self.texts,)

    def laid_out(self, fenced: Callable[[str], str]) -> str:
        """The text with every answer as `fenced` prints it."""
        return _laid_out(self.texts, fenced)


def _laid_out(texts: Sequence[str], printed: Callable[[str], str]) -> str:
    head = (
        f"Any one of these {len(texts)} reference answers will do. Each is right by itself: what is measured by the reference "
        "answer is measured by the one that fits best, and what only the others say is not asked for."
    )
    return "\n\n".join([head, *(f"Reference answer {n}:\n{printed(text)}" for n, text in enumerate(texts, 1))])
