"""What a person sees of a case: question, earlier turns, answer, contexts, and the reference where the score is measured by it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ragpipe.labelling.population import Key
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import OUTPUT_KEY, Turn, distinct_references
from ragpipe.schema.table_schemas import output_from, sample_from, sample_json
from ragpipe.store.run.run_tables import read_columns, reading_table, rows_at

_INVALID = (ValueError, KeyError, TypeError)  # what the decoding of a malformed row raises


@dataclass(frozen=True)
class ShownCase:
    """A case without anything that was said of it: no score, no verdict, no name of a method, chunk or sample. `answer` and
    `contexts` are None where the data set does not record them."""

    question: str
    history: list[Turn]
    answer: str | None
    contexts: list[str] | None
    references: list[str]
    answer_sha256: str


def read_shown_cases(samples: Path, outputs: Path, keys: Collection[Key]) -> dict[Key, ShownCase]:
    """These cases of a run, from its frozen tables. Raises DataError for a table that cannot be read or lacks a case."""
    chosen = set(keys)
    columns = read_columns(outputs, [*OUTPUT_KEY, "sample_row"])
    cells = zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
    places = {(sample, method, repeat): (place, row) for place, (sample, method, repeat, row) in enumerate(cells)}
    with reading_table(outputs, *_INVALID):
        found = {key: places[key] for key in chosen}
    output_rows = rows_at(outputs, [place for place, _ in found.values()])
    sample_rows = rows_at(samples, {row for _, row in found.values()})
    shown = {}
    for key, (place, row) in found.items():
        with reading_table(samples, *_INVALID):
            sample = sample_from(sample_json(sample_rows[row]))
        with reading_table(outputs, *_INVALID):
            output = output_from(output_rows[place])
        shown[key] = ShownCase(
            sample.question,
            sample.history,
            output.answer,
            None if output.chunks is None else [chunk.text for chunk in output.chunks],
            distinct_references(sample.references),
            answer_digest(sample, output),
        )
    return shown
