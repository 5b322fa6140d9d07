"""The table of a draw: its rows, how it grows, and the opaque names of its cases."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.labelling.draw import ALL, CANNOT_DRAW, DrawnCases, asked_of, draw_cases, random_order
from ragpipe.labelling.label_files import DRAWN_COLUMNS, Draw, StratumSize
from ragpipe.labelling.label_settings import LabelSettings
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import OUTPUT_KEY, Turn, distinct_references
from ragpipe.schema.table_schemas import output_from, sample_from, sample_json, table_of
from ragpipe.store.run.run_tables import read_columns, reading_table, rows_at

RANDOM_SHARE = 0.5
"""Share of the random part of a draw by method."""


def draw_id_of(run_id: str, score: str, asked: Mapping[str, Any], settings: LabelSettings) -> str:
    """The name of a draw: the score, and a digest of the run, of what is asked and of how is drawn, but not of how many."""
    design = {"draw": settings.draw, "seed": settings.seed}
    plain = "".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in score)
    return f"{plain}-{sha256([[run_id], score, dict(asked), design])[:8]}"


def strata_of(settings: LabelSettings, population: Population) -> list[str]:
    """The stratum of each case: its method, or one for all."""
    return [key[1] if settings.draw == "by_method" else ALL for key in population.keys]


def drawn_of(settings: LabelSettings, population: Population, size: int, before: Draw | None) -> DrawnCases:
    """Draw cases, in the random order that the seed makes of all of them.

    Args:
        settings: the kind of the draw and its seed.
        population: all cases.
        size: how many are drawn.
        before: the draw by the same settings that there is; its cases stay.

    Raises ConfigError, and DataError where there are other cases than then.
    """
    strata = strata_of(settings, population)
    if before:
        _check_unchanged(before, strata)
    return draw_cases(
        random_order(population.names(), settings.seed),
        strata,
        size,
        random_size=size if settings.draw == "random" else round(size * RANDOM_SHARE),
    )


def _check_unchanged(before: Draw, strata: Sequence[str]) -> None:
    """Raises DataError where the strata have other cases than when the draw was made: its probabilities would be wrong."""
    sizes = Counter(strata)
    if sizes != {stratum.name: stratum.cases for stratum in before.strata}:
        then = ", ".join(f"{stratum.name} {stratum.cases:,}" for stratum in before.strata)
        now = ", ".join(f"{name} {cases:,}" for name, cases in sorted(sizes.items()))
        problem = Problem(
            before.draw_id, "label.n", f"strata of {now} cases", f"those of the draw: {then}", "label.seed=1 draws anew"
        )
        raise DataError(CANNOT_DRAW, [problem])


def stratum_sizes(drawn: DrawnCases) -> list[StratumSize]:
    """The strata by name."""
    return [StratumSize(name=name, cases=drawn.cases[name], drawn=drawn.drawn[name]) for name in sorted(drawn.cases)]


def drawn_rows(
    drawn: DrawnCases,
    population: Population,
    shown: Mapping[Key, ShownCase],
    settings: LabelSettings,
    *,
    draw_id: str,
    earlier: Sequence[str],
) -> pa.Table:
    """The table of the draw. Cases of an earlier, smaller draw stand first, as they did there.

    Args:
        drawn: which cases, and how.
        population: all cases.
        shown: what people see of the drawn cases.
        settings: who is asked.
        draw_id: the draw's name, of which the names of its items are made.
        earlier: the items of the earlier draw, in its order.
    """
    rows, strata = {}, strata_of(settings, population)
    for rank, place in enumerate(drawn.places):
        key, stratum = population.keys[place], strata[place]
        item = item_of(draw_id, key)
        rows[item] = {
            "item": item,
            "sample_id": key[0],
            "method": key[1],
            "repeat": key[2],
            "answer_sha256": shown[key].answer_sha256,
            "part": "random" if rank < drawn.random else "stratified",
            "stratum": stratum,
            "probability": drawn.probability(stratum),
        }
    ordered = [rows[item] for item in dict.fromkeys([*earlier, *rows])]
    for row, annotators in zip(ordered, asked_of(len(ordered), settings.annotators), strict=True):
        row["annotators"] = annotators
    return table_of(ordered, DRAWN_COLUMNS)


def item_of(draw_id: str, key: Key) -> str:
    """The name of a case on the page and in the sheets. It says nothing about the case, and differs from draw to draw."""
    return sha256([draw_id, list(key)])[:12]


Key = tuple[str, str, int]


@dataclass(frozen=True)
class Population:
    """`values` are means over the iterations in the native scale, in the order of `keys`."""

    keys: list[Key]
    values: list[float]

    def names(self) -> list[str]:
        """A text for each case that no other case has."""
        return [json.dumps(key) for key in self.keys]


def read_population(records: Sequence[Path], score: str) -> Population:
    """The cases with a value of this score in at least one iteration, in the order of the run.

    Args:
        records: `records.parquet` of every iteration.
        score: the name of the score.

    Raises DataError where no case has a value, or a table cannot be read.
    """
    values: dict[Key, list[float]] = {}
    for path in records:
        table = read_columns(path, [*OUTPUT_KEY, score])
        for sample_id, method, repeat, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if value is not None:
                values.setdefault((sample_id, method, repeat), []).append(value)
    if not values:
        problem = Problem(str(records[0].parent.parent), score, "no case with a value", "a score that was measured")
        raise DataError(CANNOT_DRAW, [problem])
    return Population(list(values), [sum(of_case) / len(of_case) for of_case in values.values()])


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


_PLAIN = re.compile(r"[A-Za-z_/.][\w./-]*")


def more_labels_words(draw: Draw, run: Path, more: int) -> list[str]:
    """`task=label` with the settings of a draw that are not the usual ones, and the `label.n` by which it grows."""
    usual = LabelSettings().model_dump()
    settings = {name: value for name, value in draw.settings.items() if name != "n" and value != usual[name]}
    words = [f"label.{name}={_written(value)}" for name, value in settings.items()]
    return ["task=label", f"run={run}", *words, f"label.n={draw.settings['n'] + more}"]


def _written(value: Any) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_written(key)}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
