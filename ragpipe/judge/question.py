"""A question for a judge and its key, and what a run asks of the settings of a judge, of whatever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from ragpipe.core.call import Call, Paid, Payload, hash_of_parts
from ragpipe.core.digest import sha256
from ragpipe.core.errors import RagpipeError
from ragpipe.core.registry import imported
from ragpipe.core.settings import Settings
from ragpipe.core.source_hashes import SourceHashes, hash_modules, is_users, users_modules
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.prompt import Prompt

if TYPE_CHECKING:
    from ragpipe.judge.vectors import Floats, TokenMatch

A = TypeVar("A", bound=Answer)


class InProcessJudge(Protocol):
    """A judge that computes its answers in this process. They are not stored."""

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A: ...


class MissingPart(NamedTuple):
    """Why a model cannot run here: the key, what was found there, what was expected, and how to fix it."""

    key: str
    found: str
    expected: str
    fix: str


IMPLEMENTATION = ".implementation."
"""In the key of what differs between two identities: the code of a judge."""


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
        sources = self.sources().sources
        return {"kind": self.kind, **self.identity(), **({"implementation": sources} if sources else {})}

    def sources(self) -> SourceHashes:
        """The hashes of the modules of a judge from outside ragpipe; none for a shipped one, which is not imported here."""
        made_by = [imported(target) for target in (self.implementation, self.session_by) if target and is_users(target)]
        modules = [*users_modules(type(self)), *(name for each in made_by for name in users_modules(each))]
        return hash_modules(modules, "change a key of the judge's settings")

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


@dataclass(frozen=True)
class Question:
    """One payload for one judge, and the type that its reply is parsed into.

    `key` identifies the question in the call store; `fields` are the hashes of its parts. `judge` (the printable name) and
    `asker` (`case / metric / step`) are for messages only. `iteration` is the one that asks: that of the key, except for vectors and token matches, whose keys all iterations share.
    """

    key: str
    payload: Payload
    answer: type[Answer]
    judge: str
    fields: dict[str, str]
    asker: str
    iteration: int = 1

    @property
    def step(self) -> str:
        """The metric and the step, without the case."""
        return " / ".join(self.asker.rsplit(" / ", 2)[-2:])


class Transport:
    """How a question reaches a model. This base limits nothing and has nothing to stop; each transport has an `ask` of its own."""

    attempts: Any = None
    """Sends the requests (an `AttemptRunner`); None where no server is asked."""
    computed = 0
    """How many texts a model in this process has computed."""
    is_busy: Callable[[], bool] = staticmethod(lambda: False)
    """Whether work goes on that may ask more: whoever sends questions together waits for its end."""

    @property
    def uncomputed(self) -> int:
        """How many texts wait for a model in this process."""
        return 0

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Limits the questions in flight. Hold it until the reply is committed."""
        return nullcontext()

    async def ask(self, question: Question, paid: Paid) -> Call:
        """The reply. `paid` is called for every attempt that was answered."""
        raise NotImplementedError

    def stop(self, why: RagpipeError) -> None:
        """Start nothing more; requests in flight go on, and what waits raises `why`."""

    def share_provider_state(self, providers: Any) -> None:
        """Continue with what this process has learned about the providers (a `ProviderRegistry`), and add to it."""

    async def close(self) -> None:
        """Close the connections."""


def judge_parts(judge: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each field that identifies a judge, but for `shuffle_seed`: it shows in the messages of the questions that it
    changes, and a question with nothing to shuffle stays the same."""
    return {f"judge.{name}": sha256(value) for name, value in judge.items() if name != "shuffle_seed"}


def key_parts(payload: Payload, judge: Mapping[str, str], iteration: int, repeat: int) -> dict[str, str]:
    """The hash of each part of a question. Comparing the parts of two questions shows why one was asked again.

    In the key: the messages before any transport changes them, the answer schema, what identifies the judge (model,
    endpoint, sampling parameters, season; as `judge_parts`), the iteration and the repeat. Not in it: max_tokens, output
    mode, client, retries, timeouts, prices, template files and comments, names of metrics and classes.
    """
    return {**payload.parts, **judge, "iteration": _number(iteration), "repeat": _number(repeat)}


@lru_cache(maxsize=64)
def _number(value: int) -> str:
    return sha256(value)


def question_key(parts: Mapping[str, str]) -> str:
    """The key of a question: the sha256 of the hashes of its parts."""
    return hash_of_parts(parts)


IGNORED_ROLES = frozenset(("question", "history"))
"""Roles that decide no handler: they help where they are there."""


def values_by_role(prompt: Prompt, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values by role, without absent ones; None where two values have the same role."""
    arguments = {**prompt.optional, **values}
    roles: dict[str, Any] = {}
    for name, role in prompt.roles.items():
        if arguments.get(name) is None:
            continue
        if role in roles and role not in IGNORED_ROLES:
            return None
        roles[role] = arguments[name]
    return roles


def source_texts(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of the sources: chunks or strings, one or many."""
    sources = roles["sources"]
    if not isinstance(sources, list | tuple):
        sources = [sources]
    return tuple(source if isinstance(source, str) else str(source.text) for source in sources)


STEP, MATCH = "embed", "match"
