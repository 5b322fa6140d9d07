"""Runs and comparisons as a notebook shows them: HTML without a script, and lines of text elsewhere. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ragpipe.core.text import on_one_line
from ragpipe.report.charts import Marks, MeanRow, mean_table
from ragpipe.report.compare_charts import has_scale, score_forest
from ragpipe.report.comparison_summary import HEADS, headline_rows
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import heading, headline_names, method_groups, score_cell
from ragpipe.report.styled_text import table_lines

if TYPE_CHECKING:
    import pandas as pd

_STYLE = """<style>
.ragpipe td.plot svg { width: 12em; height: 1.2em; display: block } .ragpipe .few-columns { display: none }
.ragpipe line { vector-effect: non-scaling-stroke; stroke: currentColor } .ragpipe line:is(.axis, .limit) { stroke: #999 }
.ragpipe line.interval { stroke-width: 6px; stroke: #7aa6d8 } .ragpipe line:is(.mean, .difference) { stroke-width: 2px }
.ragpipe circle { fill: currentColor } .ragpipe rect { fill: #9994 } .ragpipe :is(td, th) { text-align: left }
.ragpipe caption { caption-side: bottom; text-align: left; font-size: smaller }
.ragpipe a[href="#"] { color: inherit; text-decoration: none; pointer-events: none }
</style>"""


def run_html(metrics: Mapping[str, Any], gates: Mapping[str, Any], verdict: str, page: Path) -> str:
    """The verdict, the first headline score of each method on one axis, the gates, and a link to the `page`."""
    address = quote(str(page))
    note = f"{{}} of each method; bar: the {metrics['scoring']['level']:.0%} interval, thin line: the threshold"
    texts = (f"gate {gate['name']}: {gate['outcome']}. {gate['sentence']}" for gate in gates["gates"])
    return "".join(
        [
            f'<div class="ragpipe">{_STYLE}<p><b>{escape(verdict)}</b></p>',
            *(
                mean_table(_method_rows(name, metrics, address), note.format(heading(name, metrics, ())))
                for name in headline_names(metrics)[:1]
            ),
            *(f"<p>{escape(text)}</p>" for text in texts),
            f'<p><a href="{address}">{escape(str(page))}</a> has every case</p>',
            f"<p><small>{escape(metrics['signature'])}</small></p></div>",
        ]
    )


def _method_rows(name: str, metrics: Mapping[str, Any], address: str) -> list[MeanRow]:
    rows = []
    for method, group in method_groups(metrics).items():
        cell, link = score_cell(group["scores"].get(name), declared=metrics["declared"][name]), page_address(method=method)
        plot, marks = cell.plot, None
        if plot is not None:
            ends = (None, None) if cell.few else (plot.low, plot.high)
            marks = Marks(plot.mean, *ends, () if plot.threshold is None else (plot.threshold,), cell.few)
        rows.append(MeanRow(method, f"{address}{link}", cell.mean, cell.interval, cell.passed, "", marks, cell.few))
    return rows


def run_lines(metrics: Mapping[str, Any], verdict: str, page: Path) -> Iterator[str]:
    """The same as text: the verdict, a line per method, and where the report is."""
    yield on_one_line(verdict, 1000)
    for name in headline_names(metrics)[:1]:
        cells = [(method, score_cell(group["scores"].get(name))) for method, group in method_groups(metrics).items()]
        yield from _text([(name, "mean", "passed"), *((on_one_line(method), c.estimate, c.passed) for method, c in cells)])
    yield f"report: {page}"


class Comparison(dict[str, Any]):
    """The content of `comparison.json`; a notebook shows its verdicts and differences."""

    @property
    def verdict(self) -> str:
        """The verdict on each candidate, a line each."""
        return "\n".join(each["verdict"]["sentence"] for each in self["comparisons"])

    @property
    def differences(self) -> pd.DataFrame:
        """One row per candidate and score: means, difference, interval, wins, ties and losses, and the verdict (`state`)."""
        import pandas as pd

        keys = ("n", "base_mean", "candidate_mean", "difference")
        rows = []
        for each in self["comparisons"]:
            side = self["candidates"][each["candidate"]]
            for name, score in chain(each["scores"].items(), each["operations"].items()):
                bounds = {key: (score["interval"] or {}).get(key) for key in ("low", "high")}
                counts = {key: score[key] for key in ("wins", "ties", "losses", "state")}
                row = {"candidate": side["method"] or side["run_id"], "score": name, **{key: score[key] for key in keys}}
                rows.append({**row, **bounds, **counts})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        parts = ([each["verdict"]["sentence"], *_text([HEADS, *headline_rows(each)])] for each in self["comparisons"])
        return "\n\n".join(map("\n".join, parts))

    def _repr_html_(self) -> str:
        parts = [f'<div class="ragpipe">{_STYLE}']
        for each in self["comparisons"]:
            side = self["candidates"][each["candidate"]]
            names = tuple(end["method"] or end["run_id"] for end in (self["base"], side))
            scaled = {name: score for name, score in each["scores"].items() if score["headline"] and has_scale(score)}
            parts.append(f"<p><b>{escape(each['verdict']['sentence'])}</b></p>")
            parts += [score_forest(scaled, (names[0], names[1]), lambda _: "#")] if scaled else []
        return "".join([*parts, "</div>"])


def _text(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    return ("".join(line) for line in table_lines(rows))
