"""Which questions of a scanned log are drawn first: by hashes of seed and content, so that the order of the lines is nothing.

Rows with the same id and the same question are one sample (several methods, or a line written twice). Samples with the same
question are duplicates: one of them stands for all, that with the lowest value where a score decides, then with the smallest hash of
its id. Questions are put in the order of their value, then of a number made of seed and question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ragpipe.core.errors import DataError, Problem
from ragpipe.datasets.mapping_settings import PathExpression
from ragpipe.extras.test_sets.log_scan import NO_VALUE, LogScan
from ragpipe.schema.settings import Settings

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
POOL = 10
"""So many times the wanted cases are drawn first, to refill from."""
_CANNOT_DRAW = "the test set cannot be drawn"


@dataclass(frozen=True)
class Samples:
    """A row per sample of the log. `rows` are the rows of the scan by sample, from `starts` on; `value` is what the draw goes by,
    the lowest first (NaN: not to be drawn)."""

    keys: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    strata: NDArray[np.uint16]
    value: NDArray[np.float64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    def rows_of(self, sample: int) -> NDArray[np.int64]:
        """The rows of the scan that belong to a sample."""
        end = self.starts[sample + 1] if sample + 1 < len(self.starts) else len(self.rows)
        return self.rows[self.starts[sample] : end]


@dataclass(frozen=True)
class Stratum:
    """The questions of a stratum: how many there are, how many are wanted, and the samples to take, first to last."""

    name: str
    questions: int
    quota: int
    candidates: NDArray[np.int64]


@dataclass(frozen=True)
class DrawPlan:
    """The strata in the order of their names, and how many distinct questions and questions without a value there are."""

    strata: list[Stratum]
    distinct: int
    without_value: int


def samples_of(scan: LogScan, settings: BuildSettings) -> Samples:
    """The samples of a scanned log, with the value that the draw goes by."""
    keys, ids = np.frombuffer(scan.keys, np.uint64), np.frombuffer(scan.ids, np.uint64)
    order = np.lexsort((ids, keys))
    sorted_keys, sorted_ids = keys[order], ids[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_ids[1:] != sorted_ids[:-1])
    starts = np.flatnonzero(is_first)
    by_name = np.argsort(np.argsort(np.array(scan.stratum_names))).astype(np.uint16)
    strata = np.minimum.reduceat(by_name[np.frombuffer(scan.strata, np.uint16)[order]], starts)
    return Samples(
        sorted_keys[starts], sorted_ids[starts], strata, _values(scan, settings, order, starts), order, starts
    )


def _values(
    scan: LogScan, settings: BuildSettings, order: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What each sample is drawn by: nothing (0), its lowest value, or the negative of its greatest difference; NaN without any."""
    if settings.score is None:
        return np.zeros(len(starts))
    low, high = np.frombuffer(scan.low)[order], np.frombuffer(scan.high)[order]
    if settings.draw == "low_score":
        return np.fmin.reduceat(low, starts)
    if settings.between == "judges":
        difference = np.fmax.reduceat(high - low, starts)
    else:
        difference = np.fmax.reduceat(high, starts) - np.fmin.reduceat(low, starts)
    return np.where(difference > 0, -difference, np.nan)


def plan_draw(samples: Samples, scan: LogScan, settings: BuildSettings) -> DrawPlan:
    """The candidates of every stratum, POOL times as many as are wanted of it.

    Raises DataError where no case has a value of the field or the score.
    """
    if settings.by is not None and scan.stratum_names == [NO_VALUE]:
        actual = f"no value in any of {len(scan):,} cases"
        problem = Problem("build.by", settings.by, actual, "a field of the mapped case", "map it, or correct the path")
        raise DataError(_CANNOT_DRAW, [problem])
    distinct = len(np.unique(samples.keys))
    drawable = np.flatnonzero(~np.isnan(samples.value))
    if not len(drawable):
        raise _without_value(settings)
    ranked = drawable[np.lexsort((samples.ids[drawable], samples.value[drawable], samples.keys[drawable]))]
    is_first = np.ones(len(ranked), bool)
    is_first[1:] = samples.keys[ranked][1:] != samples.keys[ranked][:-1]
    questions = ranked[is_first]
    places = seeded_places(samples.keys[questions], settings.seed or 0)
    questions = questions[np.lexsort((places, samples.value[questions]))]
    names = sorted(scan.stratum_names)
    by_stratum = {name: questions[samples.strata[questions] == code] for code, name in enumerate(names)}
    sizes = {name: len(members) for name, members in by_stratum.items()}
    quotas = equal_shares(sizes, len(questions) if settings.n is None else settings.n)
    strata = [
        Stratum(
            name,
            len(by_stratum[name]),
            quota,
            by_stratum[name][: quota * POOL] if settings.n else by_stratum[name],
        )
        for name, quota in quotas.items()
    ]
    return DrawPlan(strata, distinct, distinct - len(questions))


def seeded_places(keys: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """A number for each key that looks random and depends on key and seed alone (the finaliser of splitmix64)."""
    start = np.uint64(((seed + 1) * _STEP) % 2**64)
    mixed = keys ^ _mixed(np.array([start]))[0]
    return _mixed(mixed)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * factor
    return numbers ^ (numbers >> np.uint64(31))


def equal_shares(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Shares of `total`, as equal as the sizes allow: what a small stratum cannot give, the others share.

    A remainder goes to the first strata by name, one each.
    """
    shares = dict.fromkeys(sorted(sizes), 0)
    left = min(total, sum(sizes.values()))
    while left:
        open_strata = [name for name in shares if shares[name] < sizes[name]]
        each = max(1, left // len(open_strata))
        for name in open_strata:
            more = min(each, sizes[name] - shares[name], left)
            shares[name] += more
            left -= more
    return shares


def _without_value(settings: BuildSettings) -> DataError:
    if settings.draw == "disagreement":
        actual = f"no question on which {settings.between} differ"
        expected = (
            "outputs of several methods with different values" if settings.between == "methods" else "several verdicts"
        )
    else:
        actual, expected = "no case with a value", "a score of the run" if settings.run else "a number under `recorded`"
    where = settings.run or "build.score"
    fix = "check the name; the run must be over the same data" if settings.run else "map it: fields.recorded"
    return DataError(_CANNOT_DRAW, [Problem(where, str(settings.score), actual, expected, fix)])


Draw = Literal["random", "stratified", "low_score", "disagreement"]


class BuildSettings(Settings):
    """How many cases are drawn, how, and what is done with them before they are frozen."""

    dir: str = Field(min_length=1, description="Folder of the frozen set. It must be new or empty.")
    n: Annotated[int, Field(ge=1, le=50_000)] | None = Field(
        default=500, description="Number of cases, 1 to 50,000. null: every distinct question."
    )
    draw: Draw = Field(
        default="random",
        description=(
            "random; stratified (by the field `by`); low_score (the lowest values of `score` first); disagreement (the greatest "
            "differences of `score` first)."
        ),
    )
    by: PathExpression | None = Field(
        default=None, description="stratified: path of a field of the mapped case: category, meta.topic."
    )
    score: str | None = Field(
        default=None,
        min_length=1,
        description="low_score, disagreement: name under `recorded`, or of a score of `run`.",
    )
    run: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of a finished run over these data, for its scores. null: recorded ones.",
    )
    between: Literal["methods", "judges"] = Field(
        default="methods",
        description="disagreement: between the methods of one question, or the recorded verdicts of one output.",
    )
    seed: int | None = Field(default=None, description="Seed of the draw. null: the run's `seed`.")
    near: Annotated[float, Field(gt=0.5, lt=1)] | None = Field(
        default=0.9,
        description="Likeness of two questions from which the second is a near duplicate, 0.5 to 1. null: they are kept.",
    )
    personal_data: Literal["replace", "drop", "keep"] = Field(
        default="replace",
        description="replace: by <EMAIL> and the like; drop: cases with any are left out; keep: nothing is searched.",
    )
    drop_meta: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Names under `meta` that are left out: [user, session.address]. Default: none.",
    )
    answers: Literal["keep", "drop"] = Field(
        default="keep", description="keep: with the recorded outputs; drop: questions only, for a live system."
    )
    labels: Literal["keep", "blank"] = Field(
        default="keep",
        description="blank: category, answerable, expected and references are written empty where the log has none.",
    )
    faults: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="Records that cannot be used: refuse the data set, or leave them out and count them.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> BuildSettings:
        if (self.draw == "stratified") != (self.by is not None):
            raise ValueError("`draw: stratified` and `by` go together: the field whose values are the strata")
        if (self.draw in ("low_score", "disagreement")) != (self.score is not None):
            raise ValueError("`draw: low_score` and `draw: disagreement` need `score`, and no other draw does")
        if self.run is not None and self.score is None:
            raise ValueError("`run` gives the values of `score`: it needs `draw: low_score` or `draw: disagreement`")
        if self.run is not None and self.draw == "disagreement" and self.between == "judges":
            raise ValueError("`between: judges` compares recorded verdicts of one output; a run has one value each")
        if self.draw == "stratified" and self.n is None:
            raise ValueError("`draw: stratified` needs `n`: without it, every question is taken")
        return self

    def seeded(self, seed: int) -> BuildSettings:
        """With this seed where it has none of its own."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})
