"""`label.html`: one static page to label the cases of a draw on. It is blind: what the judge said is nowhere in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from markupsafe import Markup

from ragpipe.calibration.label_files import (
    CANNOT_DRAW,
    DRAW,
    DRAWN,
    LABELS,
    Draw,
    LabelGrade,
    LabelSettings,
    ShownCase,
    read_labels,
    write_draw,
    write_rows,
)
from ragpipe.calibration.label_import import EVENT_VERSION, merged_labels, sheet_rows, write_sheet
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.score import MOST_GRADES, ScoreSpec, whole_grades
from ragpipe.core.settings import did_you_mean
from ragpipe.report.page_file import (
    ROWS_PER_BLOCK,
    TEMPLATES,
    Page,
    core_script,
    core_style,
    json_block,
    page_environment,
    page_html,
    template_file,
)
from ragpipe.store.files import write_unless_same
from ragpipe.store.run_folder import make_folder

if TYPE_CHECKING:
    from ragpipe.metrics.base import Metric

_PIECES = ("dom", "blocks", "keys", "share")
_TITLE = "Label"


def label_page(
    draw: Draw,
    items: Mapping[str, ShownCase],
    asked: Mapping[str, Sequence[str] | None],
    *,
    annotators: Sequence[str],
    with_reference: bool,
) -> str:
    """The page as HTML.

    Args:
        draw: what is asked. Of it the page has the name of the draw and of the score, the question and the names of the grades.
        items: what is shown, by item.
        asked: who is asked for each item; None is everyone.
        annotators: the names to choose from; empty: anyone types a name.
        with_reference: whether the reference answer is shown.
    """
    shown = _shown(items, with_reference)
    about = {
        "v": EVENT_VERSION,
        "draw": draw.draw_id,
        "score": draw.score,
        "question": draw.question,
        "grades": [grade.name for grade in draw.grades],
        "annotators": list(annotators),
        "items": [{"item": case["item"], "asked": asked[case["item"]]} for case in shown],
    }
    body = page_environment(TEMPLATES).get_template("label.html.jinja").render(draw=draw, count=len(shown))
    starts = range(0, len(shown), ROWS_PER_BLOCK)
    return page_html(
        Page(
            title=f"{_TITLE}: {draw.question}",
            body=Markup(body),
            style=core_style() + template_file("label.css"),
            script=label_script(),
            blocks=[
                json_block("about", about),
                *(json_block(f"d{n}", shown[start : start + ROWS_PER_BLOCK]) for n, start in enumerate(starts)),
            ],
        )
    )


def label_script() -> str:
    """The script of the page: the same for every draw."""
    return "\n".join([core_script(_PIECES), *map(template_file, ("label_events.js", "label.js"))])


def _shown(items: Mapping[str, ShownCase], with_reference: bool) -> list[dict[str, Any]]:
    """The cases by the names of their items: that order says nothing about how they were drawn."""
    return [
        {
            "item": item,
            "question": case.question,
            "history": [[turn.role, turn.text] for turn in case.history],
            "answer": case.answer,
            **({} if case.other_answer is None else {"other": case.other_answer}),
            "contexts": case.contexts,
            "references": case.references if with_reference else [],
        }
        for item, case in sorted(items.items())
    ]


PAGE = "label.html"


def write_draw_files(
    folder: Path, draw: Draw, drawn: pa.Table, items: Mapping[str, ShownCase], settings: LabelSettings, *, with_reference: bool
) -> list[Path]:
    """Write the files of a draw into its folder, which is made, and return their paths, the page first. `items` is what people see, by
    item. Labels that the draw has get the probabilities of its table. Raises OutputError."""
    make_folder(folder.parent)
    make_folder(folder)
    rows = drawn.to_pylist()
    asked = {row["item"]: row["annotators"] for row in rows}
    html = label_page(draw, items, asked, annotators=settings.annotators, with_reference=with_reference)
    write_rows(folder / DRAWN, drawn)
    write_unless_same(folder / PAGE, html)
    sheet = write_sheet(folder, sheet_rows(draw, items, with_reference=with_reference))
    written = [folder / PAGE, sheet, folder / DRAWN, folder / DRAW]
    if (folder / LABELS).is_file():
        write_rows(folder / LABELS, merged_labels(read_labels(folder), [], drawn))
        written.append(folder / LABELS)
    write_draw(folder, draw)  # last: a folder with it is complete
    return written


@dataclass(frozen=True)
class AskedQuestion:
    """The metric, the score that is labelled, the question and the grades."""

    metric: Metric
    spec: ScoreSpec
    question: str
    grades: list[LabelGrade]


def asked_question(
    metrics: Sequence[Metric], name: str | None, question: str | None, grades: dict[str, float] | None
) -> AskedQuestion:
    """What is asked about the score or metric of this name: as the caller says, else as the metric's `label` says, else by the
    scale of the score. Of a metric with several scores it is the first.

    Raises ConfigError for a name that the run does not have, and grades outside of the scale.
    """
    metric, spec = _labelled_score(metrics, name)
    section = metric.label_question
    grades = grades or (section.grades if section and spec.name == metric.scores()[0].name else None)
    words = question or (section.question if section else f"How do you grade this case for {spec.name.replace('_', ' ')}?")
    listed = [LabelGrade(name=key, value=value) for key, value in grades.items()] if grades else _by_scale(spec)
    outside = [grade.name for grade in listed if not spec.holds(grade.value)]
    if outside:
        expected = f"values from {spec.low:g} to {spec.high:g}, the scale of {spec.name}"
        raise ConfigError(CANNOT_DRAW, [Problem("label", "label.grades", ", ".join(outside), expected)])
    return AskedQuestion(metric, spec, words, listed)


def _labelled_score(metrics: Sequence[Metric], name: str | None) -> tuple[Metric, ScoreSpec]:
    scores = {spec.name: (metric, spec) for metric in metrics for spec in metric.scores()}
    firsts = {metric.name: (metric, metric.scores()[0]) for metric in metrics if metric.scores()}
    known = firsts | scores
    if name is None or name not in known:
        fix = did_you_mean(name or "", known) or f"label.metric={next(iter(known), '...')}"
        problem = Problem("label", "label.metric", name or "nothing", f"one of {', '.join(known)}", fix)
        raise ConfigError(CANNOT_DRAW, [problem])
    return known[name]


def _by_scale(spec: ScoreSpec) -> list[LabelGrade]:
    """The grades of a judge where the score has them; yes and no for 0 and 1; whole numbers of a short scale; else all, partly
    and none, the ends of the scale and its middle."""
    if spec.low is None or spec.high is None:
        expected = f"grades with their values: {spec.name} has no scale"
        problem = Problem("label", "label.grades", "nothing", expected, "'label.grades={good: 1, bad: 0}'")
        raise ConfigError(CANNOT_DRAW, [problem])
    low, high = spec.low, spec.high
    if spec.binary:
        steps: Sequence[tuple[str, float]] = (("yes", high), ("no", low))
    elif spec.grades and len(spec.grades) <= MOST_GRADES:
        steps = spec.grades
    elif 1 < high - low < MOST_GRADES and high == int(high) and low == int(low):
        steps = whole_grades(low, high)
    else:
        steps = (("all", high), ("partly", (low + high) / 2), ("none", low))
    return [LabelGrade(name=name, value=value) for name, value in steps]
