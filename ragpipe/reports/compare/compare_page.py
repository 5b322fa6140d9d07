"""`compare.html` put together: the body from its template, the rows as data blocks, style and script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ragpipe.comparing.comparison import Comparison
from ragpipe.comparing.side import Side
from ragpipe.pages.charts import scatter
from ragpipe.pages.data_blocks import ROWS_PER_BLOCK, TEXTS_PER_BLOCK, DataBlock, TextPool, column_block, json_block
from ragpipe.pages.page_address import page_address
from ragpipe.pages.page_file import PIECES, Page, core_script, core_style, page_environment, page_html
from ragpipe.reports.compare.compare_charts import (
    FLIPS,
    flip_rows,
    has_scale,
    plain_number,
    score_forest,
    slice_maps,
    unscaled_forest,
)
from ragpipe.reports.compare.compared_rows import CASES_MAX, ComparedRows, compared_rows, main_score
from ragpipe.reports.compare.compared_texts import ComparedText, SideText, compared_texts
from ragpipe.reports.compare.side_names import side_names
from ragpipe.reports.compare.word_changes import word_changes
from ragpipe.reports.comparison_summary import bridge_lines, why_lines

WORST = 20
"""Cases that stand on the page without its script."""
_TEMPLATES = Path(__file__).resolve().parent / "templates"
_SCRIPTS = ("case_view.js", "compare.js")
_KINDS = {"better": "good", "worse": "bad", "same": "", "inconclusive": "warn"}


def compare_page(
    document: Mapping[str, Any],
    base: Side,
    candidates: Sequence[Side],
    comparisons: Sequence[Comparison],
    limit: int = CASES_MAX,
) -> str:
    """The page as one HTML file. It holds no time: equal comparisons give equal bytes. Raises DataError for a run folder
    that cannot be read.

    Args:
        document: `comparison.json`.
        base: the base, with its tables open.
        candidates: the candidates, in the order of the document.
        comparisons: what was found for each candidate.
        limit: at most so many cases: those whose main score changed most.
    """
    names = side_names(document)
    main = main_score(document)
    rows = compared_rows(base, candidates, comparisons, main, limit)
    body = (
        _environment()
        .get_template("compare.html.jinja")
        .render(
            document=document,
            base=names[0],
            names=names[1:],
            panels=[_panel(document, item, names, rows) for item in document["comparisons"]],
            rows=rows,
            worst=list(_worst(rows, document, names)),
            slices=list(rows.slices()),
            methods=list(dict.fromkeys(rows.methods)),
            scores=_score_names(document),
            flips=FLIPS,
            main=main,
        )
    )
    script = core_script(PIECES) + "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    style = core_style() + (_TEMPLATES / "compare.css").read_text(encoding="utf-8")
    return page_html(
        Page(f"{' → '.join(names)} · ragpipe", Markup(body), style, script, _blocks(rows, document, names))
    )


def _panel(
    document: Mapping[str, Any], item: Mapping[str, Any], names: Sequence[str], rows: ComparedRows
) -> dict[str, Any]:
    """What the template shows of one candidate."""
    number = item["candidate"]
    name = names[number + 1]
    heads = (names[0], name)
    headline = {key: score for key, score in item["scores"].items() if score["headline"]}
    others = {key: score for key, score in item["scores"].items() if not score["headline"] and score["n"]}
    scaled = {key: score for key, score in headline.items() if has_scale(score)}
    more = {key: score for key, score in others.items() if has_scale(score)}
    unscaled = {key: score for key, score in {**headline, **others}.items() if not has_scale(score)}
    return {
        "name": name,
        "link": page_address(**{"with": name}),
        "item": item,
        "kind": _KINDS[item["verdict"]["state"]],
        "forest": score_forest(scaled, heads, name) if scaled else None,
        "more": score_forest(more, heads, name) if more else None,
        "operations": unscaled_forest({**item["operations"], **unscaled}, heads, name)
        if item["operations"] or unscaled
        else None,
        "flips": flip_rows(headline, name),
        "maps": list(slice_maps(item, list(headline), name)),
        "scatter": _scatter(rows.comparisons[number], rows.main, heads),
        "bridge": list(bridge_lines(headline)),
        "why": list(why_lines(item["why"])),
        "accepted": [part for part in item["differs"] if part["part"] not in ("answers", "scoring")],
    }


def _scatter(comparison: Comparison, main: str, heads: tuple[str, str]) -> Markup | None:
    for score in comparison.scores:
        low, high = score.declared["low"], score.declared["high"]
        if score.name == main and low is not None and high is not None:
            label = f"{main} of each case: {heads[0]} across, {heads[1]} up"
            return scatter(score.base, score.candidate, (float(low), float(high)), heads, label)
    return None


def _score_names(document: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for item in document["comparisons"] for name in item["scores"]))


@dataclass(frozen=True)
class WorstCase:
    """A case that stands on the page without its script. `columns` are (side, pieces of its answer); `scores` are (score,
    base, candidates...) as text."""

    name: str
    link: str
    question: str
    columns: Sequence[tuple[str, Sequence[Any]]]
    scores: Sequence[tuple[str, ...]]


def _worst(rows: ComparedRows, document: Mapping[str, Any], names: Sequence[str]) -> Iterator[WorstCase]:
    improvement = rows.improvement()
    order = np.argsort(np.nan_to_num(improvement, nan=np.inf), kind="stable")[:WORST]
    places = [int(place) for place in order if np.isfinite(improvement[place])]
    columns = rows.columns()
    for place, text in zip(places, compared_texts(rows, places), strict=True):
        before = text.base.answer or ""
        answers: list[tuple[str, Sequence[Any]]] = [(names[0], [("same", before)])]
        for name, side in zip(names[1:], text.candidates, strict=True):
            if side is not None:
                answers.append((name, word_changes(before, side.answer or "")))
        scores = []
        for name in document["headline"]:
            keys = [f"b:{name}", *(f"c{number}:{name}" for number in range(len(rows.comparisons)))]
            values = [float(columns[key][place]) if key in columns else np.nan for key in keys]
            if np.isfinite(values).any():
                scores.append((name, *(plain_number(v if np.isfinite(v) else None) for v in values)))
        yield WorstCase(rows.names[place], page_address(case=rows.names[place]), text.question, answers, scores)


def _blocks(rows: ComparedRows, document: Mapping[str, Any], names: Sequence[str]) -> Iterator[DataBlock]:
    """`index`, `cols`, `text`, and the cases in full: `d<n>` and `t<n>`."""
    columns = rows.columns()
    slices = rows.slices()
    columns |= {f"s:{name}": flags for name, flags in slices.items()}
    cols, layout = column_block(columns)
    questions, searched, page_blocks, pool, waiting = (
        list[str](),
        list[str](),
        list[DataBlock](),
        TextPool(),
        list[Any](),
    )
    for text in compared_texts(rows):
        questions.append(" ".join(text.question[:200].split()))
        sides = [text.base, *text.candidates]
        searched.append("\n".join([text.question, *(side.answer or "" for side in sides if side)]).lower())
        waiting.append(_case_value(text, pool))
        if len(waiting) == ROWS_PER_BLOCK:
            page_blocks.append(json_block(f"d{len(page_blocks)}", waiting))
            waiting.clear()
    if waiting:
        page_blocks.append(json_block(f"d{len(page_blocks)}", waiting))
    index = {
        "rows": rows.names,
        "questions": questions,
        "methods": rows.methods,
        "columns": layout,
        "base": names[0],
        "candidates": list(names[1:]),
        "scores": [_score_value(name, document) for name in _score_names(document)],
        "main": rows.main,
        "total": rows.total,
        "rows_per_block": ROWS_PER_BLOCK,
        "texts_per_block": TEXTS_PER_BLOCK,
    }
    yield json_block("index", index)
    yield cols
    yield json_block("text", searched)
    yield from page_blocks
    yield from pool.blocks()


def _score_value(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    score = next(item["scores"][name] for item in document["comparisons"] if name in item["scores"])
    return {"name": name, "headline": score["headline"], "better": 1 if score["higher_is_better"] else -1}


def _case_value(text: ComparedText, pool: TextPool) -> dict[str, Any]:
    """A case as its `d` block holds it: contexts by the number of their text."""
    value = {"q": text.question, "h": text.history, "ref": text.references, "b": _side_value(text.base, pool)}
    return value | {"c": [None if side is None else _side_value(side, pool) for side in text.candidates]}


def _side_value(side: SideText, pool: TextPool) -> dict[str, Any]:
    contexts = [[context.key, context.place, pool.number(context.text)] for context in side.contexts]
    return {"a": side.answer, "e": side.error, "k": contexts, "r": side.reasons, "s": side.statuses}


@cache
def _environment() -> Any:
    environment = page_environment(_TEMPLATES)
    environment.filters["after_state"] = lambda sentence, state: sentence.removeprefix(f"{state}: ")
    return environment
