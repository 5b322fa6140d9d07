"""Live progress: one line that changes on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ragpipe.reports.progress_line import progress_line
from ragpipe.reports.safe_stream import SafeStream
from ragpipe.store.run.progress_state import ProgressState

if TYPE_CHECKING:
    from rich.live import Live

TICK_S = 0.5
"""Seconds between two looks at the counters: how often the line changes on a terminal."""
FIRST_PLAIN_S, PLAIN_S = 1.0, 5.0
"""Seconds before the first plain line, and between two of them."""
_BAR = 20


class Progress:
    """Shows work while it goes on, as a context manager: on a terminal that can draw it again a line that is drawn at once and twice a second from
    then on, elsewhere a plain line after one second and then every five. A last line has the totals, however the work ends.

    A thread of its own looks at the counters, so that the line also moves while no case finishes and while a metric blocks
    the event loop. It ends with the work, and nothing that goes wrong in it touches the work.

    Args:
        stream: where the line is written.
        source: reads the counters; called in that thread.
        label: what is done.
        noun: what is counted.
        keep: called with every state that was read, and with the last one.
        ends_with_line: whether the last line has the totals; without it nothing is left of the display.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        stream: SafeStream,
        source: Callable[[], ProgressState],
        *,
        label: str = "judging",
        noun: str = "cases",
        keep: Callable[[ProgressState], None] = lambda _: None,
        ends_with_line: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream, self._source, self._keep, self._clock = stream, source, keep, clock
        self._label, self._noun, self._ends_with_line = label, noun, ends_with_line
        self._start = clock()
        self._next_plain = self._start + FIRST_PLAIN_S
        self._live: Live | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def live(self) -> Live | None:
        """The line on the terminal while it changes; None elsewhere."""
        return self._live

    def tick(self) -> None:
        """Look at the counters, and show them where that is due."""
        state = self._source()
        self._keep(state)
        if self._live is not None:
            self._live.update(self._drawing(state), refresh=True)
        elif self._clock() >= self._next_plain:
            self._next_plain = self._clock() + PLAIN_S
            self._write(self._line(state))

    def __enter__(self) -> Self:
        if self._stream.can_redraw:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self.tick()
        self._thread = threading.Thread(target=self._run, name="ragpipe progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._live:
            self._live.stop()
            self._live = None
        state = self._source()
        if self._ends_with_line:
            self._write(self._line(state, is_ended=True))
        self._keep(state)

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            with suppress(Exception):  # a line that cannot be drawn is no reason to end the work
                self.tick()

    def _line(self, state: ProgressState, *, is_ended: bool = False, width: int | None = None) -> str:
        elapsed = self._clock() - self._start
        return progress_line(state, label=self._label, noun=self._noun, elapsed=elapsed, is_ended=is_ended, width=width)

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def _drawing(self, state: ProgressState) -> Any:
        """The line with a bar before it where it leaves room for one."""
        from rich.text import Text

        assert self._live is not None
        width = self._live.console.width - 1  # some terminals break a line that is as wide as they are
        line = self._line(state, width=width)
        if len(line) + _BAR + 1 <= width:
            line = f"{self._bar(state)} {line}"
        return Text(line, no_wrap=True, overflow="crop")

    def _bar(self, state: ProgressState) -> str:
        cases = state.cases
        full = round(_BAR * min(1.0, cases.done / cases.total)) if cases.total else _BAR
        done, rest = ("#", "-") if self._stream.ascii_only else ("━", "╌")
        return done * full + rest * (_BAR - full)
