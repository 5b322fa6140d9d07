"""Charts with a row per thing: means with their intervals, shares of cases as bars, and limits with what was measured.

They are tables: the figures stand beside the marks, so that a screen reader, a printer or a page without a script loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Marks:
    """What is drawn on the axis of a row, in places of 0 to 100 from left to right; None is not drawn.

    `limits` are upright lines: the threshold of a score, the ends of a gate.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    limits: tuple[float, ...] = ()
    grey: bool = False


@dataclass(frozen=True)
class MeanRow:
    """A mean with its interval: texts for the columns, and its marks; None for a score without a scale."""

    name: str
    link: str
    mean: str
    bounds: str
    passed: str
    remark: str
    marks: Marks | None
    few: bool = False


def mean_table(rows: Sequence[MeanRow], caption: str) -> Markup:
    """A row per score: mean, the interval on the axis of the score's own scale, and the share that passed."""
    body = Markup("\n").join(
        Markup(
            '<tr{}><th scope="row"><a href="{}">{}</a>{}</th><td class="num"><b>{}</b></td><td class="plot">{}</td>'
            '<td class="num bounds">{}</td><td class="num counts">{}</td></tr>'
        ).format(
            Markup(' class="few"') if row.few else "",
            row.link,
            row.name,
            Markup('<small class="soft">{}</small>').format(row.remark) if row.remark else "",
            row.mean,
            "" if row.marks is None else marks_svg(row.marks),
            row.bounds,
            row.passed,
        )
        for row in rows
    )
    return Markup(
        '<table class="means-table"><caption>{}</caption><thead><tr><th scope="col">score</th><th scope="col" class="num">mean</th>'
        '<th scope="col">on its scale</th><th scope="col" class="num">interval</th><th scope="col" class="num counts">passed</th></tr></thead>'
        "<tbody>\n{}\n</tbody></table>"
    ).format(caption, body)


def marks_svg(marks: Marks) -> Markup:
    """An axis of 100 units with interval, value and limits. Hidden from screen readers: the row has the figures."""
    lines = [Markup('<line class="axis" x1="0" x2="100" y1="9" y2="9"/>')]
    if marks.low is not None and marks.high is not None:
        lines.append(
            Markup('<line class="interval" x1="{}" x2="{}" y1="9" y2="9"/>').format(_x(marks.low), _x(marks.high))
        )
    lines += [Markup('<line class="limit" x1="{0}" x2="{0}" y1="1" y2="17"/>').format(_x(end)) for end in marks.limits]
    if marks.value is not None:
        lines.append(Markup('<line class="mean" x1="{0}" x2="{0}" y1="4" y2="14"/>').format(_x(marks.value)))
    return Markup(
        '<svg viewBox="0 0 100 18" preserveAspectRatio="none" aria-hidden="true"><g class="{}">{}</g></svg>'
    ).format("grey" if marks.grey else "", Markup("").join(lines))


def _x(place: float) -> str:
    return f"{max(0.0, min(100.0, place)):.1f}"


@dataclass(frozen=True)
class ShareRow:
    """A share of the cases: `share` of 0 to 1 is drawn; `count` and `percent` are texts. An empty `link` links nothing."""

    name: str
    link: str
    count: str
    percent: str
    share: float
    message: str
    remedy: str


def share_table(rows: Sequence[ShareRow], label: str) -> Markup:
    """A row per share, drawn as a bar of the whole width, with what is wrong and what to try. `label` names the table."""
    body = Markup("\n").join(
        Markup(
            '<tr><th scope="row">{}{}</th><td class="bar-cell"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="track" x="0" y="0" width="100" height="8"/><rect class="share" x="0" y="0" width="{}" height="8"/></svg></td>'
            '<td class="num">{}</td><td class="num"><b>{}</b></td></tr>'
        ).format(
            Markup('<a href="{}">{}</a>').format(row.link, row.name) if row.link else row.name,
            Markup(' <small class="soft" title="{0}{1}">{0}{1}</small>').format(
                f"{row.message} " if row.message else "", f"Try: {row.remedy}" if row.remedy else ""
            ),
            _x(100 * row.share),
            row.count,
            row.percent,
        )
        for row in rows
    )
    return Markup(
        '<table class="shares"><caption class="unseen">{}</caption><thead class="silent"><tr>{}</tr></thead><tbody>\n{}\n</tbody></table>'
    ).format(label, _silent_heads("what", "as a bar", "cases", "share"), body)


@dataclass(frozen=True)
class LimitRow:
    """A limit, what was measured, and the state in words; `kind` colours the state: good, bad, warn or empty."""

    name: str
    link: str
    remark: str
    value: str
    limit: str
    marks: Marks | None
    kind: str
    state: str


def limit_table(rows: Sequence[LimitRow], label: str) -> Markup:
    """A row per gate: value, limit, both on an axis with the interval, and the state. `label` names the table."""
    body = Markup("\n").join(
        Markup(
            '<tr><th scope="row">{}{}</th><td class="num"><b>{}</b> <span class="soft">{}</span></td><td class="plot">{}</td>'
            '<td class="state"><span class="badge {}">{}</span></td></tr>'
        ).format(
            Markup('<a href="{}">{}</a>').format(row.link, row.name) if row.link else row.name,
            Markup(' <small class="soft" title="{0}">{0}</small>').format(row.remark) if row.remark else "",
            row.value,
            row.limit,
            "" if row.marks is None else marks_svg(row.marks),
            row.kind,
            row.state,
        )
        for row in rows
    )
    return Markup(
        '<table class="limits"><caption class="unseen">{}</caption><thead class="silent"><tr>{}</tr></thead><tbody>\n{}\n</tbody></table>'
    ).format(label, _silent_heads("gate", "value and limit", "on an axis", "state"), body)


def _silent_heads(*names: str) -> Markup:
    """Column heads for screen readers alone: the figures speak for themselves."""
    return Markup("").join(Markup('<th scope="col"><span class="unseen">{}</span></th>').format(name) for name in names)
