"""Live progress: one line that changes on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ragpipe.reports.number_format import money, whole
from ragpipe.reports.safe_stream import SafeStream

if TYPE_CHECKING:
    from rich.live import Live

REDRAW_S = 0.1
PLAIN_S = 5.0
_BAR = 20


class Progress:
    """Cases and calls done, rate, tokens, money, errors and the time left. `update` gives totals, not differences.

    `done` are the cases that an earlier start finished: they count as done, but not for the rate.
    """

    def __init__(
        self,
        stream: SafeStream,
        *,
        cases: int,
        done: int = 0,
        label: str = "judging",
        noun: str = "cases",
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream, self._clock, self._label, self._noun = stream, clock, label, noun
        self._total, self._first, self._cases = cases, done, done
        self._calls = self._tokens = self._errors = 0
        self._usd: float | None = 0.0
        self._start = self._drawn = clock()
        self._live: Live | None = None

    @property
    def live(self) -> Live | None:
        return self._live

    def update(
        self,
        *,
        cases: int,
        calls: int = 0,
        tokens: int = 0,
        cost_usd: float | None = 0.0,
        errors: int = 0,
        resumed: int | None = None,
    ) -> None:
        """Show these totals; drawn at most ten times per second.

        Args:
            cases: finished cases.
            calls: calls that were made.
            tokens: their tokens.
            cost_usd: their price in US dollars; None where a price is unknown.
            errors: judgements that failed.
            resumed: cases that an earlier start had finished, where that is known only now.
        """
        self._first = self._first if resumed is None else resumed
        self._cases, self._calls, self._tokens, self._usd, self._errors = cases, calls, tokens, cost_usd, errors
        now = self._clock()
        if now - self._drawn >= (REDRAW_S if self._live else PLAIN_S):
            self._drawn = now
            self._draw()

    def line(self) -> str:
        """What is shown, without the bar."""
        elapsed = max(self._clock() - self._start, 1e-9)
        parts = [f"{self._label} {whole(self._cases)}/{whole(self._total)} {self._noun}"]
        if self._calls:
            parts.append(f"{whole(self._calls)} calls, {self._calls / elapsed:,.1f}/s")
        if self._tokens:
            parts += [f"{whole(self._tokens)} tokens", money(self._usd)]
        parts.append(f"{whole(self._errors)} error{'' if self._errors == 1 else 's'}")
        fresh = self._cases - self._first
        if fresh > 0 and self._cases < self._total:
            parts.append(f"{duration(elapsed / fresh * (self._total - self._cases))} left")
        elif self._cases >= self._total:
            parts.append(duration(elapsed))
        return " | ".join(parts)

    def __enter__(self) -> Self:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None
        self._stream.write(self.line() + "\n")
        self._stream.flush()

    def _draw(self) -> None:
        if self._live is None:
            self._stream.write(self.line() + "\n")
            self._stream.flush()
        else:
            self._live.update(self._drawing(), refresh=True)

    def _drawing(self) -> Any:
        from rich.text import Text

        full = round(_BAR * min(1.0, self._cases / self._total)) if self._total else _BAR
        done, rest = ("#", "-") if self._stream.ascii_only else ("━", "╌")
        return Text(f"{done * full}{rest * (_BAR - full)} {self.line()}", no_wrap=True, overflow="ellipsis")


def duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
