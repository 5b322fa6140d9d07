"""What a run says of its labelled cases: the judge's values and verdicts over all iterations, and what describes the cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.calibrating.people_labels import Key
from ragpipe.schema.answer_digest import answer_digest
from ragpipe.schema.sample import OUTPUT_KEY, Case
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.table_schemas import OUTPUTS, SAMPLES, output_from, sample_from, sample_json
from ragpipe.scoring.case_blocks import aligned, keys_of
from ragpipe.scoring.dimensions import CASE, Fields
from ragpipe.scoring.normalisation import UNJUDGED, pass_fail
from ragpipe.stats.agreement_coefficients import pearson
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns

Floats = NDArray[np.float64]
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
    """What the run says of a score of these cases.

    Args:
        folder: the run.
        iterations: the numbers of its scored iterations, one or more.
        spec: the score.
        threshold: the value from which a case passes; None: there are no verdicts.
        keys: the cases, all of the run.

    Raises DataError for a table that cannot be read.
    """
    tables = [
        _rows_of(read_columns(folder.iteration(number).records, _columns(spec, number == iterations[0])), keys)
        for number in iterations
    ]
    values = np.array([_numbers(table[spec.name]) for table in tables])
    verdicts = np.array([pass_fail(of_iteration, spec, threshold) for of_iteration in values])
    described = {name: _column(tables[0], name) for name in _DESCRIBING}
    _, questions = np.unique([key[0] for key in keys], return_inverse=True)
    return JudgedCases(
        _means(values),
        _majorities(verdicts),
        questions.astype(np.int64),
        _numbers(tables[0]["answer_chars"]),
        _reliability(values),
        Fields(described),
    )


def labelled_cases(folder: RunFolder, keys: Sequence[Key]) -> Iterator[Case]:
    """These cases with their texts, in the run's order; without those that the run does not have. Raises DataError."""
    wanted = set(keys)
    blocks = aligned(folder.samples, folder.outputs, of_samples=SAMPLES.names, of_outputs=OUTPUTS.names)
    for outputs, samples in blocks:
        places = pa.array([place for place, key in enumerate(keys_of(outputs)) if key in wanted], pa.int64())
        rows = zip(outputs.take(places).to_pylist(), samples.take(places).to_pylist(), strict=True)
        for output_cells, sample_cells in rows:
            yield Case(sample_from(sample_json(sample_cells)), output_from(output_cells))


def labelled_answers(folder: RunFolder, keys: Sequence[Key]) -> dict[Key, str]:
    """By case the digest of what a label of it is about. Raises DataError."""
    return {case.key[:3]: answer_digest(case.sample, case.output) for case in labelled_cases(folder, keys)}


def _columns(spec: ScoreSpec, first: bool) -> list[str]:
    return [*(_DESCRIBING if first else OUTPUT_KEY), spec.name]


def _rows_of(table: pa.Table, keys: Sequence[Key]) -> pa.Table:
    """The rows of these cases, in their order."""
    places = {key: place for place, key in enumerate(keys_of(table))}
    return table.take(pa.array([places[key] for key in keys], pa.int64()))


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _numbers(column: pa.ChunkedArray) -> Floats:
    """A column as numbers; null is NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _means(values: Floats) -> Floats:
    """The mean of each column without NaN, NaN where it has nothing else. Equal means are equal to the last bit: ranks
    depend on ties."""
    counts = np.sum(~np.isnan(values), axis=0)
    means = np.round(np.nansum(values, axis=0) / np.maximum(counts, 1), 9) if len(values) > 1 else values[0]
    return np.where(counts > 0, means, np.nan)


def _majorities(verdicts: NDArray[np.int8]) -> Floats:
    """What most iterations say of each case; NaN for a tie, and where none says anything."""
    votes = np.sum(np.where(verdicts == UNJUDGED, 0, 2 * verdicts.astype(np.int64) - 1), axis=0)
    return np.where(votes > 0, 1.0, np.where(votes < 0, 0.0, np.nan))


def _reliability(values: Floats) -> float | None:
    """Correlation of the values of two different iterations, over all ordered pairs of them; None where there is none."""
    pairs = [np.stack([values[one], values[two]]) for one, two in permutations(range(len(values)), 2)]
    if not pairs:
        return None
    both = np.concatenate(pairs, axis=1)
    both = both[:, ~np.isnan(both).any(axis=0)]
    return pearson(both[0], both[1]).value
