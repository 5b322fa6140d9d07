"""The cases of the page as data blocks: the list, then the cases in full, read and packed block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.safe_text import printable
from ragpipe.pages.data_blocks import (
    ROWS_PER_BLOCK,
    TEXTS_PER_BLOCK,
    DataBlock,
    JsonList,
    TextPool,
    column_block,
    json_block,
)
from ragpipe.reports.case_views import MARKS, CaseView, ScoreView, TextPart, case_views
from ragpipe.reports.run_page.case_rows import CaseRows, read_case_rows
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.store.run.ordered_rows import OutputKey
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import batches, open_table, read_columns, schema_of

PAGE_CASES = 20_000
"""A page has so many cases at most."""
PROMPTS_MB = 24
"""Megabytes of prompts and replies on a page, as they are stored without compression; on the page they take about a tenth."""


@dataclass(frozen=True)
class RunCases:
    """The cases of an iteration of a run, for its page. `metrics` is what the page shows, `run_id` the id of the run, `most` how
    many cases the page has."""

    run: RunFolder
    iteration: IterationFolder
    metrics: Mapping[str, Any]
    run_id: str
    prompts_mb: float = PROMPTS_MB
    most: int = PAGE_CASES

    @cached_property
    def rows(self) -> CaseRows:
        """The list. Raises DataError."""
        return read_case_rows(self.iteration.records, self.metrics, self.most)

    @cached_property
    def with_prompts(self) -> frozenset[int]:
        """The cases of the page, by their number there, that have their prompts and replies: the worst ones, as many as
        `prompts_mb` are enough for, each case counted as large as their mean."""
        size = _stored_bytes(self.iteration)
        share = min(1.0, self.prompts_mb * 1e6 / size) if size else 1.0
        return frozenset(self.rows.worst_first()[: int(self.rows.total * share)].tolist())

    def worst(self, count: int) -> list[int]:
        """The worst cases that have the main score, by their number on the page."""
        rows = self.rows
        values = rows.values.get(rows.main)
        if values is None:
            return []
        return [int(place) for place in rows.worst_first()[:count] if np.isfinite(values[place])]

    def blocks(self) -> Iterator[DataBlock]:
        """The cases in full (`d<n>`) with chunk texts (`t<n>`), prompts and replies (`p<n>`) while they are read, then the texts of the
        search (`text`), `cols` and `index`. Raises DataError."""
        cols, layout = column_block(self.rows.columns())
        texts, prompts, searched, number = TextPool(), TextPool("p"), JsonList(), 0
        varied = self._iteration_values()
        shown, is_with_prompts = self._shown_scores(), self.with_prompts.__contains__
        views = case_views(self.run, self.iteration, shown, is_with_prompts, self.rows.places)
        while part := list(islice(views, ROWS_PER_BLOCK)):
            values = list[dict[str, Any]]()
            for place, view in enumerate(part, number * ROWS_PER_BLOCK):
                answer = "".join(piece.text for piece in view.answer or ())
                searched.append(f"{view.question}\n{answer}".lower())
                differing = varied.differing(place) if varied else {}
                values.append(case_value(view, texts, prompts) | ({"it": differing} if differing else {}))
            yield json_block(f"d{number}", values)
            yield from texts.full_blocks()
            yield from prompts.full_blocks()
            number += 1
        yield from texts.blocks()
        yield from prompts.blocks()
        yield searched.block("text")
        yield cols
        yield json_block("index", self._index(layout))

    def _iterations(self) -> list[int]:
        """The iterations that the page is of; empty for a single one."""
        numbers = list(self.metrics.get("iterations", ()))
        return numbers if len(numbers) > 1 else []

    def _iteration_values(self) -> IterationValues | None:
        records = [self.run.iteration(number).records for number in self._iterations()]
        return IterationValues(records, self.rows.keys(), self.rows.scores) if records else None

    def _shown_scores(self) -> list[str]:
        return [name for name in self.rows.scores if name != "overall_score"]

    def _index(self, layout: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "iterations": self._iterations(),
            "iteration": int(self.iteration.root.name.rpartition("-")[2]),
            **self.rows.index(),
            "columns": layout,
            "marks": MARKS,
            "prompts": len(self.with_prompts),
            "total": self.rows.total,
            "rows_per_block": ROWS_PER_BLOCK,
            "texts_per_block": TEXTS_PER_BLOCK,
        }


def _stored_bytes(iteration: IterationFolder) -> int:
    """The bytes of all prompts and replies, as the footer of `judge_inputs.parquet` has them."""
    with open_table(iteration.judge_inputs, ["messages", "reply"]) as file:
        groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
        columns = (group.column(number) for group in groups for number in range(group.num_columns))
        return sum(_size(column) for column in columns if column.path_in_schema in ("messages", "reply"))


def _size(column: pq.ColumnChunkMetaData) -> int:
    return int(column.total_uncompressed_size)


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
        "x": view.digest,
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
        end = start + _units(text)
        if part.mark:
            marks.append([start, end, part.mark])
        start = end
    return {"id": context["id"] or number, "p": place, "t": number, **({"m": marks} if marks else {})}


def _units(text: str) -> int:
    """The length of a text as JavaScript counts it: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _score(score: ScoreView) -> dict[str, Any]:
    """Reason, contradicted claims and details of a score; its value and verdict are in the columns."""
    claims = [[claim.claim, [[item.quote, item.place] for item in claim.passages]] for claim in score.contradicted]
    blocks = [
        {"n": block.name, "h": block.heads, "r": block.rows, "i": block.items, "more": block.more}
        for block in score.blocks
    ]
    value = {"r": score.reason, "c": claims, "b": [{k: v for k, v in block.items() if v} for block in blocks]}
    return {name: part for name, part in value.items() if part}


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
        value |= {"k": call["key"], "f": call["flags"]}
        value |= {"p": [[role, prompts.number(text)] for role, text in call["messages"]]}
        value |= {"r": [prompts.number(call["reply"])]}
    return {name: part for name, part in value.items() if part not in (None, "", False, [])}


_BATCH = 8192  # cases
_DIGITS = 7
"""Digits of a value: those of the single precision in which the page has the others."""


class IterationValues:
    """The values of all cases in several iterations.

    Args:
        records: `records.parquet` of each iteration, in their order.
        cases: the cases of the page in its order, each by sample, method and repeat.
        scores: names of scores; one that an iteration lacks is missing there.

    Raises DataError for a table that cannot be read.
    """

    def __init__(self, records: Sequence[Path], cases: Iterable[OutputKey], scores: Sequence[str]) -> None:
        places = {case: place for place, case in enumerate(cases)}
        per_iteration = [_values(path, places, scores) for path in records]
        self._values = {name: np.stack([values[name] for values in per_iteration]) for name in scores}

    def differing(self, place: int) -> dict[str, list[float | None]]:
        """Per score that has different values in the iterations a value for each; None is missing."""
        columns = ((name, values[:, place]) for name, values in self._values.items())
        return {name: [_number(value) for value in column] for name, column in columns if _is_varied(column)}


def _cases(records: Path) -> Iterator[OutputKey]:
    for batch in batches(records, OUTPUT_KEY, size=_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _values(records: Path, places: dict[OutputKey, int], scores: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Per score an array as long as `places`; NaN where the iteration has no value."""
    order = np.fromiter((places.get(case, -1) for case in _cases(records)), dtype=np.int64)
    known = order >= 0
    columns = schema_of(records).names
    values = {}
    for name in scores:
        values[name] = np.full(len(places), np.nan)
        if name in columns:
            column = read_columns(records, [name])[name].cast(pa.float64()).to_numpy()
            values[name][order[known]] = column[known]
    return values


def _is_varied(column: NDArray[np.float64]) -> bool:
    return not np.array_equal(column, np.broadcast_to(column[:1], column.shape), equal_nan=True)


def _number(value: np.float64) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
