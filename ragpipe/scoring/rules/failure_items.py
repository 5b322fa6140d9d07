"""Failure modes counted in items: the unsupported claims, irrelevant chunks, uncited claims that metrics list in details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic_core import from_json

from ragpipe.schema.settings import Settings
from ragpipe.scoring.dimensions import within
from ragpipe.scoring.normalisation import OK
from ragpipe.scoring.rules.rule_inputs import Facts

Counts = NDArray[np.int32]
UNKNOWN = -1

Name = Annotated[str, Field(min_length=1)]


class Listed(Settings):
    """A list in the details of a score: `detail` is its key, or a dotted path. With `where` only the objects in it count
    whose keys have these values (`{supported: false}`)."""

    score: Name = Field(description="Score in whose details the list is.")
    detail: Name = Field(description="Key, or dotted path, of the list.")
    where: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Values that an item must have to count. Default: all items count."
    )

    def count(self, details: Mapping[str, Any]) -> int:
        """How many items the details of one case list; 0 where the list is absent."""
        items = within(details, self.detail)
        if not isinstance(items, list):
            return 0
        return sum(not self.where or (isinstance(item, dict) and self._fits(item)) for item in items)

    def _fits(self, item: Mapping[str, Any]) -> bool:
        return all(key in item and item[key] == value for key, value in self.where.items())


class Items(Settings):
    """What is counted of a failure mode. `name` is the plural that reports print; of the lists `of`, each case counts the
    first whose score it has (two metrics that list the same claims must not count them twice)."""

    name: Name = Field(description="Plural name of the items, as reports print it.")
    of: list[Listed] = Field(
        min_length=1,
        description="The lists that hold the items; in each case the first whose score the case has counts.",
    )


class ItemLedger:
    """The items of all cases so far, by failure mode; modes whose lists the run does not have are left out."""

    def __init__(self, items: Mapping[str, Items]):
        self._items = items
        self._parts: dict[str, list[Counts]] = {mode: [] for mode in items}
        self._counts: dict[str, Counts] = {}

    def counts(self, facts: Facts) -> dict[str, Counts]:
        """The items of each case of a block, by mode. Nothing is kept."""
        return {
            mode: _counted(items, facts)
            for mode, items in self._items.items()
            if any(listed_items.score in facts.measured for listed_items in items.of)
        }

    def add(self, counts: Mapping[str, Counts]) -> None:
        """Keep the counts of the next block."""
        for mode, of_cases in counts.items():
            self._parts[mode].append(of_cases)

    def close(self) -> None:
        """To be called after the last block."""
        self._counts = {mode: np.concatenate(parts) for mode, parts in self._parts.items() if parts}
        self._parts.clear()

    @property
    def names(self) -> dict[str, str]:
        """The plural of the items of each mode that the run can count."""
        return {mode: self._items[mode].name for mode in self._counts}

    def summary(self, places: NDArray[np.int64]) -> dict[str, int]:
        """How many items the cases at `places` have, by mode: all of them, also those of cases that passed."""
        by_mode = {mode: counts[places] for mode, counts in self._counts.items()}
        return {mode: int(counts[counts != UNKNOWN].sum()) for mode, counts in by_mode.items()}


def _counted(items: Items, facts: Facts) -> Counts:
    counts = np.full(facts.n, UNKNOWN, dtype=np.int32)
    for listed in items.of:
        if listed.score not in facts.measured:
            continue
        due = (counts == UNKNOWN) & (facts.columns[listed.score].status == OK)
        counts[due] = 0
        cases, texts = facts.detail_rows(listed.score, listed.detail, due)
        for case, text in zip(cases.tolist(), texts, strict=True):
            counts[case] = listed.count(from_json(text))
    return counts
