"""Which questions of a scanned log are drawn first: by hashes of seed and content, so that the order of the lines is nothing.

Rows with the same id and the same question are one sample (several methods, or a line written twice). Samples with the same
question are duplicates: one of them stands for all, that with the smallest hash of its id. Questions are put in the order of a number
made of seed and question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.settings import Settings
from ragpipe.data.settings import PathExpression
from ragpipe.extras.test_sets.log_scan import NO_VALUE, LogScan

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
POOL = 10
"""So many times the wanted cases are drawn first, to refill from."""


@dataclass(frozen=True)
class Samples:
    """A row per sample of the log. `rows` are the rows of the scan by sample, from `starts` on."""

    keys: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    strata: NDArray[np.uint16]
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
    """The strata in the order of their names, and how many distinct questions there are."""

    strata: list[Stratum]
    distinct: int


def samples_of(scan: LogScan) -> Samples:
    """The samples of a scanned log."""
    keys, ids = np.frombuffer(scan.keys, np.uint64), np.frombuffer(scan.ids, np.uint64)
    order = np.lexsort((ids, keys))
    sorted_keys, sorted_ids = keys[order], ids[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_ids[1:] != sorted_ids[:-1])
    starts = np.flatnonzero(is_first)
    by_name = np.argsort(np.argsort(np.array(scan.stratum_names))).astype(np.uint16)
    strata = np.minimum.reduceat(by_name[np.frombuffer(scan.strata, np.uint16)[order]], starts)
    return Samples(sorted_keys[starts], sorted_ids[starts], strata, order, starts)


def plan_draw(samples: Samples, scan: LogScan, settings: BuildSettings, seed: int) -> DrawPlan:
    """The candidates of every stratum, ten times as many as are wanted of it. Raises DataError where no case has a value of the field."""
    if settings.by is not None and scan.stratum_names == [NO_VALUE]:
        actual = f"no value in any of {len(scan):,} cases"
        problem = Problem("build.by", settings.by, actual, "a field of the mapped case", "map it, or correct the path")
        raise DataError("the test set cannot be drawn", [problem])
    ranked = np.lexsort((samples.ids, samples.keys))
    is_first = np.ones(len(ranked), bool)
    is_first[1:] = samples.keys[ranked][1:] != samples.keys[ranked][:-1]
    questions = ranked[is_first]
    questions = questions[np.argsort(seeded_places(samples.keys[questions], seed), kind="stable")]
    by_stratum = {name: questions[samples.strata[questions] == code] for code, name in enumerate(sorted(scan.stratum_names))}
    shares = equal_shares({name: len(members) for name, members in by_stratum.items()}, settings.n or len(questions))
    strata = [
        Stratum(name, len(of), shares[name], of[: shares[name] * POOL] if settings.n else of) for name, of in by_stratum.items()
    ]
    return DrawPlan(strata, len(questions))


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


class BuildSettings(Settings):
    """How many cases are drawn, how, and what is done with them before they are frozen."""

    dir: str = Field(min_length=1, description="Folder of the frozen set. It must be new or empty.")
    n: Annotated[int, Field(ge=1, le=50_000)] | None = Field(
        default=500, description="Number of cases, 1 to 50,000. null: every distinct question."
    )
    by: PathExpression | None = Field(
        default=None,
        description="Field of the mapped case whose values are strata, drawn in equal shares: category, meta.topic. null: at random.",
    )
    personal_data: Literal["replace", "drop", "keep"] = Field(
        default="replace",
        description="replace: by <EMAIL> and the like; drop: cases with any are left out; keep: nothing is searched.",
    )
    drop_meta: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="Names under `meta` that are left out: [user, session.address]. Default: none."
    )
    answers: Literal["keep", "drop"] = Field(
        default="keep", description="keep: with the recorded outputs; drop: questions only, for a live system."
    )
    faults: Literal["refuse", "skip"] = Field(
        default="refuse", description="Records that cannot be used: refuse the data set, or leave them out and count them."
    )

    @model_validator(mode="after")
    def _strata_have_a_size(self) -> BuildSettings:
        if self.by is not None and self.n is None:
            raise ValueError("`by` needs `n`: without it, every question is taken")
        return self
