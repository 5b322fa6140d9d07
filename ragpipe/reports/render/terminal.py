"""The terminal. Whatever is said is text, never markup; nothing said can end a run or drive the terminal."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.reports.live_progress import Progress, duration
from ragpipe.reports.number_format import (
    SHARED_NOTE,
    Cell,
    Grey,
    cell,
    columns,
    heading,
    hidden_overall,
    judged_times,
    method_names,
    money,
    parts_note,
    price,
    shared_lines,
    shared_title,
    whole,
)
from ragpipe.reports.safe_stream import SafeStream
from ragpipe.reports.sections.diagnosis import diagnosis_section, items_line
from ragpipe.reports.sections.gates import HEADS, gate_notes, gate_rows
from ragpipe.reports.sections.iterations import HEADS as FINAL_HEADS
from ragpipe.reports.sections.iterations import final_lines, final_notes, final_title
from ragpipe.reports.sections.usage import usage_line
from ragpipe.schema.usage import Usage

_HEAD_FOLD = 12
_HEAD_MAX = 60  # characters of a column's head
_GAP = 2  # columns between two cells


class Console:
    """`out` takes results, `err` warnings, errors and progress; by default the process's own. Both may be closed.

    `folder` is the run folder that a task works in, for who reads the results after it; None before there is one.
    `resume` are the words that the command needs so that starting it again can change an incomplete result; None where
    no start can.
    """

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None):
        self._out = SafeStream(out if out is not None else sys.stdout)
        self._err = SafeStream(err if err is not None else sys.stderr)
        self._progress: Progress | None = None
        self._warned: set[str] = set()
        self.folder: Path | None = None
        self.resume: tuple[str, ...] | None = ()

    def say(self, text: str = "") -> None:
        """A line or several of results."""
        self._write(self._out, printable(text) + "\n")

    def warn(self, text: str) -> None:
        """A warning; the same one is said once."""
        if text in self._warned:
            return
        self._warned.add(text)
        self._write(self._err, f"warning: {printable(text)}\n")

    def error(self, text: str) -> None:
        self._write(self._err, f"error: {printable(text)}\n")

    def progress(self, *, cases: int, done: int = 0, label: str = "judging", noun: str = "cases") -> Progress:
        """A live display to be used as a context manager; one at a time."""
        self._progress = Progress(self._err, cases=cases, done=done, label=label, noun=noun)
        return self._progress

    def table(
        self, heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", left: Collection[int] = (0,)
    ) -> None:
        """A table of texts; columns in `left` are set to the left, numbers to the right. A cell may hold several lines."""
        from rich import box
        from rich.console import Console as Rich
        from rich.table import Table
        from rich.text import Text

        rich = Rich(file=self._out, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
        found = Table(
            box=box.SIMPLE_HEAD,
            collapse_padding=True,
            pad_edge=False,
            title=Text(on_one_line(title)) if title else None,
            title_justify="left",
        )
        for place, head in enumerate(heads):
            found.add_column(
                Text(self._out.writable("\n".join(on_one_line(part, _HEAD_MAX) for part in head.split("\n")))),
                justify="left" if place in left else "right",
                overflow="fold",
            )
        for line in lines:
            # escaped here already, so that the columns are as wide as what is shown
            found.add_row(
                *(
                    Text(self._out.writable(printable(text)), style="dim" if isinstance(text, Grey) else "")
                    for text in line
                )
            )
        self._out.flush()
        rich.print(found)
        self._out.flush()

    def folded(self, heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", names: int = 1) -> None:
        """A table, or several below each other where its columns do not fit; each begins with the first `names` columns,
        which say what a row is."""
        for shown in _fitting([heads, *lines], self.width, names):
            self.table(
                [heads[i] for i in shown], [[line[i] for i in shown] for line in lines], title=title, left=range(names)
            )

    def results(self, metrics: Mapping[str, Any], *, percent: Collection[str] = ()) -> None:
        """The final table: scores down, methods across; methods down where only that fits the width; else several."""
        groups, names = columns(metrics), method_names(metrics)
        marks = {name: parts_note(name, metrics) for name in names}
        heads = ["\n".join(filter(None, (heading(name, metrics, percent), marks[name][0]))) for name in names]
        cells = [
            [cell(group["scores"].get(name), percent=name in percent) for group in groups.values()] for name in names
        ]
        tables = [
            turned
            for narrow in (False, True)
            for turned in _both_ways(["score", *groups], heads, [[_text(one, narrow) for one in row] for row in cells])
        ]
        table = min(tables, key=lambda table: len(_fitting(table, self.width)))
        self.folded(table[0], table[1:])
        if any(score["interval"] for score in metrics["overall"]["scores"].values()):
            self.say(
                f"mean [its {metrics['scoring']['level']:.0%} interval]; below it the share that reached its threshold, of how many cases"
            )
        for name, (mark, measured) in marks.items():
            if mark:
                self.say(f"{name}: {mark}: {measured}")
        if why := hidden_overall(metrics):
            self.say(why)

    def finish(
        self,
        metrics: Mapping[str, Any],
        cost: Mapping[str, Any],
        *,
        folder: str,
        next_command: str = "",
        percent: Collection[str] = (),
        gates: Mapping[str, Any] | None = None,
        judging: Mapping[int, float] | None = None,
    ) -> None:
        """All that a run says at its end: tables, warnings, cost, signature, folder and the next useful command.

        `metrics` and `cost` are what `results_of` gives: of all iterations where there are several. `judging` are the
        seconds for which each iteration was judged, all its starts together.
        """
        self.results(metrics, percent=percent)
        self._shared(metrics, percent)
        if judged_times(metrics) > 1:
            heads, lines = final_lines(metrics, percent)
            self.folded(heads, lines, title=final_title(metrics), names=len(heads) - len(FINAL_HEADS))
            for note in final_notes(metrics):
                self.say(note)
        for line in diagnosis_section(metrics, self.width):
            self.say(line)
        if line := items_line(metrics):
            self.say(line)
        if gates and gates["gates"]:
            self.folded(HEADS, gate_rows(gates), title="gates")
        for warning in (*metrics["warnings"], *gate_notes(gates or {"gates": ()})):
            self.warn(warning)
        if line := operations_line(metrics):
            self.say(line)
        self.say(cost_line(cost))
        if judging:
            self.say(wall_line(judging))
        self.say(metrics["signature"])
        self.say(f"results: {folder}")
        if next_command:
            self.say(f"next:    {next_command}")

    def _shared(self, metrics: Mapping[str, Any], percent: Collection[str]) -> None:
        """The methods on the questions that they share, where they were not asked the same ones: the scores that weigh or
        have a threshold, a line each. The pages have all of them."""
        shared = metrics.get("shared")
        if shared is None or shared["n_questions"] == shared["of"]:
            return
        heads, lines = shared_lines(metrics, percent, main=True)
        if lines:
            texts = [[f"{name} ({questions})", *(one.line for one in cells)] for name, questions, cells in lines]
            self.folded(["score (questions)", *heads[2:]], texts, title=shared_title(metrics))
            self.say(SHARED_NOTE)

    @property
    def width(self) -> int:
        """Columns of the terminal (`COLUMNS`, else the terminal's own, else 80)."""
        import shutil

        return shutil.get_terminal_size((80, 24)).columns

    def _write(self, stream: SafeStream, text: str) -> None:
        live = self._progress.live if self._progress else None
        if live is not None and stream.isatty():
            from rich.text import Text

            live.console.print(Text(text.removesuffix("\n")), soft_wrap=True)  # above the line that changes
            return
        stream.write(text)
        stream.flush()


def _text(found: Cell, narrow: bool) -> str:
    text = "\n".join(found.narrow if narrow else found.lines)
    return Grey(text) if found.few else text


def _both_ways(
    top: Sequence[str], heads: Sequence[str], texts: Sequence[Sequence[str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """The table with scores down, and with methods down."""
    across = [["method", *map(_folded, heads)], *([name, *(row[i] for row in texts)] for i, name in enumerate(top[1:]))]
    return [list(top), *([head, *row] for head, row in zip(heads, texts, strict=True))], across


def _width(texts: Sequence[str]) -> int:
    """Columns that these texts take, with the gap around them."""
    return max(min(len(line), _HEAD_MAX) for text in texts for line in text.splitlines() or [""]) + _GAP


def _folded(head: str) -> str:
    """A heading on several lines: at blanks, and a long name at its underscores."""
    lines: list[str] = []
    for word in head.split():
        for place, part in enumerate(word.split("_")):
            joined = f"{lines[-1]}_{part}" if place else part
            if place and len(joined) <= _HEAD_FOLD:
                lines[-1] = joined
            else:
                lines[-1:] = [f"{lines[-1]}_", part] if place else [*lines[-1:], part]
    return "\n".join(lines)


def _fitting(table: Sequence[Sequence[str]], room: int, names: int = 1) -> list[list[int]]:
    """The table's columns in lots that fit beside each other; each begins with the first `names`, and none is empty."""
    widths = [_width(column) for column in zip(*table, strict=True)]
    lots, used = [list(range(names))], sum(widths[:names])
    for place in range(names, len(widths)):
        if len(lots[-1]) > names and used + widths[place] > room:
            lots.append(list(range(names)))
            used = sum(widths[:names])
        lots[-1].append(place)
        used += widths[place]
    return lots


def operations_line(metrics: Mapping[str, Any]) -> str:
    """`system: 3 errors, 1 timeout, 2 empty answers; total 820 / 1,940 ms (p50 / p95)`; empty where nothing is to be told."""
    found = metrics["overall"]["operations"]
    counts = [(found["n_error"], "errors"), (found["n_timeout"], "timeouts"), (found["n_empty"], "empty answers")]
    told = [", ".join(f"{whole(n)} {what}" for n, what in counts if n)]
    times = found["latency_ms"].items()
    if times:
        stages = ", ".join(f"{on_one_line(stage, 40)} {t['p50']:,.0f} / {t['p95']:,.0f}" for stage, t in times)
        told.append(f"{stages} ms (p50 / p95)")
    told.append(usage_line(metrics))
    text = "; ".join(part for part in told if part)
    return f"system: {text}" if text else ""


def wall_line(judging: Mapping[int, float]) -> str:
    """`time: 12:34 of judging`; of several iterations also each one's: `time: 12:34 of judging (6:10, 6:24)`."""
    each = f" ({', '.join(duration(seconds) for seconds in judging.values())})" if len(judging) > 1 else ""
    return f"time: {duration(sum(judging.values()))} of judging{each}"


def cost_line(cost: Mapping[str, Any]) -> str:
    """`cost: 1,200 calls, 1,234,567 tokens, $0.45; asked here: 12 calls, $0.01; saved: 1,188 calls`."""
    used, spent, saved, wasted = (cost[part] for part in ("used", "spent", "saved", "wasted"))
    if not used["uses"]:
        return "cost: no judge was asked"
    if used["calls_computed"] == used["calls"]:
        if missing := used["failures"].get("missing_reply"):
            return f"cost: no call to a provider; {whole(missing)} questions have no stored reply"
        names = list(used.get("by_judge", ()))
        models = any("@" in name for name in names)  # vectors are computed here too, by weights that the name tells
        who = printable(" and ".join(names)) if models else "the embedded judge"
        return f"cost: {whole(used['calls'])} questions answered by {who}, no call to a provider"
    tokens = used["tokens_in"] + used["tokens_out"]
    text = f"cost: {whole(used['calls'])} calls, {whole(tokens)} tokens, {price(Usage.from_json(used))}"
    text += f"; asked here: {whole(spent['calls'])} calls, {price(Usage.from_json(spent))}"
    if saved["calls"]:
        text += f"; saved: {whole(saved['calls'])} calls"
    if wasted["replies"]:
        text += f"; wasted: {whole(wasted['replies'])} answers, {money(wasted['usd'])}"
    if used["usd"] is None:
        reasons = ", ".join(f"{on_one_line(reason, 80)} ({whole(n)})" for reason, n in used["unpriced_reasons"].items())
        text += f". Price unknown: {reasons}"
    return text
