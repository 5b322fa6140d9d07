"""Which chunk carries which claim, read from the quotes on which the verdicts on claims rest: no judge is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import from_json

from ragpipe.score.case_blocks import CaseBlock, GrowingArray, Whole
from ragpipe.score.conditions import Facts

CARRIED = {
    "one": "one context",
    "redundant": "several, each alone",
    "spread": "several together",
    "not_found": "no quote found",
    "unsupported": "not supported",
}
"""How a claim is carried, each with its words. `one`: a single chunk holds all of its quotes; `redundant`: several do; `spread`: its
quotes are in several chunks, and none has them all; `not_found`: supported, by no quote that a chunk holds."""
_COUNTS = ("claims", *CARRIED, "chunks", "used", "carried")
_TYPES, _OTHER = 50, "(other)"  # different types of chunks counted apart; all further ones are one
_OF_TYPE = ("chunks", "used", "carried")


@dataclass(frozen=True)
class CarriedClaim:
    """A claim, how it is carried (a key of `CARRIED`), and the places, from 0, of the chunks that hold one of its quotes. With the
    chunk at `complete` all of its quotes have been read; None where none was found."""

    claim: str
    how: str
    chunks: tuple[int, ...] = ()
    complete: int | None = None


@dataclass(frozen=True)
class ChunkSupport:
    """The claims of one score of one case against its `n_chunks` chunks."""

    claims: Sequence[CarriedClaim]
    n_chunks: int

    @property
    def used(self) -> list[int]:
        """The places of the chunks that hold a quote of a supported claim."""
        return sorted({place for claim in self.claims for place in claim.chunks})

    @property
    def chain(self) -> list[tuple[int, int]]:
        """The chunks, in their order, with which some claim becomes supported, each with how many are by then. The first one is where
        a chain of questions over the chunks says YES (the faithfulness evaluator of LlamaIndex), at no call."""
        steps = sorted(claim.complete for claim in self.claims if claim.complete is not None)
        return [(place, sum(step <= place for step in steps)) for place in dict.fromkeys(steps)]


def chunk_support(details: Mapping[str, Any], chunks: Sequence[tuple[Any, Any]]) -> ChunkSupport | None:
    """What the `claims` in the details of a score (`claim_details`) say of the chunks, given as (id, rank). None without a claim whose
    quotes were looked up. A quote counts for every chunk that holds it word for word, whichever the judge had in mind."""
    rows = _objects(details.get("claims"))
    if not rows or any(_places(row) is None for row in rows):
        return None
    numbers = {f"{rank} {name}": number for number, (name, rank) in reversed(list(enumerate(chunks)))}
    return ChunkSupport([_carried(row, numbers) for row in rows], len(chunks))


def _objects(value: Any) -> list[dict[str, Any]] | None:
    """A list of objects; None for any other value, which a metric of a user's may have written there."""
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else None


def _places(row: Mapping[str, Any]) -> list[list[dict[str, Any]]] | None:
    """The places of each quote of a claim; None where quotes were not looked up."""
    quotes = _objects(row.get("evidence"))
    places = None if quotes is None else [_objects(quote.get("places")) for quote in quotes]
    return None if places is None or None in places else [found for found in places if found is not None]


def _carried(row: Mapping[str, Any], numbers: Mapping[str, int]) -> CarriedClaim:
    if not row.get("supported"):
        return CarriedClaim(str(row.get("claim")), "unsupported")
    named = ({f"{place.get('rank')} {place.get('chunk')}" for place in places} for places in _places(row) or ())
    quotes = [chunks for names in named if (chunks := {numbers[name] for name in names if name in numbers})]
    if not quotes:
        return CarriedClaim(str(row.get("claim")), "not_found")
    alone = set.intersection(*quotes)
    how = "spread" if not alone else "one" if len(alone) == 1 else "redundant"
    return CarriedClaim(str(row.get("claim")), how, tuple(sorted(set.union(*quotes))), max(map(min, quotes)))


class SupportCounts:
    """The counts of all cases so far, by score; those of chunks also by their `doc_type` (the kind of a GraphRAG context)."""

    def __init__(self) -> None:
        self._n = 0
        self._cases: dict[str, GrowingArray[np.int64]] = {}
        self._types: dict[str, dict[str, GrowingArray[np.int64]]] = {}

    def add(self, block: CaseBlock, facts: Facts) -> None:
        counts = block.chunks.counts
        ends, starts = np.cumsum(counts), np.cumsum(counts) - counts
        columns: list[list[Any]] = []
        for name in (name for name in facts.columns if name in facts.measured):
            for case, text in zip(*facts.detail_rows(name, "claims"), strict=True):
                columns = columns or [block.chunks.column(field).to_pylist() for field in ("id", "rank", "doc_type")]
                ids, ranks, types = (column[starts[case] : ends[case]] for column in columns)
                if support := chunk_support(from_json(text), list(zip(ids, ranks, strict=True))):
                    self._add_case(name, self._n + int(case), support, types)
        self._n += len(block)

    def _add_case(self, name: str, case: int, support: ChunkSupport, types: Sequence[str | None]) -> None:
        carried = np.bincount([place for claim in support.claims for place in claim.chunks], minlength=support.n_chunks)
        hows = [claim.how for claim in support.claims]
        counts = [len(hows), *map(hows.count, CARRIED)]
        self._cases.setdefault(name, GrowingArray(np.int64)).add(np.array([case, *counts, *_of_chunks(carried)]))
        of_score = self._types.setdefault(name, {})
        kinds = [kind if kind is None or kind in of_score or len(of_score) < _TYPES else _OTHER for kind in types]
        for kind in dict.fromkeys(kind for kind in kinds if kind is not None):
            chosen = carried[[each == kind for each in kinds]]
            of_score.setdefault(kind, GrowingArray(np.int64)).add(np.array([case, *_of_chunks(chosen)]))

    def summary(self, places: Whole) -> dict[str, Any]:
        """`chunk_support` of one summary of `metrics.json`, over the cases at `places`; empty where none has a claim with quotes."""
        chosen = np.zeros(self._n, dtype=np.bool_)
        chosen[places[places < self._n]] = True
        support = {}
        for name, rows in self._cases.items():
            if (counts := _sums(rows, _COUNTS, chosen))["n_cases"]:
                of_types = {kind: _sums(of_type, _OF_TYPE, chosen) for kind, of_type in sorted(self._types[name].items())}
                support[name] = {
                    **counts,
                    "by_doc_type": {kind: of_type for kind, of_type in of_types.items() if of_type["n_cases"]},
                }
        return {"chunk_support": with_shares(support)} if support else {}


def with_shares(support: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Summed counts by score with the figures that follow from them, 0 where there is no chunk: `unused_share` of the chunks, 0 to 1, and
    `claims_per_used_chunk`."""
    return {
        name: {
            **counts,
            "unused_share": (counts["chunks"] - counts["used"]) / max(1, counts["chunks"]),
            "claims_per_used_chunk": counts["carried"] / max(1, counts["used"]),
        }
        for name, counts in support.items()
    }


def _of_chunks(carried: Whole) -> tuple[int, int, int]:
    return len(carried), int(np.count_nonzero(carried)), int(carried.sum())


def _sums(rows: GrowingArray[np.int64], names: Sequence[str], chosen: Any) -> dict[str, Any]:
    table = rows.array().reshape(-1, len(names) + 1)
    table = table[chosen[table[:, 0]]]
    return {"n_cases": len(table), **dict(zip(names, table[:, 1:].sum(axis=0).tolist(), strict=True))}
