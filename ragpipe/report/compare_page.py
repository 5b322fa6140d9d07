"""`compare.html` put together: the body from its template, the rows as data blocks, style and script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ragpipe.comparison.comparison import Comparison
from ragpipe.comparison.preference import preference_lines, strength_lines
from ragpipe.comparison.side import Pairs, Side
from ragpipe.core.sample import OUTPUT_KEY, distinct_references
from ragpipe.report.case_views import parse_json_cell, shorten_for_page
from ragpipe.report.charts import scatter
from ragpipe.report.compare_charts import (
    FLIPS,
    flip_rows,
    has_scale,
    plain_number,
    score_forest,
    score_link,
    slice_maps,
    unscaled_forest,
)
from ragpipe.report.comparison_summary import MODE_HEADS, index_lines, mode_lines, mode_rows, parts_mark, side_lines
from ragpipe.report.page_file import (
    PIECES,
    ROWS_PER_BLOCK,
    TEMPLATES,
    TEXTS_PER_BLOCK,
    DataBlock,
    JsonList,
    Page,
    TextPool,
    case_name,
    column_block,
    core_script,
    core_style,
    json_block,
    page_address,
    page_environment,
    template_file,
)
from ragpipe.store.run_tables import rows_at

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

CASES_MAX = 200_000
"""Cases on the page: of more, those whose main score changed most. All of them are in `comparison.parquet`."""
_NO_CASE = -1


@dataclass(frozen=True)
class ComparedRows:
    """`cases` are the numbers of the rows' cases in the base, in its order; `total` is how many are shared in all.

    `partners` has per candidate the number of its case of each row, or -1. `main` is the score that orders the rows.
    """

    base: Side
    candidates: Sequence[Side]
    comparisons: Sequence[Comparison]
    cases: Whole
    partners: Sequence[Whole]
    main: str
    total: int

    def __len__(self) -> int:
        return len(self.cases)

    @cached_property
    def names(self) -> list[str]:
        """The rows as addresses name them. The method is in it only where the base has several."""
        table = self.base.cases.take(self.cases).select(list(OUTPUT_KEY)).to_pylist()
        single = len(self.base.methods) == 1
        return [case_name(row["sample_id"], None if single else row["method"], row["repeat"]) for row in table]

    @cached_property
    def methods(self) -> list[str]:
        """The method of each row in the base."""
        methods: list[str] = self.base.cases["method"].take(self.cases).to_pylist()
        return methods

    def improvement(self) -> Floats:
        """The change of the main score of each row, positive is better: the lowest of the candidates'. NaN without a pair."""
        changes = [_change(comparison, self.main, self.base)[self.cases] for comparison in self.comparisons]
        lowest: Floats = np.fmin.reduce(changes)
        return lowest

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of the page: `b:<score>` and `c<n>:<score>` are values, `v<n>:<score>` verdicts (3 * the base's + the
        candidate's; each 0 none, 1 failed, 2 passed), `p<n>` whether candidate n has the case."""
        columns: dict[str, NDArray[Any]] = {}

        def of_rows(values: NDArray[Any], comparison: Comparison, absent: float = np.nan) -> NDArray[Any]:
            return _of_base(values, comparison.pairs, self.base, absent)[self.cases]

        for number, comparison in enumerate(self.comparisons):
            columns[f"p{number}"] = (self.partners[number] != _NO_CASE).astype(np.uint8)
            for score in comparison.scores:
                before, after = (np.nan_to_num(side + 1).astype(np.uint8) for side in score.passed())
                columns[f"c{number}:{score.name}"] = of_rows(score.candidate, comparison).astype(np.float32)
                columns[f"v{number}:{score.name}"] = of_rows(3 * before + after, comparison, 0)
                values = of_rows(score.base, comparison).astype(np.float32)
                known = columns.get(f"b:{score.name}", values)
                columns[f"b:{score.name}"] = np.where(np.isnan(known), values, known)
        return columns

    def slices(self) -> dict[str, NDArray[np.uint8]]:
        """The slices that a comparison has rows for, `field:value`, each with a flag per row."""
        wanted = dict.fromkeys((row["field"], row["value"]) for item in self.comparisons for row in item.document["slices"])
        by: Mapping[str, Any] = self.base.metrics["by"]
        groups = self.base.groups({field: by[field] for field, _ in wanted if field in by}) if wanted else {}
        flags = {}
        for field, value in wanted:
            if value in groups.get(field, {}):
                flags[f"{field}:{value}"] = np.isin(self.cases, groups[field][value]).astype(np.uint8)
        return flags


def compared_rows(
    base: Side, candidates: Sequence[Side], comparisons: Sequence[Comparison], main: str, limit: int = CASES_MAX
) -> ComparedRows:
    """The rows of a comparison, with what was found for each candidate: at most `limit`, those in which the score `main` changed
    most, by any candidate."""
    shared = np.unique(np.concatenate([item.pairs.base for item in comparisons]))
    cases = shared
    if len(shared) > limit:
        sizes = np.fmax.reduce([np.abs(_change(item, main, base)) for item in comparisons])[shared]
        order = np.argsort(-np.nan_to_num(sizes, nan=-1.0), kind="stable")[:limit]
        cases = np.sort(shared[order])
    partners = [_of_base(item.pairs.candidate, item.pairs, base, _NO_CASE)[cases] for item in comparisons]
    return ComparedRows(base, candidates, comparisons, cases, partners, main, len(shared))


def main_score(document: Mapping[str, Any]) -> str:
    """The score that orders the cases: that of the first verdict, else the first headline score, else the first of all."""
    first = document["comparisons"][0]
    return str(first["verdict"]["score"] or next(iter([*document["headline"], *first["scores"]]), ""))


def _change(comparison: Comparison, name: str, base: Side) -> Floats:
    """The change of a score by case of the base, positive is better; NaN where there is no pair."""
    for score in comparison.scores:
        if score.name == name:
            sign = 1 if score.declared["higher_is_better"] else -1
            return _of_base(sign * (score.candidate - score.base), comparison.pairs, base)
    return np.full(len(base.rows), np.nan)


def _of_base(values: NDArray[Any], pairs: Pairs, base: Side, absent: float = np.nan) -> NDArray[Any]:
    """Values of pairs by case of the base; `absent` for a case without a pair."""
    by_case = np.full(len(base.rows), absent, values.dtype)
    by_case[pairs.base] = values
    return by_case


WORST = 20
"""Cases that stand on the page without its script."""
_SCRIPTS = ("case_parts.js", "case_view.js", "compare.js")
_KINDS = {"better": "good", "worse": "bad", "same": "", "inconclusive": "warn"}


def compare_page(
    document: Mapping[str, Any],
    base: Side,
    candidates: Sequence[Side],
    comparisons: Sequence[Comparison],
    limit: int = CASES_MAX,
) -> Page:
    """The page: equal comparisons give equal bytes. Its blocks are read from the run folders when it is
    written, with the tables open. Raises DataError for a run folder that cannot be read, then too.

    `document` is `comparison.json`; the candidates, and what was found for each, are in its order. The sides have their tables
    open. The page has at most `limit` cases: those whose main score changed most.
    """
    names = side_names(document)
    main = main_score(document)
    rows = compared_rows(base, candidates, comparisons, main, limit)
    environment = page_environment(TEMPLATES)
    environment.filters["after_state"] = lambda sentence, state: sentence.removeprefix(f"{state}: ")
    body = environment.get_template("compare.html.jinja").render(
        document=document,
        base=names[0],
        names=names[1:],
        sides=side_lines(document),
        panels=[_panel(document, item, names, rows) for item in document["comparisons"]],
        rows=rows,
        worst=list(_worst(rows, document, names)),
        slices=list(rows.slices()),
        methods=list(dict.fromkeys(rows.methods)),
        scores=_score_names(document),
        flips=FLIPS,
        mode_heads=MODE_HEADS,
        main=main,
    )
    style = core_style() + "".join(map(template_file, ("cases.css", "compare.css")))
    return Page(f"{' → '.join(names)} · ragpipe", Markup(body), style, compare_script(), _blocks(rows, document, names))


def compare_script() -> str:
    """The script of the page: the same for every comparison."""
    return core_script(PIECES) + "".join(map(template_file, _SCRIPTS))


def _panel(document: Mapping[str, Any], item: Mapping[str, Any], names: Sequence[str], rows: ComparedRows) -> dict[str, Any]:
    """What the template shows of one candidate."""
    number = item["candidate"]
    name = names[number + 1]
    heads = (names[0], name)
    headline = {key: score for key, score in item["scores"].items() if score["headline"]}
    others = {key: score for key, score in item["scores"].items() if not score["headline"] and score["n"]}
    scaled = {key: score for key, score in headline.items() if has_scale(score) and score["n"]}
    more = {key: score for key, score in others.items() if has_scale(score)}
    unscaled = {key: score for key, score in {**headline, **others}.items() if not has_scale(score) and score["n"]}
    return {
        "name": name,
        "link": page_address(**{"with": name}),
        "item": item,
        "kind": _KINDS[item["verdict"]["state"]],
        "forest": score_forest(scaled, heads, score_link(name), _parts_words(scaled)) if scaled else None,
        "more": score_forest(more, heads, score_link(name)) if more else None,
        "operations": unscaled_forest({**item["operations"], **unscaled}, heads, score_link(name))
        if item["operations"] or unscaled
        else None,
        "without_pairs": [key for key, score in headline.items() if not score["n"]],
        "flips": flip_rows(headline, name),
        "modes": mode_rows(item["failure_modes"]),
        "mode_notes": list(mode_lines(item, document["candidates"][number])),
        "maps": list(slice_maps(item, list(headline), name)),
        "scatter": _scatter(rows.comparisons[number], rows.main, heads),
        "index": list(index_lines(item["index"])),
        "notes": [
            *(preference_lines(item["preference"]) if "preference" in item else ()),
            *(strength_lines(document.get("strengths", ())) if item is document["comparisons"][-1] else ()),
        ],
        "accepted": [part for part in item["differs"] if part["part"] not in ("answers", "scoring")],
    }


def _parts_words(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """`overall_score: 2 of 8 parts.`, for each composite that lacks parts."""
    marks = ((name, parts_mark(score).strip(" ()")) for name, score in scores.items())
    return " ".join(f"{name}: {mark}." for name, mark in marks if mark)


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
    """The cases in full (`d<n>`, `t<n>`) while they are read, then `text`, `cols` and `index`."""
    cols, layout = column_block(rows.columns() | {f"s:{name}": flags for name, flags in rows.slices().items()})
    questions, searched, pool = list[str](), JsonList(), TextPool()
    texts = compared_texts(rows)
    number = 0
    while part := list(islice(texts, ROWS_PER_BLOCK)):
        cases = []  # contexts by the number of their text
        for text in part:
            sides = (text.base, *text.candidates)
            questions.append(" ".join(text.question[:200].split()))
            searched.append("\n".join([text.question, *(side.answer or "" for side in sides if side)]).lower())
            base, *others = (None if side is None else _side_value(side, pool) for side in sides)
            cases.append({"q": text.question, "h": text.history, "ref": text.references, "b": base, "c": others})
        yield json_block(f"d{number}", cases)
        yield from pool.full_blocks()
        number += 1
    yield from pool.blocks()
    yield searched.block("text")
    yield cols
    scores = []
    for name in _score_names(document):
        score = next(item["scores"][name] for item in document["comparisons"] if name in item["scores"])
        scores.append({"name": name, "headline": score["headline"], "better": 1 if score["higher_is_better"] else -1})
    index = {
        "rows": rows.names,
        "questions": questions,
        "methods": rows.methods,
        "columns": layout,
        "base": names[0],
        "candidates": list(names[1:]),
        "scores": scores,
        "main": rows.main,
        "total": rows.total,
        "rows_per_block": ROWS_PER_BLOCK,
        "texts_per_block": TEXTS_PER_BLOCK,
    }
    yield json_block("index", index)


def _side_value(side: SideText, pool: TextPool) -> dict[str, Any]:
    contexts = [[key, place, pool.number(content)] for key, place, content in side.contexts]
    return {"a": side.answer, "e": side.error, "k": contexts, "r": side.reasons, "s": side.statuses}


BLOCK = 1024  # cases in memory at once
CONTEXTS_MAX = 50
_RECORD = ("question", "answer", "system_error")


@dataclass(frozen=True)
class SideText:
    """What one side has for a case. `contexts` are (a key that says whether another side has it too, where it is from, its text);
    `reasons` are those of its scores, `statuses` those of scores without a value, both of the first iteration."""

    answer: str | None
    error: str | None
    contexts: Sequence[tuple[str, str, str]]
    reasons: Mapping[str, str]
    statuses: Mapping[str, str]


@dataclass(frozen=True)
class ComparedText:
    """A compared case: its question, and each side's text; None for a candidate without it."""

    question: str
    history: Sequence[tuple[str, str]]
    references: Sequence[str]
    base: SideText
    candidates: Sequence[SideText | None]


def compared_texts(rows: ComparedRows, places: Sequence[int] | None = None) -> Iterator[ComparedText]:
    """The texts of the rows in order: of all, or of those at `places`. Raises DataError."""
    chosen = np.arange(len(rows)) if places is None else np.array(places, np.int64)
    names = list(dict.fromkeys(score.name for item in rows.comparisons for score in item.scores))
    for start in range(0, len(chosen), BLOCK):
        block = chosen[start : start + BLOCK]
        of_base = _read_side(rows.base, rows.cases[block], names)
        places_of_samples = {output["sample_row"] for _, output in of_base.values()}
        samples = rows_at(rows.base.folder.samples, places_of_samples, ("history", "references"))
        of_candidates = [
            _read_side(side, partners[block], names) for side, partners in zip(rows.candidates, rows.partners, strict=True)
        ]
        for place, case in enumerate(rows.cases[block].tolist()):
            record, output = of_base[case]
            sample = samples.get(output["sample_row"], {})
            history = parse_json_cell(sample.get("history"), list)
            yield ComparedText(
                question=shorten_for_page(record["question"] or ""),
                history=[(str(t.get("role")), shorten_for_page(str(t.get("text")))) for t in history if isinstance(t, dict)],
                references=[shorten_for_page(text) for text in distinct_references(sample.get("references") or ())],
                base=_side_text(record, output, names),
                candidates=[
                    _side_text(*texts[number], names) if (number := int(partners[block[place]])) >= 0 else None
                    for partners, texts in zip(rows.partners, of_candidates, strict=True)
                ],
            )


Rows = dict[int, tuple[dict[str, Any], dict[str, Any]]]


def _read_side(side: Side, cases: Whole, names: Sequence[str]) -> Rows:
    """By number of the case: its row of records and its row of outputs."""
    numbers = sorted({int(case) for case in cases if case >= 0})
    if not numbers:
        return {}
    places = {number: int(side.rows[number]) for number in numbers}
    columns = [*_RECORD, *(f"{name}.{part}" for name in names for part in ("reason", "status"))]
    known = set(side.tables[side.records].schema_arrow.names)
    records = rows_at(side.records, list(places.values()), [name for name in columns if name in known])
    outputs = rows_at(side.folder.outputs, list(places.values()), ("sample_row", "chunks"))
    return {number: (records[place], outputs[place]) for number, place in places.items()}


def _side_text(record: Mapping[str, Any], output: Mapping[str, Any], names: Sequence[str]) -> SideText:
    answer = record["answer"]
    return SideText(
        answer=None if answer is None else shorten_for_page(answer),
        error=record["system_error"],
        contexts=[_context(chunk) for chunk in (output["chunks"] or ())[:CONTEXTS_MAX]],
        reasons={name: shorten_for_page(text, 2000) for name in names if (text := record.get(f"{name}.reason"))},
        statuses={name: text for name in names if (text := record.get(f"{name}.status")) not in (None, "ok")},
    )


def _context(chunk: Mapping[str, Any]) -> tuple[str, str, str]:
    text = str(chunk.get("text") or "")
    places = dict.fromkeys(str(chunk[key]) for key in ("id", "doc_id", "rel_path") if chunk.get(key))
    rank = f"{chunk['rank']}. " if chunk.get("rank") is not None else ""
    return str(chunk.get("id") or text), rank + " · ".join(places), shorten_for_page(text)


def side_names(document: Mapping[str, Any]) -> list[str]:
    """The names of the base and of each candidate, all different: methods where methods are compared, else the names of the
    runs, or with their ids where names are equal, or with their methods where the runs are."""
    sides = [document["base"], *document["candidates"]]
    methods = [str(side["method"] or "all methods") for side in sides]
    if document["kind"] == "methods":
        return methods
    runs = [str(side["run_id"]) for side in sides]
    names = [str(side["name"]) for side in sides]
    with_ids = [f"{name} {run}" for name, run in zip(names, runs, strict=True)]
    with_methods = [f"{name} {method}" for name, method in zip(with_ids, methods, strict=True)]
    choices = [names, with_ids, with_methods]
    numbered = [f"{number}: {name}" for number, name in enumerate(with_methods)]
    return next((choice for choice in choices if len(set(choice)) == len(choice)), numbered)


TOKENS_MAX = 3000
"""Of one text; a longer one is shown as replaced as a whole: the time grows with the square."""
_TOKENS = re.compile(r"\s+|\w+|[^\w\s]")


class Change(NamedTuple):
    """A stretch of text: in both texts, only in the old one, or only in the new one."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_changes(before: str, after: str) -> list[Change]:
    """The stretches of both texts in order. Those that are not `added` make up `before`, those not `removed` `after`."""
    old, new = _TOKENS.findall(before), _TOKENS.findall(after)
    if max(len(old), len(new)) > TOKENS_MAX:
        return _stretches(before, after) if before != after else _stretches(before, after, is_same=True)
    changes = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        changes += _stretches("".join(old[i:j]), "".join(new[k:m]), is_same=kind == "equal")
    return changes


def _stretches(before: str, after: str, *, is_same: bool = False) -> list[Change]:
    if is_same:
        return [Change("same", before)] if before else []
    return [change for change in (Change("removed", before), Change("added", after)) if change.text]
