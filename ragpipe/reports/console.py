"""The console of a process: results, warnings, errors and progress, on streams that never end a run. Colour only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, TextIO

from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.reports.live_progress import Progress
from ragpipe.reports.safe_stream import SafeStream
from ragpipe.reports.styled_text import GAP, STYLES, Bad, Caution, Grey, Line, Screen
from ragpipe.store.run.progress_state import ProgressState

_HEAD_MAX = 60  # characters of a column's head


class Console:
    """Where a task prints. `out` takes results, `err` warnings, errors and progress; by default the process's own streams.
    Both may be closed. Whatever is printed is text, never markup.

    Attributes:
        folder: The run folder that a task works in, for callers that read the results; None before there is one.
        shows_results: Whether results are printed.
        resume: The words that the command needs so that starting it again can change an incomplete result; None where
            no start can.
    """

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None):
        self._out = SafeStream(out if out is not None else sys.stdout)
        self._err = SafeStream(err if err is not None else sys.stderr)
        self._progress: Progress | None = None
        self._warned: set[str] = set()
        self.shows_results = True
        self.folder: Path | None = None
        self.resume: tuple[str, ...] | None = ()

    def say(self, text: str = "") -> None:
        """Print a line of results, or several."""
        self._write(self._out, printable(text) + "\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines of results; their pieces have colours where the terminal has them."""
        for line in lines:
            self._write_line(self._out, line)

    def warn(self, text: str) -> None:
        """Print a warning, once. One that an earlier warning says with more words (`text: more`) is not repeated."""
        if not self.has_warned(text):
            self.note_warned(text)
            self._write_line(self._err, (Caution("warning:"), f" {text}"))

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
        self._progress = Progress(
            self._err, source, label=label, noun=noun, keep=keep, ends_with_line=self.shows_results
        )
        return self._progress

    def table(
        self, heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", left: Collection[int] = (0,)
    ) -> None:
        """Print a table of texts. Columns in `left` are aligned left, others right; a cell may have several lines."""
        from rich import box
        from rich.console import Console as Rich
        from rich.table import Table
        from rich.text import Text

        plain = None if _has_colour(self._out) else False
        rich = Rich(file=self._out, markup=False, highlight=False, emoji=False, force_terminal=plain)  # type: ignore[arg-type]
        heading = Text(on_one_line(title)) if title else None
        grid = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title=heading, title_justify="left")
        for place, head in enumerate(heads):
            head = "\n".join(on_one_line(part, _HEAD_MAX) for part in head.split("\n"))
            justify: Literal["left", "right"] = "left" if place in left else "right"
            grid.add_column(Text(self._out.writable(head)), justify=justify, overflow="fold")
        for line in lines:
            styled = ((text, "dim" if isinstance(text, Grey) else "") for text in line)
            # escaped here already, so that the columns are as wide as what is shown
            grid.add_row(*(Text(self._out.writable(printable(text)), style=style) for text, style in styled))
        self._out.flush()
        rich.print(grid)
        self._out.flush()

    def folded(self, heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", names: int = 1) -> None:
        """Print a table, or several below each other where its columns do not fit the width; each begins with the first
        `names` columns, which name a row."""
        for lot in column_lots([heads, *lines], self.width, names):
            rows = [[line[place] for place in lot] for line in lines]
            self.table([heads[place] for place in lot], rows, title=title, left=range(names))

    @property
    def kept_warnings(self) -> tuple[str, ...] | None:
        """The warnings that were not printed; None where each was printed at once."""
        return None

    @property
    def width(self) -> int:
        """Columns of the terminal (`COLUMNS`, else the terminal's own, else 80)."""
        import shutil

        return shutil.get_terminal_size((80, 24)).columns

    @property
    def screen(self) -> Screen:
        """The screen that results are shown on."""
        return Screen(self.width, lambda text: self._out.writable(printable(text)))

    def _write_line(self, stream: SafeStream, line: Line) -> None:
        """Print the pieces of a line, with their colours on a terminal that has them."""
        if not _has_colour(stream) or not any(type(piece) in STYLES for piece in line):
            self._write(stream, printable("".join(line)) + "\n")
            return
        from rich.console import Console as Rich
        from rich.text import Text

        live = self._progress.live if self._progress else None
        rich = live.console if live else Rich(file=stream, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
        parts = ((stream.writable(printable(piece)), STYLES.get(type(piece), "")) for piece in line)
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
        self._kept: list[str] = []

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        if not self.has_warned(text):
            self.note_warned(text)
            self._kept.append(text)

    @property
    def kept_warnings(self) -> tuple[str, ...]:
        """The warnings of the job, each once."""
        return tuple(self._kept)


def _has_colour(stream: SafeStream) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody asked for none (https://no-color.org)."""
    return stream.can_redraw and not os.environ.get("NO_COLOR")


def column_lots(table: Sequence[Sequence[str]], width: int, names: int = 1) -> list[list[int]]:
    """The places of a table's columns in lots that fit `width`; each begins with the first `names`, and none is empty."""
    widths = [_column_width(column) for column in zip(*table, strict=True)]
    lots, used = [list(range(names))], sum(widths[:names])
    for place in range(names, len(widths)):
        if len(lots[-1]) > names and used + widths[place] > width:
            lots.append(list(range(names)))
            used = sum(widths[:names])
        lots[-1].append(place)
        used += widths[place]
    return lots


def _column_width(texts: Sequence[str]) -> int:
    """Columns of the terminal that these texts take, with the gap around them."""
    return max(min(len(line), _HEAD_MAX) for text in texts for line in text.splitlines() or [""]) + GAP
