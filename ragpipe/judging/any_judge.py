"""What a run asks of the settings of a judge, of whatever kind it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from ragpipe.core.registry import imported
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.settings import Settings

if TYPE_CHECKING:
    from ragpipe.judging.vector_replies import Floats, TokenMatch

A = TypeVar("A", bound=Answer)


class InProcessJudge(Protocol):
    """A judge that computes its answers in this process. They are not stored."""

    version: str

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A: ...


class MissingPart(NamedTuple):
    """Why a model cannot run here: the key, what was found there, what was expected, and how to fix it."""

    key: str
    found: str
    expected: str
    fix: str


class AnyJudge(Settings):
    """The base of the settings of every judge, one class per `kind` (`core/registry.py`). One that answers in this process
    names its `implementation`."""

    implementation: ClassVar[str] = ""
    """The `module:class` of a judge in this process, which is made with these settings; empty where a server is asked."""
    session_by: ClassVar[str] = ""
    """The `module:function` that makes the session of a judge that keeps what it read in the call store."""
    computes: ClassVar[bool] = False
    """Whether a model computes here: many cases are open at once, so that it gets batches, and another runner may run it."""
    keeps_replies: ClassVar[bool] = True
    """Whether the call store has anything of it."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.kind

    @property
    def title(self) -> str:
        """What sentences call a judge that is no language model."""
        return f"the judge {self.label}"

    def identity_of_judge(self) -> dict[str, Any]:
        """What an answer depends on besides the question: part of every question's key, and of the run's id."""
        return {"kind": self.kind, **self.identity()}

    def missing(self) -> MissingPart | None:
        """The first thing without which it cannot answer here; None when all is there. Imports nothing heavy."""
        return None

    def in_process(self) -> InProcessJudge | None:
        """The judge that answers in this process, without stored readings; None where a server is asked."""
        return imported(self.implementation)(self) if self.implementation else None


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
