"""The console of a process: results, warnings, errors and progress, on streams that never end a run. Colour only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from ragpipe.core.safe_stream import SafeStream
from ragpipe.core.text import on_one_line, printable
from ragpipe.report.styled_text import (
    GAP,
    STYLES,
    Bad,
    Caution,
    Head,
    Line,
    Screen,
    columns_of,
    folded_cells,
    money,
    plural,
    table_lines,
    whole,
    wrapped,
)
from ragpipe.store.progress import CaseCounts, ProgressState

if TYPE_CHECKING:
    from rich.live import Live

_HEAD_MAX = 60  # characters of a column's head


class Console:
    """Where a task prints. `out` takes results, `err` warnings, errors and progress; by default the process's own streams.
    Both may be closed. Whatever is printed is text, never markup.

    Attributes:
        folder: The run folder that a task works in, for callers that read the results; None before there is one.
        shows_results: Whether results are printed.
        resume: The words that the command needs so that starting it again can change an incomplete result; None where
            no start can.
        kept_warnings: The warnings that were not printed; None where each was printed at once.
    """

    kept_warnings: tuple[str, ...] | None = None

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None):
        self._out = SafeStream(out if out is not None else sys.stdout)
        self._err = SafeStream(err if err is not None else sys.stderr)
        self._progress: Progress | None = None
        self._warned: set[str] = set()
        self.shows_results = True
        self.folder: Path | None = None
        self.resume: tuple[str, ...] | None = ()

    def say(self, text: str = "", *, is_prose: bool | None = None) -> None:
        """Print a line of results, or several. On a terminal prose is broken at blanks, and goes on below its beginning; by default a
        line is prose that does not begin with a blank."""
        for line in printable(text).split("\n"):
            indent = line[: len(line) - len(line.lstrip(" "))]
            breaks = self._out.isatty() and (not indent if is_prose is None else is_prose)
            self.lines(wrapped((line,), self.width, f"{indent}  ", breaks_words=False) if breaks else [(line,)])

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines of results; their pieces have colours where the terminal has them."""
        for line in lines:
            self._write_line(self._out, line)

    def warn(self, text: str) -> None:
        """Print a warning, once. One that an earlier warning says with more words (`text: more`) is not repeated."""
        if not self.has_warned(text):
            self.note_warned(text)
            line: Line = (Caution("warning:"), f" {text}")
            self.warn_lines(wrapped(line, self.width, breaks_words=False) if self._err.isatty() else [line])

    def has_warned(self, text: str) -> bool:
        """Whether this warning, or one with more words, was printed."""
        return any(earlier == text or earlier.startswith(f"{text}: ") for earlier in self._warned)

    def note_warned(self, text: str) -> None:
        """Print this warning no more: another line says it."""
        self._warned.add(text)

    def warn_lines(self, lines: Iterable[Line]) -> None:
        """Print the lines of a warning as they are."""
        for line in lines:
            self._write_line(self._err, line)

    def error(self, text: str) -> None:
        """Print an error."""
        self._write_line(self._err, (Bad("error:"), f" {text}"))

    def progress(
        self,
        source: Callable[[], ProgressState],
        *,
        label: str = "judging",
        noun: str = "cases",
        keep: Callable[[ProgressState], None] = lambda _: None,
    ) -> Progress:
        """A live display of what `source` reads, to be used as a context manager; one at a time. `keep` is called with every
        state that was read."""
        self._progress = Progress(self._err, source, label=label, noun=noun, keep=keep, ends_with_line=self.shows_results)
        return self._progress

    def table(
        self, heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", left: Collection[int] = (0,)
    ) -> None:
        """Print a table of texts. Columns in `left` are aligned left, others right; cells that are too wide are broken."""
        grid = [[on_one_line(head, _HEAD_MAX) for head in heads], *lines]
        shown = [[type(cell)(self._out.as_shown(printable(cell))) for cell in row] for row in grid]
        if title:
            self.lines([(Head(on_one_line(title)),)])
        heads, *rows = folded_cells(shown, self.width)
        self.lines(table_lines([[Head(head) for head in heads], *rows], left))

    @property
    def width(self) -> int:
        """Columns of the terminal (`COLUMNS`, else the terminal's own, else 80)."""
        import shutil

        return shutil.get_terminal_size((80, 24)).columns

    @property
    def screen(self) -> Screen:
        """The screen that results are shown on."""
        return Screen(self.width, lambda text: self._out.as_shown(printable(text)))

    def _write_line(self, stream: SafeStream, line: Line) -> None:
        """Print the pieces of a line, with their colours on a terminal that has them."""
        has_colour = stream.can_redraw and not os.environ.get("NO_COLOR")  # https://no-color.org
        if not has_colour or not any(type(piece) in STYLES for piece in line):
            self._write(stream, printable("".join(line)) + "\n")
            return
        from rich.console import Console as Rich
        from rich.text import Text

        live = self._progress.live if self._progress else None
        rich = live.console if live else Rich(file=stream, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
        parts = ((stream.as_shown(printable(piece)), STYLES.get(type(piece), "")) for piece in line)
        rich.print(Text.assemble(*parts), soft_wrap=True)
        stream.flush()

    def _write(self, stream: SafeStream, text: str) -> None:
        live = self._progress.live if self._progress else None
        if live is not None and stream.isatty():
            from rich.text import Text

            live.console.print(Text(text.removesuffix("\n")), soft_wrap=True)  # above the line that changes
            return
        stream.write(text)
        stream.flush()


class JobConsole(Console):
    """The console of a job of a sweep, which prints one table for all jobs: progress and errors are shown, results are not, and
    warnings are kept for the end."""

    def __init__(self) -> None:
        super().__init__()
        self._out = SafeStream(None)
        self.shows_results = False
        self.kept_warnings: tuple[str, ...] = ()

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        if not self.has_warned(text):
            self.note_warned(text)
            self.kept_warnings += (text,)


def column_lots(table: Sequence[Sequence[str]], width: int, names: int = 1) -> list[list[int]]:
    """The places of a table's columns in lots that fit `width`; each begins with the first `names`, and none is empty."""
    columns = ([line for text in column for line in text.splitlines() or [""]] for column in zip(*table, strict=True))
    widths = [max(min(columns_of(line), _HEAD_MAX) for line in lines) + GAP for lines in columns]
    lots, used = [list(range(names))], sum(widths[:names])
    for place in range(names, len(widths)):
        if len(lots[-1]) > names and used + widths[place] > width + GAP:
            lots.append(list(range(names)))
            used = sum(widths[:names])
        lots[-1].append(place)
        used += widths[place]
    return lots


TICK_S = 0.5
"""Seconds between two looks at the counters: how often the line changes on a terminal."""
FIRST_PLAIN_S, PLAIN_S = 1.0, 5.0
"""Seconds before the first plain line, and between two of them."""


class Progress:
    """Shows work while it goes on, as a context manager: on a terminal that can draw it again a line that is drawn at once and twice a second from
    then on, elsewhere a plain line after one second and then every five. A last line has the totals, however the work ends.

    A thread of its own looks at the counters, so that the line also moves while no case finishes and while a metric blocks
    the event loop. It ends with the work, and nothing that goes wrong in it touches the work.

    `source` reads the counters, in that thread; `keep` is called with every state that was read, and with the last one. Without
    `ends_with_line` nothing is left of the display. `clock` counts seconds. `live` is the line on a terminal while it changes, else None.
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
        self.live: Live | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Look at the counters, and show them where that is due."""
        state = self._source()
        self._keep(state)
        if self.live is not None:
            from rich.text import Text

            width = self.live.console.width - 1  # some terminals break a line that is as wide as they are
            self.live.update(Text(self._line(state, width=width), no_wrap=True, overflow="crop"), refresh=True)
        elif self._clock() >= self._next_plain and state.cases.done < state.cases.total:
            self._next_plain = self._clock() + PLAIN_S
            self._write(self._line(state))

    def __enter__(self) -> Self:
        if self._stream.can_redraw:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
            self.live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
            self.live.start()
        self.tick()
        self._thread = threading.Thread(target=self._run, name="ragpipe progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.live:
            self.live.stop()
            self.live = None
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
        blocks = "█░" if self._stream.as_shown("█░") == "█░" else "#-"
        return progress_line(
            state, label=self._label, noun=self._noun, elapsed=elapsed, is_ended=is_ended, width=width, blocks=blocks
        )

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


_SEPARATOR = " | "
_WIDE = 96  # columns from which the noun stands behind the count
_KINDS = 3  # of errors, that a line of progress names
_KIND = 24  # characters of each


def progress_line(
    state: ProgressState,
    *,
    label: str,
    noun: str = "cases",
    elapsed: float,
    is_ended: bool = False,
    width: int | None = None,
    now: float | None = None,
    blocks: str = "█░",
) -> str:
    """`judging ███░░░░░ 12/40 cases | 1:20 left | $0.12 | 1 error (refused 1) | waits 12 s (429) | 96 sent, 90 answered`.

    `elapsed` is in seconds; once the work `is_ended` the line has its duration in place of the time left. What does not fit `width`
    columns falls away from the end, cases and time never; without a `width` there is no bar. `now` is that of `time.time`,
    `blocks` are the signs of what is done and what is not.
    """
    cases = f"{whole(state.cases.done)}/{whole(state.cases.total)}"
    parts = [forms for forms in _parts(state, elapsed, is_ended, time.time() if now is None else now) if forms[0]]
    bar = "" if width is None else _bar(state.cases, width // 8, blocks)
    heads = [f"{label} {bar}{cases} {noun}", f"{label} {bar}{cases}", f"{label} {cases}", cases]
    lines = [f"{head}{_SEPARATOR}{parts[0][0]}" for head in heads[width is not None and width < _WIDE :]]
    line = next((text for text in lines if width is None or columns_of(text) <= width), lines[-1])
    for forms in parts[1:]:
        longer = (f"{line}{_SEPARATOR}{form}" for form in forms)
        fitting = next((text for text in longer if width is None or columns_of(text) <= width), None)
        if fitting is None:
            break
        line = fitting
    return line


def _bar(cases: CaseCounts, columns: int, blocks: str) -> str:
    done = columns * cases.done // max(cases.total, 1)
    return f"{blocks[0] * done}{blocks[1] * (columns - done)} "


def _parts(state: ProgressState, elapsed: float, is_ended: bool, now: float) -> list[tuple[str, ...]]:
    """All parts behind the cases, the most wanted first, each from its longest form to its shortest."""
    calls = state.calls
    waits = ""
    if state.waiting_until is not None and not is_ended:  # within a second of the next request, how many calls wait
        seconds = datetime.fromisoformat(state.waiting_until).timestamp() - now
        waits = f"waits {seconds:,.0f} s" if seconds >= 1 else f"{whole(calls.waiting)} waiting"
    sent = f"{whole(calls.sent)} sent, {whole(calls.answered)} answered" if calls.sent else ""
    lost = f", {whole(calls.failed)} without a reply" if calls.failed else ""
    asks = calls.answered and state.phase == "judging"
    texts = state.texts
    embedding = f"{plural(texts.embedded, 'text')} computed here" if texts.embedded or texts.waiting else ""
    is_whole, ended = state.cases.done >= state.cases.total, duration(elapsed)
    left = "estimating" if state.seconds_left is None else f"{duration(state.seconds_left)} left"
    errors = (_errors(state), plural(state.errors, "error"))
    return [
        (ended if is_whole else f"stopped after {ended}" if is_ended else left,),
        (money(state.usd) if asks or state.tokens else "",),
        errors if state.errors else ("",),
        (f"{waits} ({state.waiting_for})" if waits else "", waits),
        (sent + lost if sent else "", sent),
        (f"{whole(calls.in_flight)} in flight" if calls.sent and not is_ended else "",),
        (f"{state.rate_per_second:,.1f}/s" if calls.answered else "",),
        (f"{whole(state.tokens)} tokens" if state.tokens else "",),
        (embedding + (f", {whole(texts.waiting)} waiting" if texts.waiting and not is_ended else ""),),
        errors if not state.errors else ("",),
    ]


def _errors(state: ProgressState) -> str:
    """`4 errors (refused 3, timeout 1)`, the commonest kind first: of cases, which may have several."""
    groups = sorted(state.error_groups.items(), key=lambda group: (-group[1], group[0]))
    kinds = ", ".join(f"{on_one_line(name, _KIND)} {whole(n)}" for name, n in groups[:_KINDS])
    return plural(state.errors, "error") + (f" ({kinds})" if kinds else "")


def duration(seconds: float) -> str:
    """`1:20`, `2:03:04`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
