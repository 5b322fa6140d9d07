"""What a judge session is built on: a transport, and judges that compute their answers here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from ragpipe.core.errors import RagpipeError
from ragpipe.judging.cache_key import Question
from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.call import Call, Paid
from ragpipe.schema.judge_answers.answer_type import Answer

A = TypeVar("A", bound=Answer)


class Transport(Protocol):
    """How a question reaches a model. `slot` limits the questions in flight; hold it until the reply is committed."""

    def slot(self) -> AbstractAsyncContextManager[None]: ...
    async def ask(self, question: Question, paid: Paid) -> Call: ...
    def stop(self, why: RagpipeError) -> None: ...
    async def close(self) -> None: ...


@runtime_checkable
class SharesProviderState(Protocol):
    """A transport that shares what is learned about a provider with the other transports of the process."""

    def share_provider_state(self, providers: ProviderRegistry) -> None: ...


@runtime_checkable
class SendsRequests(Protocol):
    """A transport that sends requests to a server; `attempts` counts them."""

    attempts: AttemptRunner

    def stop(self, why: RagpipeError) -> None: ...


@runtime_checkable
class GathersQuestions(Protocol):
    """A transport that sends questions together, once no other can come: `is_busy` says that work goes on which may ask more."""

    is_busy: Callable[[], bool]


@runtime_checkable
class ComputesTexts(Protocol):
    """A transport to a model in this process: how many texts it has computed, and how many wait for it."""

    computed: int

    @property
    def uncomputed(self) -> int: ...


@runtime_checkable
class ReadsByModel(Protocol):
    """A judge in this process that waits for a model: `read` gives its answers. Its `answer` tells, without the model, whether it
    could answer."""

    async def read(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A: ...
