"""What a run asks of the settings of a transport, of whatever kind it is: how questions reach the judge's provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.core.errors import Problem
from ragpipe.judging.any_judge import AnyJudge
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.settings import Settings

if TYPE_CHECKING:
    from ragpipe.judging.session import Transport
    from ragpipe.stages.plan_calls import Plan


class AnyTransport(Settings):
    """The base of the settings of every transport, one class per `kind` (`core/registry.py`)."""

    asks: ClassVar[bool] = True
    """Whether the judge's provider is asked at all."""
    prices_of: ClassVar[str] = ""
    """The section whose `prices` are those of its replies; empty where it is the judge's."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        """The transport to a language model.

        Args:
            judge: the language model.
            store: the folder of what stands beside the call store.
            start: what every start has: `run_id`, the run that pays for new calls; `tell`, which gets the notices for the user;
                `budget`, what new calls may spend, None without a limit.
        """
        raise NotImplementedError

    def refusal(self, judge: AnyJudge) -> Problem | None:
        """Why this judge cannot be asked by it; None where it can."""
        return None

    def key_variable(self, judge: JudgeSettings) -> str | None:
        """The environment variable that holds the key; None when none is sent, or litellm finds its own."""
        return judge.key_variable

    def rates(self, judge: JudgeSettings) -> Rates:
        """The prices of its replies."""
        return rates_for(judge)

    def open_cases(self, judge: JudgeSettings) -> int:
        """The number of cases that are open at once: so many that a slot is taken as soon as it is free."""
        return max(8, 2 * judge.concurrency)

    def plan_lines(self, judge: AnyJudge, plan: Plan) -> list[str]:
        """What `task=plan` says of it, chosen or not, where the run asks a provider."""
        return []


class LiveTransportSettings(AnyTransport):
    """Questions go to the provider one by one."""

    kind: Literal["live"] = Field(default="live", description="Questions go to the provider one by one.")

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        from ragpipe.judging.transports.live_transport import LiveTransport

        return LiveTransport(judge, **start)


class StoredTransportSettings(AnyTransport):
    """Only stored replies are used."""

    asks: ClassVar[bool] = False
    kind: Literal["stored"] = Field(
        default="stored", description="Only stored replies are used; a missing one is an error."
    )

    def open(self, judge: JudgeSettings, store: Path, **start: Any) -> Transport:
        from ragpipe.judging.session import StoredTransport

        return StoredTransport()
