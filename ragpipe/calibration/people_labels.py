"""Labels of one score by people: those of a draw, or scores that people gave in the data set (`recorded`).

Both become ratings in the scale of the score that they are compared with, a row per case and a column per annotator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.calibration.label_files import LABELS, Key, draw_folders, read_draw, read_labels
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.score import ScoreSpec
from ragpipe.score.calibration_file import LabelPart
from ragpipe.score.case_blocks import keys_of
from ragpipe.score.dimensions import CASE, Fields
from ragpipe.score.normalisation import UNJUDGED, pass_fail
from ragpipe.stats.agreement import pearson
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import query_rows, read_columns

Floats = NDArray[np.float64]
TITLE = "the judge cannot be compared with people"


@dataclass(frozen=True)
class LabelledCase:
    """A case with labels: how it was drawn, and the digest of the answer that was labelled, None for recorded scores."""

    key: Key
    part: LabelPart
    stratum: str | None = None
    probability: float | None = None
    answer_sha256: str | None = None


@dataclass(frozen=True)
class PeopleLabels:
    """The labels of a score: `ratings` has a row per case and a column per annotator, NaN where one gave none.

    `threshold` is the value from which a label is a pass, in the scale of the score; None: that of the score itself.
    `by_method`: the draw was, so that each label stands for the cases of its method.
    """

    cases: list[LabelledCase]
    annotators: list[str]
    ratings: Floats
    draw_id: str | None = None
    recorded: str | None = None
    threshold: float | None = None
    by_method: bool = False


def drawn_labels(folder: RunFolder, score: str, draw_id: str | None) -> PeopleLabels | None:
    """The labels of the run's draw for a score; None where no draw for it has labels.

    Cases that nobody could label are left out. Raises DataError where several draws have labels and `draw_id` names none.
    """
    draws = {
        path.name: path
        for path in draw_folders(folder.root)
        if draw_id in (None, path.name) and (path / LABELS).is_file() and read_draw(path).score == score
    }
    if len(draws) > 1:
        expected = f"one of {', '.join(draws)}: labels of two draws have no common probabilities"
        found = f"{len(draws)} draws of {score} with labels"
        raise DataError(TITLE, [Problem(str(folder.root), "calibrate.draw", found, expected, "calibrate.draw=ID")])
    for name, path in draws.items():
        rows = [row for row in read_labels(path).to_pylist() if row["label"] is not None]
        labels = _ratings_of(((_drawn_case(row), row["annotator"], float(row["label"])) for row in rows), draw_id=name)
        return replace(labels, by_method=read_draw(path).settings.get("draw") == "by_method")
    return None


def _drawn_case(row: Mapping[str, Any]) -> LabelledCase:
    key = (row["sample_id"], row["method"], row["repeat"])
    return LabelledCase(key, row["part"], row["stratum"], row["probability"], row["answer_sha256"])


def recorded_labels(
    scores: Path, human: ScoreSpec, score: ScoreSpec, *, threshold: float | None, cases: int, by_annotators: bool
) -> PeopleLabels:
    """The scores of people that the run has as `human` in its table of `scores`, brought to the scale and direction of `score`. From
    `threshold` of `human` on a label is a pass.

    Labels of all `cases` of the run have a probability of 1, of some an unknown one. `by_annotators`: an object of verdicts has
    one of each annotator. Else, as a list, it has those of parts of the answer, and their combined value is one label.

    Raises DataError for annotators of whom none judged answers to two questions: those are names of parts.
    """
    rows = [row for row in query_rows(scores, score_name=human.name) if row["status"] == "ok"]
    if by_annotators:
        _check_annotators(rows, scores, human.name)
    probability = 1.0 if len(rows) == cases else None
    labels = (
        (LabelledCase((row["sample_id"], row["method"], row["repeat"]), "recorded", None, probability), name, value)
        for row in rows
        for name, value in _verdicts_in(row, by_annotators).items()
    )
    read = _ratings_of(labels, recorded=human.name)
    threshold = human.passing_from(threshold)
    on_scale = None if threshold is None else float(_rescaled(np.array([threshold]), human, score)[0])
    ratings = _rescaled(read.ratings, human, score)
    return PeopleLabels(read.cases, read.annotators, ratings, recorded=human.name, threshold=on_scale)


def _verdicts_in(row: Mapping[str, Any], by_annotators: bool) -> dict[str, float]:
    """The verdicts of a recorded score by annotator; the score itself under its own name where it has none."""
    verdicts = json.loads(row["details"] or "{}").get("verdicts")
    if not by_annotators or not isinstance(verdicts, dict):
        return {row["score_name"]: float(row["value"])}
    return {name: float(verdict) for name, verdict in verdicts.items() if isinstance(verdict, int | float)}


def _check_annotators(rows: Sequence[Mapping[str, Any]], scores: Path, name: str) -> None:
    questions: dict[str, set[str]] = {}
    for row in rows:
        for annotator in _verdicts_in(row, by_annotators=True):
            questions.setdefault(annotator, set()).add(row["sample_id"])
    if len({row["sample_id"] for row in rows}) > 1 and all(len(asked) == 1 for asked in questions.values()):
        content = f"verdicts of {len(questions):,} names, none of which judged answers to two questions"
        expected = "verdicts by annotators, or calibrate.verdicts=parts for those of parts of an answer"
        raise DataError(TITLE, [Problem(str(scores), name, content, expected, "calibrate.verdicts=parts")])


def _rescaled(values: Floats, human: ScoreSpec, score: ScoreSpec) -> Floats:
    """Values of one scale brought to another, worst to worst and best to best; counts only keep or change their sign."""
    if human.low is None or human.high is None or score.low is None or score.high is None:
        return values if human.higher_is_better == score.higher_is_better else -values
    if (human.low, human.high, human.higher_is_better) == (score.low, score.high, score.higher_is_better):
        return values
    shares = (values - human.low) / (human.high - human.low)
    if human.higher_is_better != score.higher_is_better:
        shares = 1.0 - shares
    return score.low + shares * (score.high - score.low)


def _ratings_of(
    labels: Iterable[tuple[LabelledCase, str, float]], *, draw_id: str | None = None, recorded: str | None = None
) -> PeopleLabels:
    """The matrix of ratings; annotators in the order of their names, cases in the order in which they come."""
    by_case: dict[Key, dict[str, float]] = {}
    cases: dict[Key, LabelledCase] = {}
    for case, annotator, label in labels:
        cases.setdefault(case.key, case)
        by_case.setdefault(case.key, {})[annotator] = label
    annotators = sorted({name for ratings in by_case.values() for name in ratings})
    matrix = [[by_case[key].get(name, np.nan) for name in annotators] for key in cases]
    ratings = np.array(matrix, dtype=np.float64).reshape(len(cases), len(annotators))
    return PeopleLabels(list(cases.values()), annotators, ratings, draw_id=draw_id, recorded=recorded)


def no_labels_problem(where: str, scores: Sequence[str]) -> Problem:
    """What to do where no score has labels."""
    found = "no labels of " + (", ".join(scores) or "any score")
    fix = (
        "task=label run=RUN label.metric=NAME draws cases to label; calibrate.recorded={SCORE: RECORDED_SCORE} takes scores of the "
        "data set"
    )
    return Problem(where, "labels", found, "labels by people of a score of this run, or recorded scores of people", fix)


Whole = NDArray[np.int64]
_TEXTS = frozenset({"question", "answer", "timings", "usage", "citations", "system_error"})
_DESCRIBING = tuple(name for name, _, _ in CASE if name not in _TEXTS)


@dataclass(frozen=True)
class JudgedCases:
    """Some cases of a run before the judge, a row per case.

    `values` are means over the iterations in the scale of the score, NaN where no iteration has one. `verdicts` are 1 and
    0 as most iterations say, NaN for a tie and without a threshold. `questions` number the samples. `lengths` are
    characters of the answer, NaN where it is not recorded. `reliability` is the correlation of two iterations, None for a
    single one. `fields` are what the cases can be grouped by.
    """

    values: Floats
    verdicts: Floats
    questions: Whole
    lengths: Floats
    reliability: float | None
    fields: Fields


def judged_cases(
    folder: RunFolder, iterations: Sequence[int], spec: ScoreSpec, threshold: float | None, keys: Sequence[Key]
) -> JudgedCases:
    """What the scored iterations of a run say of a score of these of its cases. They pass from `threshold` on; None: there are no
    verdicts. Raises DataError for a table that cannot be read."""
    tables: list[pa.Table] = []
    for number in iterations:
        columns = OUTPUT_KEY if tables else _DESCRIBING
        table = read_columns(folder.iteration(number).records, [*columns, spec.name])
        places = {key: place for place, key in enumerate(keys_of(table))}
        tables.append(table.take(pa.array([places[key] for key in keys], pa.int64())))
    values = np.array([_numbers(table[spec.name]) for table in tables])
    verdicts = np.stack([verdicts_of(of_iteration, spec, threshold) for of_iteration in values], axis=1)
    described = {name: tables[0][name].combine_chunks() for name in _DESCRIBING}
    _, questions = np.unique([key[0] for key in keys], return_inverse=True)
    return JudgedCases(
        _means(values),
        majority(verdicts),
        questions.astype(np.int64),
        _numbers(tables[0]["answer_chars"]),
        _reliability(values),
        Fields(described),
    )


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _means(values: Floats) -> Floats:
    """The mean of each column without NaN, NaN where it has nothing else."""
    counts = np.sum(~np.isnan(values), axis=0)
    means = np.round(np.nansum(values, axis=0) / np.maximum(counts, 1), 9) if len(values) > 1 else values[0]
    return np.where(counts > 0, means, np.nan)


def verdicts_of(values: Floats, spec: ScoreSpec, threshold: float | None) -> Floats:
    """1 passed, 0 failed, NaN without a value or a threshold."""
    verdicts = pass_fail(values, spec, threshold)
    return np.where(verdicts == UNJUDGED, np.nan, verdicts.astype(np.float64))


def majority(verdicts: Floats) -> Floats:
    """What most of a row say, 1 or 0; NaN for a tie, and where none says anything."""
    votes = np.nansum(2 * verdicts - 1, axis=1)
    return np.where(votes > 0, 1.0, np.where(votes < 0, 0.0, np.nan))


def _reliability(values: Floats) -> float | None:
    """Correlation of the values of two different iterations, over all ordered pairs of them; None where there is none."""
    pairs = [np.stack([values[one], values[two]]) for one, two in permutations(range(len(values)), 2)]
    if not pairs:
        return None
    both = np.concatenate(pairs, axis=1)
    both = both[:, ~np.isnan(both).any(axis=0)]
    return pearson(both[0], both[1]).value
