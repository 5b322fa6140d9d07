"""`report.html`: a run as one file to look at. It loads nothing and sends nothing, and holds nothing that this machine
paid: equal runs give equal bytes but for the line that says which run it is, of when, and how long it took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ragpipe.core.text import printable
from ragpipe.report.case_rows import FAILED, PASSED, CaseRows, read_case_rows
from ragpipe.report.case_views import MARKS, TEXT_MAX, CaseView, DetailBlock, ScoreView, TextPart, case_views, shorten_for_page
from ragpipe.report.charts import method_key
from ragpipe.report.model import (
    CaseName,
    Chart,
    ItemList,
    Note,
    Report,
    RowHead,
    ScoreCell,
    Strong,
    Table,
    pieces_of,
    plain_text,
    texts_of,
)
from ragpipe.report.page_file import (
    PIECES,
    ROWS_PER_BLOCK,
    TEMPLATES,
    TEXTS_PER_BLOCK,
    DataBlock,
    JsonList,
    Page,
    TextPool,
    column_block,
    core_script,
    core_style,
    json_block,
    page_address,
    page_environment,
    template_file,
    write_page,
)
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import batches, open_table, rows_at

_SCRIPTS = ("case_parts.js", "report_case.js", "report_list.js")
_STYLES = ("front.css", "cases.css")


def write_run_page(path: Path, report: Report, cases: RunCases | None) -> list[Path]:
    """Write the page and, above SINGLE_FILE_MB megabytes of data, the files beside it; those with the same content are left
    alone. Returns their paths. Without `cases` the page has none. Raises DataError, OutputError."""
    return write_page(path, run_page(report, cases))


def run_page(report: Report, cases: RunCases | None) -> Page:
    """The page. Its blocks are read from the run as they are asked for. Raises DataError."""
    shown = cases if cases is not None and len(cases.rows) else None
    front, worst = front_markup(report), list(static_cases(shown)) if shown else ()
    template = page_environment(TEMPLATES).get_template("report.html.jinja")
    body = template.render(front=front, methods=report.methods, pages=report.pages, key=method_key, cases=shown, worst=worst)
    script = report_script() if shown else ""
    style = core_style() + "".join(map(template_file, _STYLES))
    return Page(f"{report.name} · ragpipe", Markup(body), style, script, shown.blocks() if shown else ())


def report_script() -> str:
    """The script of the page: the same for every run."""
    return core_script(PIECES) + "".join(map(template_file, _SCRIPTS))


_CARDS = {
    "better": ("scores", "shared", "methods"), "corrected": (), "jury": (), "drift": (), "gates": (),
    "problems": ("low", "versions"), "categories": (), "slices": (), "spread": ("distributions", "iterations"), "chunks": (),
}  # fmt: skip
"""Sections in sight above the cases, in the order of reading, each with those that are folded below it."""
_WORDS = {"problems": "Advice, examples and failure modes", "gates": "In words"}
_KINDS = {
    "table_part": Table,
    "note_part": Note,
    "chart_part": Chart,
    "case_name": CaseName,
    "items": ItemList,
    "score_cell": ScoreCell,
    "row_head": RowHead,
    "strong": Strong,
}


@dataclass(frozen=True)
class FrontParts:
    """The markup around the cases: `head` with verdict and trust, `sections` before the cases, `fine_print` after them, the signature
    last; `named` are names and titles of what stands above the cases, `after` the titles of the fine print."""

    head: Markup
    sections: Markup
    fine_print: Markup
    named: Sequence[tuple[str, str]]
    after: Sequence[str]


def front_markup(report: Report) -> FrontParts:
    """The report without its cases. A section without a place above the cases is fine print."""
    shown = report.for_medium("html")
    if shown.verdict:  # what its remarks say stands in the notices
        shown = replace(shown, verdict=replace(shown.verdict, remarks=()))
    by_name = {section.name: section for section in shown.sections}
    cards = [
        [by_name.pop(each) for each in (name, *more) if each in by_name] for name, more in _CARDS.items() if name in by_name
    ]
    fine_print = list(by_name.values())
    macros = front_template().make_module()
    return FrontParts(
        head=Markup(macros.head(shown)),
        sections=Markup("").join(macros.panel(card[0], card[1:], _WORDS.get(card[0].name, "In figures")) for card in cards),
        fine_print=Markup(macros.fine_print(fine_print) + macros.signature(shown)),
        named=[(card[0].name, card[0].title) for card in cards],
        after=[section.title.split(" (")[0] for section in fine_print],
    )


@cache
def front_template() -> Any:
    """The macros of `front.html.jinja`, which every page of sections is made of."""
    environment = page_environment(TEMPLATES)
    environment.filters |= {"pieces": pieces_of, "plain": plain_text, "texts": texts_of, "key": method_key}
    environment.filters["only"] = lambda section, parts: replace(section, parts=tuple(parts))
    environment.filters["row_count"] = lambda parts: sum(
        len(part.rows) + part.rows_left_out for part in parts if isinstance(part, Table)
    )
    for name, kind in _KINDS.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    return environment.get_template("front.html.jinja")


WORST = 20
_TEXT_MAX = 1000
_VERDICTS = {FAILED: "miss", PASSED: "pass"}


@dataclass(frozen=True)
class StaticCase:
    """A case in short. `scores` are name, value and verdict of its headline scores."""

    name: str
    link: str
    question: str
    answer: str
    scores: Sequence[tuple[str, str, str]]


def static_cases(cases: RunCases) -> Iterator[StaticCase]:
    """The `WORST` lowest cases by the main score. Raises DataError."""
    rows, worst = cases.rows, cases.worst(WORST)
    records = rows_at(cases.iteration.records, worst, ("question", "answer")) if worst else {}
    for place in worst:
        scores = [
            (name, f"{rows.values[name][place]:.4g}", _VERDICTS.get(int(rows.verdicts[name][place]), ""))
            for name in rows.headline or rows.scores
            if np.isfinite(rows.values[name][place])
        ]
        record, name = records[place], rows.names[place]
        question, answer = (shorten_for_page(record[column] or "", _TEXT_MAX) for column in ("question", "answer"))
        yield StaticCase(name, page_address(case=name), question, answer, scores)


PROMPTS_MB = 24
"""Megabytes of prompts and replies on a page, as they are stored without compression; on the page they take about a tenth."""


@dataclass(frozen=True)
class RunCases:
    """The cases of an iteration of a run, for its page. `metrics` is what the page shows, `run_id` the id of the run, `in_full` how
    many cases the page has in full (None: all)."""

    run: RunFolder
    iteration: IterationFolder
    metrics: Mapping[str, Any]
    run_id: str
    prompts_mb: float = PROMPTS_MB
    in_full: int | None = None

    @cached_property
    def rows(self) -> CaseRows:
        """The list. Raises DataError."""
        return read_case_rows(self.iteration.records, self.metrics, self.in_full)

    @cached_property
    def with_prompts(self) -> frozenset[int]:
        """The cases, by their number, that have their prompts and replies on the page: the worst of those in full, as many as
        `prompts_mb` are enough for, each case counted as large as their mean."""
        full = set(self.rows.full.tolist())
        size = _stored_bytes(self.iteration) * len(full) / max(1, len(self.rows))
        share = min(1.0, self.prompts_mb * 1e6 / size) if size else 1.0
        return frozenset(list(filter(full.__contains__, self.rows.worst_first().tolist()))[: int(len(full) * share)])

    def worst(self, count: int) -> list[int]:
        """The worst cases that have the main score, by their number on the page."""
        rows = self.rows
        values = rows.values.get(rows.main)
        if values is None:
            return []
        return [int(place) for place in rows.worst_first()[:count] if np.isfinite(values[place])]

    def blocks(self) -> Iterator[DataBlock]:
        """The cases in full (`d<n>`) with chunk texts (`t<n>`), prompts and replies (`p<n>`) while they are read, then the texts of the
        search (`text`), `cols` and `index`, of all cases. Raises DataError."""
        cols, layout = column_block(self.rows.columns())
        texts, prompts, number = TextPool(), TextPool("p"), 0
        shown = [name for name in self.rows.scores if name != "overall_score"]
        full = self.rows.full.tolist()
        views = case_views(self.run, self.iteration, shown, lambda place: full[place] in self.with_prompts, self.rows.full)
        while part := list(islice(views, ROWS_PER_BLOCK)):
            yield json_block(f"d{number}", [case_value(view, texts, prompts) for view in part])
            yield from texts.full_blocks()
            yield from prompts.full_blocks()
            number += 1
        yield from texts.blocks()
        yield from prompts.blocks()
        yield self._searched().block("text")
        yield cols
        yield json_block("index", self._index(layout))

    def _searched(self) -> JsonList:
        """What the search looks at: question and answer of each case, as far as a page shows them."""
        searched = JsonList()
        for batch in batches(self.iteration.records, ["question", "answer"]):
            for question, answer in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                searched.append(f"{(question or '')[:TEXT_MAX]}\n{(answer or '')[:TEXT_MAX]}".lower())
        return searched

    def _index(self, layout: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        iterations = list(self.metrics.get("iterations", ()))
        return {
            "run": self.run_id,
            "iterations": iterations if len(iterations) > 1 else [],
            "iteration": int(self.iteration.root.name.rpartition("-")[2]),
            **self.rows.index(),
            "columns": layout,
            "marks": MARKS,
            "prompts": len(self.with_prompts),
            "rows_per_block": ROWS_PER_BLOCK,
            "texts_per_block": TEXTS_PER_BLOCK,
        }


def _stored_bytes(iteration: IterationFolder) -> int:
    """The bytes of all prompts and replies, as the footer of `judge_inputs.parquet` has them."""
    with open_table(iteration.judge_inputs, ["messages", "reply"]) as file:
        groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
        columns = (group.column(number) for group in groups for number in range(group.num_columns))
        sizes = (column.total_uncompressed_size for column in columns if column.path_in_schema in ("messages", "reply"))
        return int(sum(sizes))


def case_value(view: CaseView, texts: TextPool, prompts: TextPool) -> dict[str, Any]:
    """A case as its `d` block holds it: chunk texts, prompts and replies by their numbers. What is empty is left out."""
    value = {
        "q": view.question,
        "a": None if view.answer is None else _parts(view.answer),
        "e": view.error,
        "h": [[turn["role"], turn["text"]] for turn in view.history],
        "ref": view.references,
        "l": view.labels,
        "k": [_context(context, texts) for context in view.contexts],
        "s": {score.name: shown for score in view.scores if (shown := _score(score))},
        "dg": view.diagnosis,
        "j": [_call(call, prompts) for call in view.calls],
        "n": view.left_out,
    }
    return {name: part for name, part in value.items() if part or name == "a"}


def _parts(parts: Sequence[TextPart]) -> str | list[Any]:
    """A text as itself, or where something is marked as pieces, each a text or a text with its mark."""
    if not any(part.mark for part in parts):
        return "".join(part.text for part in parts)
    return [[part.text, part.mark] if part.mark else part.text for part in parts]


def _context(context: Mapping[str, Any], texts: TextPool) -> dict[str, Any]:
    """A chunk: what names it across methods, where it is from, the number of its text, and its marks as places in this text."""
    shown = [printable(part.text) for part in context["text"]]
    number = texts.number("".join(shown))
    rank, score = context["rank"], context["score"]
    words = [*context["places"], *([str(score)] if score is not None else []), *filter(None, [context["policy"]])]
    place = (f"{rank}. " if rank is not None else "") + " · ".join(map(str, words))
    marks, start = list[Any](), 0
    for text, part in zip(shown, context["text"], strict=True):
        # JavaScript counts in units of UTF-16
        end = start + (len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2)
        if part.mark:
            marks.append([start, end, part.mark])
        start = end
    return {"id": context["id"] or number, "p": place, "t": number, **({"m": marks} if marks else {})}


def _score(score: ScoreView) -> dict[str, Any]:
    """Reason, contradicted claims, claims by context and details of a score; its value and verdict are in the columns."""
    claims = [[claim.claim, [[item.quote, item.place] for item in claim.passages]] for claim in score.contradicted]
    value = {"r": score.reason, "c": claims, "u": _blocks(score.support), "b": _blocks(score.blocks)}
    return {name: part for name, part in value.items() if part}


def _blocks(blocks: Sequence[DetailBlock]) -> list[dict[str, Any]]:
    values = ({"n": block.name, "h": block.heads, "r": block.rows, "i": block.items, "more": block.more} for block in blocks)
    return [{name: part for name, part in value.items() if part} for value in values]


def _call(call: Mapping[str, Any], prompts: TextPool) -> dict[str, Any]:
    template = f"{call['template']}.{call['template_version']}" if call["template"] else ""
    value = {
        "m": call["metric"],
        "s": call["step"],
        "t": "" if call["turn"] == "ask" else call["turn"],
        "j": call["judge"],
        "tp": template,
        "st": call["status"],
        "msg": call["message"],
        "in": call["tokens_in"],
        "out": call["tokens_out"],
        "c": call["computed"],
    }
    if "messages" in call:
        asked = [[role, prompts.number(text)] for role, text in call["messages"]]
        value |= {"k": call["key"], "f": call["flags"], "p": asked, "r": [prompts.number(call["reply"])]}
    return {name: part for name, part in value.items() if part not in (None, "", False, [])}
