"""The files of a draw: `<run>/labels/<draw_id>/` with draw.json, draw.parquet and, after an import, labels.parquet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY, Turn, answer_digest, distinct_references
from ragpipe.core.score import Grades
from ragpipe.core.settings import Settings
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.score.case_blocks import aligned, keys_of
from ragpipe.store.files import json_unless_same, open_unless_same
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import open_table, read_columns, read_json, reading_table, run_file_error
from ragpipe.store.table_rows import (
    OTHER_ANSWER,
    REAL,
    TEXT,
    TEXTS,
    WHOLE,
    output_columns,
    output_from,
    sample_from,
    sample_json,
    table_of,
    table_schema,
)

LABELS_FOLDER = "labels"
DRAW, DRAWN, LABELS = "draw.json", "draw.parquet", "labels.parquet"


_CASE = (
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("answer_sha256", TEXT, "digest of what the label is about: question, earlier turns, answer and chunk texts"),
)
_DESIGN = (
    ("part", TEXT, "random or stratified: the part of the draw that the case came in by"),
    ("stratum", TEXT, "the method of the case; all for a random draw"),
    ("probability", REAL, "drawn cases of the stratum / cases of the stratum"),
)
DRAWN_COLUMNS = table_schema(
    ("item", TEXT, "the opaque name of the case on the page and in the sheets"),
    *_CASE,
    *_DESIGN,
    ("annotators", TEXTS, "who is asked; null = everyone"),
)
LABEL_COLUMNS = table_schema(
    *_CASE,
    ("annotator", TEXT, "who gave the label"),
    ("label", REAL, "in the native scale of the score; null = cannot tell"),
    ("grade", TEXT, "the grade's name; null = cannot tell, or a number between the grades"),
    ("note", TEXT, "what the annotator wrote; null = nothing"),
    *_DESIGN,
    ("at", TEXT, "when it was given (UTC, ISO 8601); null = not recorded"),
)


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LabelGrade(_Frozen):
    """A grade that a person may give, and its value in the native scale of the score."""

    name: str
    value: float


class StratumSize(_Frozen):
    """How many cases a stratum has, and how many of them are drawn."""

    name: str
    cases: Annotated[int, Field(ge=1)]
    drawn: Annotated[int, Field(ge=0)]


class Draw(_Frozen):
    """The whole of `draw.json`. `cases` counts the cases of the run that the score has a value for: what was drawn from.
    `settings` are those that the draw is made by."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    draw_id: str
    run_id: str
    metric: str
    score: str
    question: str
    grades: list[LabelGrade]
    low: float | None
    high: float | None
    seed: int
    cases: int
    strata: list[StratumSize]
    settings: dict[str, Any]


def draw_folders(run: Path) -> list[Path]:
    """The folders of all draws of a run, by name; links are skipped."""
    root = run / LABELS_FOLDER
    if root.is_symlink() or not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if not path.is_symlink() and (path / DRAW).is_file()]


def read_draw(folder: Path) -> Draw:
    """The draw of a folder. Raises DataError for a file that is missing or damaged, FormatMismatch for another format."""
    path = folder / DRAW
    content = read_json(path)
    if content.get("format") != FORMAT:
        fix = "draw again with this ragpipe"
        raise format_mismatch("cannot read this draw", path, content.get("format"), None, fix)
    try:
        return Draw.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"])) or "draw"
        raise run_file_error(path, fault["msg"], "the draw.json that ragpipe wrote", key=key) from error


def write_draw(folder: Path, draw: Draw) -> None:
    """Write `draw.json`. Raises OutputError."""
    json_unless_same(folder / DRAW, draw.model_dump())


def read_drawn(folder: Path) -> pa.Table:
    """The cases of a draw (DRAWN_COLUMNS), in the order in which they were drawn. Raises DataError."""
    return _read_columns(folder / DRAWN, DRAWN_COLUMNS)


def read_labels(folder: Path) -> pa.Table:
    """The imported labels of a draw (LABEL_COLUMNS). Raises DataError for a draw without labels, and a damaged table."""
    path = folder / LABELS
    if not path.exists():
        fix = "label its cases on label.html, then: python -m ragpipe task=label run=RUN 'label.import=[FILE]'"
        raise DataError("there are no labels", [Problem(str(folder), "labels", f"no {LABELS}", "imported labels", fix)])
    return _read_columns(path, LABEL_COLUMNS)


def write_rows(path: Path, rows: pa.Table) -> None:
    """Write a table of the draw. A file with the same content stays as it is. Raises OutputError."""
    with open_unless_same(path) as file:
        pq.write_table(rows, file, compression="zstd")


def _read_columns(path: Path, columns: pa.Schema) -> pa.Table:
    """A table with exactly these columns. Raises DataError for one that is missing, damaged or has other types."""
    with open_table(path, columns.names) as file:
        table = file.read(columns=columns.names)
    if table.schema.types != columns.types:
        raise run_file_error(path, f"columns of {table.schema.types}", f"columns of {columns.types}")
    return table


def draw_id_of(run_id: str, score: str, asked: Mapping[str, Any], settings: LabelSettings) -> str:
    """The name of a draw: the score, and a digest of the run, of what is asked and of how is drawn, but not of how many."""
    design = {"draw": settings.draw, "seed": settings.seed}
    plain = "".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in score)
    return f"{plain}-{sha256([[run_id], score, dict(asked), design])[:8]}"


def drawn_of(settings: LabelSettings, population: Population, size: int, before: Draw | None) -> DrawnCases:
    """Draw cases, in the random order that the seed makes of all of them. Those of the draw `before` by the same settings stay.

    Raises ConfigError, and DataError where there are other cases than then.
    """
    strata = _strata(settings, population)
    if before:
        _check_unchanged(before, strata)
    order = random_order([json.dumps(key) for key in population.keys], settings.seed)
    return draw_cases(order, strata, size, random_size=size if settings.draw == "random" else round(size / 2))


def _strata(settings: LabelSettings, population: Population) -> list[str]:
    """The stratum of each case: its method, or one for all."""
    return [key[1] if settings.draw == "by_method" else ALL for key in population.keys]


def _check_unchanged(before: Draw, strata: Sequence[str]) -> None:
    """Raises DataError where the strata have other cases than when the draw was made: its probabilities would be wrong."""
    sizes = Counter(strata)
    if sizes != {stratum.name: stratum.cases for stratum in before.strata}:
        then = ", ".join(f"{stratum.name} {stratum.cases:,}" for stratum in before.strata)
        now = ", ".join(f"{name} {cases:,}" for name, cases in sorted(sizes.items()))
        found, expected = f"strata of {now} cases", f"those of the draw: {then}"
        problem = Problem(before.draw_id, "label.n", found, expected, "label.seed=1 draws anew")
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
    """The table of the draw. `earlier` items, those of a smaller draw, stand first, as they did there. The name of an item says nothing
    about the case, and differs from draw to draw."""
    rows, strata = {}, _strata(settings, population)
    for rank, place in enumerate(drawn.places):
        key, stratum = population.keys[place], strata[place]
        item = sha256([draw_id, list(key)])[:12]
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


Key = tuple[str, str, int]


@dataclass(frozen=True)
class Population:
    """`values` are means over the iterations in the native scale, in the order of `keys`."""

    keys: list[Key]
    values: list[float]


def read_population(records: Sequence[Path], score: str) -> Population:
    """The cases with a value of this score in at least one iteration, by `records.parquet` of each, in the order of the run.

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


@dataclass(frozen=True)
class ShownCase:
    """A case without anything that was said of it: no score, no verdict, no name of a method, chunk or sample. `answer` and
    `contexts` are None where the data set does not record them. Of a pair `other_answer` is the base's."""

    question: str
    history: list[Turn]
    answer: str | None
    contexts: list[str] | None
    references: list[str]
    answer_sha256: str
    other_answer: str | None = None


def turned_items(draw_id: str, drawn: pa.Table, outputs: Path) -> set[str]:
    """The items of pairs whose other answer is shown first, half of them at random; none where the `outputs` are of no pairs. It follows
    from the names of the case, which are in no file that people see."""
    if OTHER_ANSWER not in output_columns(outputs):
        return set()
    names = drawn.select([*OUTPUT_KEY, "item"]).to_pylist()
    return {row["item"] for row in names if int(sha256([draw_id, "order", *(row[name] for name in OUTPUT_KEY)])[:8], 16) % 2}


def turned(case: ShownCase) -> ShownCase:
    """A pair with the two answers the other way round."""
    return replace(case, answer=case.other_answer, other_answer=case.answer)


def read_shown_cases(folder: RunFolder, keys: Collection[Key]) -> dict[Key, ShownCase]:
    """These cases of a run, from its frozen tables; without those that the run does not have. Raises DataError."""
    wanted, shown = set(keys), {}
    for outputs, samples in aligned(folder.samples, folder.outputs, of_outputs=output_columns(folder.outputs)):
        found = {place: key for place, key in enumerate(keys_of(outputs)) if key in wanted}
        rows = pa.array(list(found), pa.int64())
        cells = zip(found.values(), outputs.take(rows).to_pylist(), samples.take(rows).to_pylist(), strict=True)
        for key, output_cells, sample_cells in cells:
            with reading_table(folder.outputs, ValueError, KeyError, TypeError):  # what a malformed row raises
                sample, output = sample_from(sample_json(sample_cells)), output_from(output_cells)
            shown[key] = ShownCase(
                sample.question,
                sample.history,
                output.answer,
                None if output.chunks is None else [chunk.text for chunk in output.chunks],
                distinct_references(sample.references),
                answer_digest(sample, output),
                getattr(output, OTHER_ANSWER, None),
            )
    return shown


def labelled_answers(folder: RunFolder, keys: Collection[Key]) -> dict[Key, str]:
    """By case the digest of what a label of it is about. Raises DataError."""
    return {key: case.answer_sha256 for key, case in read_shown_cases(folder, keys).items()}


ALL = "all"
"""The one stratum of a random draw."""
CANNOT_DRAW = "no cases can be drawn for labels; nothing was written"
AT_LEAST = 2
"""Drawn cases of every stratum, where it has so many: one alone shows no variance."""
Places = NDArray[np.int64]


@dataclass(frozen=True)
class DrawnCases:
    """The places of the drawn cases, those of the random part first; how many of them are random; drawn cases and all cases of
    each stratum."""

    places: list[int]
    random: int
    drawn: Mapping[str, int]
    cases: Mapping[str, int]

    def probability(self, stratum: str) -> float:
        """The probability, 0 to 1, with which a case of this stratum is in the draw."""
        return self.drawn[stratum] / self.cases[stratum]


def random_order(keys: Sequence[str], seed: int) -> list[int]:
    """The places of all cases in a random order that depends on the seed and on the keys alone: a case that is added or gone
    changes nothing about the order of the others."""
    return sorted(range(len(keys)), key=lambda place: sha256(f"{seed}\n{keys[place]}"))


def draw_cases(order: Sequence[int], strata: Sequence[str], size: int, *, random_size: int) -> DrawnCases:
    """Draw cases: first the random part, then the same number of each stratum, as far as it has so many.

    A larger draw by the same order contains a smaller one, where its random part grows by no more cases than it does. `order` has the
    places of all cases, `strata` the stratum of each by place. At most all are drawn, and a few more than `size` where the random
    part leaves no room for AT_LEAST of a stratum.

    Raises ConfigError where `size` is too small for the number of strata.
    """
    sizes = Counter(strata)
    size = min(size, len(order))
    head = order[: min(random_size, size)]
    floor = {stratum: min(AT_LEAST, cases) for stratum, cases in sizes.items()}
    if len(sizes) > 1 and sum(floor.values()) > size:
        expected = f"at least {AT_LEAST} cases of each of the {len(sizes)} strata"
        problem = Problem("label", "label.n", str(size), expected, f"label.n={AT_LEAST * len(sizes)}")
        raise ConfigError(CANNOT_DRAW, [problem])
    drawn = Counter(strata[place] for place in head)
    for stratum, least in floor.items():
        if len(sizes) > 1:
            drawn[stratum] = max(drawn[stratum], least)
    while drawn.total() < size:
        drawn[min((name for name in sorted(sizes) if drawn[name] < sizes[name]), key=drawn.__getitem__)] += 1
    left, places = Counter(drawn), []
    for place in order:  # its head, and of the rest the first cases of each stratum
        if left[strata[place]] > 0:
            left[strata[place]] -= 1
            places.append(place)
    return DrawnCases(places, len(head), dict(drawn), dict(sizes))


SHARED = 0.2
"""Share of the cases that all annotators are asked, so that they can be compared."""


def asked_of(drawn: int, annotators: Sequence[str]) -> list[list[str] | None]:
    """Who is asked for each drawn case, in the order of the draw: None is everyone.

    A share of SHARED of the cases is for all, evenly spread, the first among them; the others take turns. More cases at the
    end change nothing about those before. Without names, or with one, everyone is asked for everything.
    """
    if len(annotators) < 2:
        return [None] * drawn
    asked: list[list[str] | None] = []
    turns = 0
    for place in range(drawn):
        if np.ceil((place + 1) * SHARED - 1e-9) > np.ceil(place * SHARED - 1e-9):
            asked.append(None)
        else:
            asked.append([annotators[turns % len(annotators)]])
            turns += 1
    return asked


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names) or not all(name.strip() == name != "" for name in names):
        raise ValueError("different names, none of them empty and none with blanks around it")
    return names


class LabelSettings(Settings):
    """What to draw, or which files to import."""

    metric: str | None = Field(default=None, description="Name of the metric, or of one of its scores, that is labelled.")
    n: int = Field(
        default=60,
        ge=1,
        le=100_000,
        description="How many cases are drawn. A draw that has fewer grows to them; one that has more keeps them.",
    )
    draw: Literal["random", "by_method"] = Field(
        default="random",
        description=(
            "random; by_method: half of the draw at random, then the same number of each method. Agreement goes by the random half."
        ),
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the draw. Another seed is another draw.")
    annotators: Annotated[list[str], AfterValidator(_distinct)] = Field(
        default_factory=list,
        description="Names of those who label, who divide the cases among them, a fifth for all. Default: anyone, and everyone labels all.",
    )
    question: str | None = Field(default=None, min_length=1, description="What is asked. null: as the metric's `label` says.")
    grades: Grades | None = Field(
        default=None, description="Grades by name, with their values. null: as the metric's `label` says, else by its scale."
    )
    files: list[str] = Field(
        default_factory=list, alias="import", description="Files to read: labels.jsonl of the page, and sheets as .csv."
    )
