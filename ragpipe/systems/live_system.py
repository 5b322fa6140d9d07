"""Systems that are asked while the run goes on: a Python callable, an HTTP endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ragpipe.schema.sample import Sample
from ragpipe.systems.answer_costs import AnswerCosts
from ragpipe.systems.python_system import PythonCallable
from ragpipe.systems.settings import LiveSystem, PythonSystem

if TYPE_CHECKING:
    from ragpipe.systems.http_system import HttpEndpoint


class System(Protocol):
    """Gives the raw output of one sample, a mapping with the keys of an output. Raises whatever went wrong."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of its answers."""
        ...

    async def answer(self, sample: Sample) -> Mapping[str, Any]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class LiveMethod:
    """A method that is asked: its settings, the system that answers, and what its answers may cost (None: no limit)."""

    settings: LiveSystem
    system: System
    costs: AnswerCosts | None = None


def open_methods(settings: LiveSystem, plugins: Sequence[str]) -> list[LiveMethod]:
    """Every method that the section names, ready to be asked. Raises ConfigError when one cannot be had."""
    return [LiveMethod(method, open_system(method, plugins)) for method in settings.each_method()]


def open_system(settings: LiveSystem, plugins: Sequence[str]) -> PythonCallable | HttpEndpoint:
    """The system that the settings describe. Raises ConfigError when it cannot be had."""
    if isinstance(settings, PythonSystem):
        return PythonCallable(settings, plugins)
    from ragpipe.systems.http_system import HttpEndpoint  # an HTTP client is loaded only where one is used

    return HttpEndpoint(settings)
