"""The texts of compared cases, read block by block from the run folders: what memory holds does not grow with the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.side import Side
from ragpipe.reports.case_views import parse_json_cell, shorten_for_page
from ragpipe.reports.compare.compared_rows import ComparedRows
from ragpipe.schema.sample import distinct_references
from ragpipe.store.run.run_tables import rows_at

Whole = NDArray[np.int64]

BLOCK = 1024  # cases in memory at once
CONTEXTS_MAX = 50
_RECORD = ("question", "answer", "system_error")
_SAMPLE = ("history", "references")


@dataclass(frozen=True)
class Context:
    """A retrieved chunk: `key` says whether another side has it too, `place` where it is from."""

    key: str
    place: str
    text: str


@dataclass(frozen=True)
class SideText:
    """What one side has for a case. `reasons` are those of its scores, `statuses` those of scores without a value; both of
    the first iteration."""

    answer: str | None
    error: str | None
    contexts: Sequence[Context]
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
        samples = _read_samples(rows.base, of_base)
        of_candidates = [
            _read_side(side, partners[block], names)
            for side, partners in zip(rows.candidates, rows.partners, strict=True)
        ]
        for place, case in enumerate(rows.cases[block].tolist()):
            record, output = of_base[case]
            sample = samples.get(output["sample_row"], {})
            history = parse_json_cell(sample.get("history"), list)
            yield ComparedText(
                question=shorten_for_page(record["question"] or ""),
                history=[
                    (str(t.get("role")), shorten_for_page(str(t.get("text")))) for t in history if isinstance(t, dict)
                ],
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


def _read_samples(side: Side, rows: Rows) -> dict[int, dict[str, Any]]:
    return rows_at(side.folder.samples, {output["sample_row"] for _, output in rows.values()}, _SAMPLE)


def _side_text(record: Mapping[str, Any], output: Mapping[str, Any], names: Sequence[str]) -> SideText:
    answer = record["answer"]
    chunks = [chunk for chunk in parse_json_cell(output["chunks"], list) if isinstance(chunk, dict)]
    return SideText(
        answer=None if answer is None else shorten_for_page(answer),
        error=record["system_error"],
        contexts=[_context(chunk) for chunk in chunks[:CONTEXTS_MAX]],
        reasons={name: shorten_for_page(text, 2000) for name in names if (text := record.get(f"{name}.reason"))},
        statuses={name: text for name in names if (text := record.get(f"{name}.status")) not in (None, "ok")},
    )


def _context(chunk: Mapping[str, Any]) -> Context:
    text = str(chunk.get("text") or "")
    places = dict.fromkeys(str(chunk[key]) for key in ("id", "doc_id", "rel_path") if chunk.get(key))
    rank = f"{chunk['rank']}. " if chunk.get("rank") is not None else ""
    return Context(str(chunk.get("id") or text), rank + " · ".join(places), shorten_for_page(text))
