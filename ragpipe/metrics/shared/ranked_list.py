"""The retrieved list of a case, in the order and unit to measure, matched with its gold items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from ragpipe.metrics.shared.relevance_labels import Gold, Unit, document_of, gold_groups, matches_member
from ragpipe.schema.sample import Anchor, Case, Chunk

NEVER = 1 << 31
Row = tuple[bool, bool, float, int]  # matches a gold item, counts for precision, gain earned, gold items found


@dataclass(frozen=True)
class RankedList:
    """The ranked units (documents or chunks) by name, and their matches.

    `plain`: gold ids alone decide, so the arrays can be built from `ids`. Otherwise `rows` holds one `Row` per rank
    and `ideal` the gains of the gold items. `all_met` is the rank at which every required support group has a match
    (`NEVER` if some group has none), None for a case without groups.
    """

    gold: Gold
    ids: list[str]
    plain: bool = True
    rows: list[Row] = field(default_factory=list)
    ideal: list[float] = field(default_factory=list)
    all_met: int | None = None

    def details(self) -> dict[str, Any]:
        """The rank of the first match, and the number of gold items."""
        if self.plain:
            places: Iterator[int] = (r for r, name in enumerate(self.ids, 1) if name in self.gold.gains)
        else:
            places = (r for r, row in enumerate(self.rows, 1) if row[0])
        return {"first_match_rank": next(places, None), "gold_items": len(self.gold), "retrieved": len(self.ids)}


def ranked_list_of(
    case: Case, gold: Gold, order: Literal["given", "trec"], unit: Unit, require_snippet: bool
) -> RankedList:
    """Put the retrieved chunks in order, fold them into documents where the gold is documents, and match them.

    Args:
        case: the case, with its retrieved chunks.
        gold: its relevance labels.
        order: `given` keeps the order of the ranks, `trec` sorts by score as trec_eval does.
        unit: whether documents or chunks are counted.
        require_snippet: whether a chunk must contain the snippet of an anchor to match it.
    """
    chunks = _ordered(case.contexts, gold, order)
    fold = unit == "document" and gold.form == "documents"
    names = [gold.name_of(chunk) for chunk in chunks]
    ids = list(dict.fromkeys(names)) if fold else names
    groups = gold_groups(case.sample)
    if not groups and gold.form != "anchors":
        return RankedList(gold, ids)
    ranked = _ranked_chunks(chunks, names, ids if fold else None)
    supports = [
        {rank for rank, chunk in ranked if _matches_group(chunk, group, require_snippet=require_snippet)}
        for group in groups
    ]
    all_met = max((min(ranks) + 1 if ranks else NEVER for ranks in supports), default=None)
    ideal = list(gold.gains.values()) or [1.0] * len(gold.anchors)
    rows = _matched(ranked, gold, ideal, len(ids), set().union(*supports))
    return RankedList(gold, ids, False, rows, ideal, all_met)


def _ranked_chunks(chunks: list[Chunk], names: list[str], documents: list[str] | None) -> list[tuple[int, Chunk]]:
    """The chunks with their ranks from 0: their own, or those of their documents."""
    if documents is None:
        return list(enumerate(chunks))
    rank_of = {name: rank for rank, name in enumerate(documents)}
    return [(rank_of[name], chunk) for name, chunk in zip(names, chunks, strict=True)]


def _matches_group(chunk: Chunk, group: list[str | Anchor], *, require_snippet: bool) -> bool:
    return any(matches_member(chunk, member, require_snippet=require_snippet) for member in group)


def first_ranks(
    case: Case, gold: Gold, order: Literal["given", "trec"], unit: Unit, require_snippet: bool
) -> dict[str, int | None]:
    """For each gold item the rank of its first match; None where it has none.

    Args:
        case, gold, order, unit, require_snippet: as for `ranked_list_of`.
    """
    if gold.form != "anchors":
        ids = ranked_list_of(case, gold, order, unit, require_snippet).ids
        ranks = {name: rank for rank, name in reversed(list(enumerate(ids, 1)))}
        return {name: ranks.get(name) for name in gold.gains}
    ranks_by_item: dict[int, int] = {}
    for rank, chunk in enumerate(_ordered(case.contexts, gold, order), 1):
        for item in gold.matched(chunk):
            ranks_by_item.setdefault(item, rank)
    return {name: ranks_by_item.get(item) for item, name in enumerate(gold.names())}


def _ordered(chunks: list[Chunk], gold: Gold, order: str) -> list[Chunk]:
    """The chunks from the best on. One that comes again is no further result: it stands at its best rank only."""
    if order == "given":
        ordered = sorted(chunks, key=attrgetter("rank"))
    else:
        name = gold.name_of if gold.form != "anchors" else document_of
        single = np.array(
            [chunk.score or 0.0 for chunk in chunks], dtype=np.float32
        ).tolist()  # as trec_eval keeps them
        places = sorted(range(len(chunks)), key=lambda i: (single[i], name(chunks[i])), reverse=True)
        ordered = [chunks[i] for i in places]
    once: dict[str, Chunk] = {}
    for chunk in ordered:
        once.setdefault(chunk.id, chunk)
    return list(once.values())


def _matched(
    ranked: list[tuple[int, Chunk]], gold: Gold, gains: list[float], width: int, required: set[int]
) -> list[Row]:
    """One row per rank. `required` are the ranks, from 0, with a member of a required support group.

    A rank earns the gain of one gold item: the largest that was not earned before and, of equal ones, the narrowest.
    So a chunk under two gold anchors cannot beat the ideal order, and leaves the wider anchor to chunks that are under
    no other. All gold items that it matches count as found.
    """
    matches: list[set[int]] = [set() for _ in range(width)]
    for rank, chunk in ranked:
        matches[rank].update(gold.matched(chunk))
    matched: set[int] = set()
    earned: set[int] = set()
    rows: list[Row] = []
    for rank, items in enumerate(matches):
        best = max(items - earned, key=lambda item: (gains[item], gold.narrowness(item)), default=None)
        if best is not None:
            earned.add(best)
        gain = 0.0 if best is None else gains[best]
        rows.append((bool(items), bool(items) or rank in required, gain, len(items - matched)))
        matched |= items
    return rows
