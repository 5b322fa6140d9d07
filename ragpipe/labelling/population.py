"""What is drawn from: the cases of a run that a score has a value for, each with its mean over the iterations."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.labelling.draw import CANNOT_DRAW
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.case_records import verdict_column
from ragpipe.scoring.dimensions import LISTS, META, field_labels, within
from ragpipe.store.run.run_tables import read_columns

Key = tuple[str, str, int]
VERDICT = "verdict"
"""The name that a draw by the verdict of its score is asked for by, beside the fields of a case."""
NO_LABEL = "(none)"


@dataclass(frozen=True)
class Population:
    """`values` are means over the iterations in the native scale, `passed` the share of verdicts that are passed (None
    without a threshold), `labels` those of the field that was asked for. All in the order of `keys`."""

    keys: list[Key]
    values: list[float]
    passed: list[float | None]
    labels: list[str]

    def names(self) -> list[str]:
        """A text for each case that no other case has."""
        return [json.dumps(key) for key in self.keys]

    def verdicts(self) -> list[str]:
        """`passed` where most verdicts of the iterations are, else `failed`; NO_LABEL where there is none."""
        return [NO_LABEL if share is None else "passed" if share > 0.5 else "failed" for share in self.passed]


@dataclass
class _Sums:
    """What the iterations say of one case."""

    label: str
    values: list[float] = field(default_factory=list)
    passed: list[bool] = field(default_factory=list)


def read_population(records: Sequence[Path], score: str, case_field: str | None = None) -> Population:
    """The cases with a value of this score in at least one iteration, in the order of the run.

    Args:
        records: `records.parquet` of every iteration.
        score: the name of the score.
        case_field: a field of a case whose labels are read too, as `scoring.slices` names it.

    Raises DataError where no case has a value, or a table cannot be read.
    """
    columns = [*OUTPUT_KEY, score, verdict_column(score)]
    column = _column_of(case_field) if case_field else None
    sums: dict[Key, _Sums] = {}
    for path in records:
        table = read_columns(path, [*columns, *([column] if column and column not in columns else [])])
        labels = _labels(table[column].to_pylist(), case_field) if column and case_field else [""] * len(table)
        cells = (table[name].to_pylist() for name in columns)
        for sample_id, method, repeat, value, passed, label in zip(*cells, labels, strict=True):
            if value is not None:
                case = sums.setdefault((sample_id, method, repeat), _Sums(label))
                case.values.append(value)
                case.passed += [] if passed is None else [passed]
    if not sums:
        problem = Problem(str(records[0].parent.parent), score, "no case with a value", "a score that was measured")
        raise DataError(CANNOT_DRAW, [problem])
    return Population(
        list(sums),
        [sum(case.values) / len(case.values) for case in sums.values()],
        [sum(case.passed) / len(case.passed) if case.passed else None for case in sums.values()],
        [case.label for case in sums.values()],
    )


def only_cases(population: Population, keys: Collection[Key]) -> Population:
    """The cases of these keys, in the order of the run; keys without a value are left out."""
    wanted = set(keys)
    return _at(population, [place for place, key in enumerate(population.keys) if key in wanted])


def with_same_answers(population: Population, outputs: Path, others: Path) -> Population:
    """The cases whose answer and chunks are the same in two tables of outputs. Raises DataError."""
    texts, other_texts = _answers(outputs), _answers(others)
    same = [place for place, key in enumerate(population.keys) if texts.get(key) == other_texts.get(key)]
    return _at(population, same)


def _at(population: Population, places: Sequence[int]) -> Population:
    return Population(
        [population.keys[place] for place in places],
        [population.values[place] for place in places],
        [population.passed[place] for place in places],
        [population.labels[place] for place in places],
    )


def _answers(outputs: Path) -> dict[Key, str]:
    """A digest of answer and chunks of each case."""
    table = read_columns(outputs, [*OUTPUT_KEY, "answer", "chunks"])
    cells = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return {(sample, method, repeat): sha256([answer, chunks]) for sample, method, repeat, answer, chunks in cells}


def _column_of(case_field: str) -> str:
    return "meta" if case_field.startswith(META) else LISTS.get(case_field, case_field)


def _labels(cells: Sequence[Any], case_field: str) -> list[str]:
    """The label of each cell; several labels of one cell are one, with commas between them."""
    if case_field.startswith(META):
        metas: list[Mapping[str, Any]] = [json.loads(text) if text else {} for text in cells]
        cells = [within(meta, case_field.removeprefix(META)) for meta in metas]
    return [", ".join(field_labels(cell)) or NO_LABEL for cell in cells]
