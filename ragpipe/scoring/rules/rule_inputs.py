"""What rules may ask of a block of cases: its scores, the details beside them, its fields, its failure modes.

Fields and details are given as their different values with a number for each case, so that a test looks at each value
once: a label like `expected.behavior` has two values in a block of two thousand cases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.schema.sample import OUTPUT_KEY, Expected
from ragpipe.schema.text_forms import is_blank
from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.dimensions import KNOWN, LISTS, META, nearest_field, within
from ragpipe.scoring.normalisation import OK, Column

EXPECTED = "expected."
_EXPECTED = tuple(EXPECTED + name for name in Expected.model_fields)

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Valued:
    """Some different values, and for each case the number of its own."""

    values: list[Any]
    numbers: Whole

    @cached_property
    def blank(self) -> NDArray[np.bool_]:
        """For each case whether its value is absent or empty. Many rules ask it of the answer, whose values are all different."""
        blank = np.array([_is_blank(value) for value in self.values], dtype=np.bool_)
        return blank[self.numbers]


class Facts:
    """One block. `columns` are the scores of the run by name, composites and the overall score with them; `measured` are
    those that a metric gave; `cases` are the columns of `case_columns`. `modes` are filled in as they are found."""

    def __init__(
        self,
        block: CaseBlock,
        columns: Mapping[str, Column],
        cases: Mapping[str, pa.Array],
        measured: Collection[str],
    ):
        self.n = len(block)
        self.columns = columns
        self.measured = set(measured)
        self.modes: dict[str, NDArray[np.int8]] = {}
        self._block = block
        self._cases = cases
        self._fields: dict[str, Valued] = {}
        self._rows: dict[str, Whole] = {}

    def first(self, names: Sequence[str]) -> str | None:
        """The first of these scores that the run has."""
        return next((name for name in names if name in self.columns), None)

    def field(self, name: str) -> Valued:
        """A field's values; None where there is none."""
        if name not in self._fields:
            self._fields[name] = self._field(name)
        return self._fields[name]

    def details(self, score: str, path: str) -> tuple[Valued, NDArray[np.bool_]]:
        """The value at `path` in the details of a score, and where that score is ok."""
        cases, texts = self.detail_rows(score, path)
        numbers = np.zeros(self.n, dtype=np.int64)
        numbers[cases] = np.arange(1, len(cases) + 1)
        values = [None, *(within(from_json(text), path) for text in texts)]
        return Valued(values, numbers), self.columns[score].status == OK

    def detail_rows(self, score: str, key: str, among: NDArray[np.bool_] | None = None) -> tuple[Whole, list[str]]:
        """The details of a score as JSON texts, of the cases `among` whose details may hold `key`, with their cases."""
        if not self._rows:
            names = self._block.scores["score_name"].combine_chunks().dictionary_encode()
            codes = names.indices.to_numpy(zero_copy_only=False)
            self._rows = {name: np.flatnonzero(codes == code) for code, name in enumerate(names.dictionary.to_pylist())}
        rows = self._rows.get(score, np.empty(0, dtype=np.int64))
        if among is not None:
            rows = rows[among[self._block.cases[rows]]]
        texts = self._block.scores["details"].take(pa.array(rows, type=pa.int64()))
        first = key.partition(".")[0]
        mentions = pc.match_substring(texts, f'"{first}') if first.isidentifier() else texts.is_valid()
        kept = pa.array(np.flatnonzero(pc.fill_null(mentions, False).to_numpy()), type=pa.int64())
        return self._block.cases[rows[kept.to_numpy()]], texts.take(kept).to_pylist()

    def key(self, place: int) -> dict[str, str | int]:
        """The key of a case: `sample_id`, `method` and `repeat`."""
        return {name: self._block.outputs[name][place].as_py() for name in OUTPUT_KEY}

    def _field(self, name: str) -> Valued:
        for prefix in (META, EXPECTED):
            if name.startswith(prefix) and name != prefix:
                cells = self.field(prefix)
                return Valued([within(cell, name.removeprefix(prefix)) for cell in cells.values], cells.numbers)
        if name in LISTS:
            return Valued(self._cases[LISTS[name]].to_pylist(), np.arange(self.n))
        if name in (META, EXPECTED):
            texts = _different(self._cases["meta"] if name == META else self._block.samples["expected"])
            return Valued([from_json(text) if text else {} for text in texts.values], texts.numbers)
        return _different(self._cases[name])


def _is_blank(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and is_blank(value))


def detail_fault(name: str) -> str | None:
    """Why no rule can ask for this field, None when one can."""
    known = (*KNOWN, *_EXPECTED)
    if name in known or (name.startswith(META) and len(name) > len(META)):
        return None
    return f"unknown field {name!r}{nearest_field(name, known)}; known: {', '.join(sorted(known))}, meta.<key>"


def _different(column: pa.Array | pa.ChunkedArray) -> Valued:
    plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = plain.dictionary_encode(null_encoding="encode")
    return Valued(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
