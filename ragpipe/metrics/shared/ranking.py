"""Rank metrics over arrays: many queries at once, each value independent of the other queries in the block.

All sums run along the ranks by `cumsum`, which adds one after another: a value is bit-equal whatever else is in the
block and however wide the block is padded. In trec order (`ranked_list_of`) the values are those of trec_eval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.core.sample import Anchor, Case, Chunk, Sample
from ragpipe.core.text import normalise

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Judged rankings of n queries, padded to the longest. Arrays are (n, width), `gold` is (n,), `ideal` (n, most gold).

    `hits`: the item at this rank matches a gold item. `counted`: precision counts it: a hit, or another support that
    the question requires. `earned`: the gain it earns, which is only that of a gold item not met before. `new_items`:
    how many gold items are matched here for the first time. `gold`: number of gold items. `ideal`: their gains, largest first,
    padded with 0.
    """

    hits: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    earned: Floats
    new_items: Floats
    gold: NDArray[np.int64]
    ideal: Floats


def from_ids(retrieved: Sequence[Sequence[str]], gold: Sequence[Mapping[str, float]]) -> Ranking:
    """Judge lists of ids against gains by id (0 and less: not relevant).

    An id that comes twice earns its gain once, at its best rank, and is a hit both times.
    """
    gains = _padded((map(g.get, ids, repeat(0.0)) for ids, g in zip(retrieved, gold, strict=True)), retrieved)
    np.maximum(gains, 0.0, out=gains)
    repeated = _repeated(retrieved, gains)
    hits = gains > 0
    earned = gains.copy() if repeated else gains
    for row in repeated:
        seen: set[str] = set()
        for rank, name in enumerate(retrieved[row]):
            if name in seen:
                earned[row, rank] = 0.0
            seen.add(name)
    ideal = _padded((g.values() for g in gold), gold)
    np.maximum(ideal, 0.0, out=ideal)
    ideal = -np.sort(-ideal, axis=1)
    return Ranking(hits, hits, earned, (earned > 0).astype(np.float64), (ideal > 0).sum(axis=1), ideal)


def _repeated(retrieved: Sequence[Sequence[str]], gains: Floats) -> list[int]:
    """The rows in which some relevant id comes more than once. Only relevant ids are looked at: they are few."""
    rows, places = (index.tolist() for index in np.nonzero(gains))
    matches = [(row, retrieved[row][place]) for row, place in zip(rows, places, strict=True)]
    if len(set(matches)) == len(matches):
        return []
    return sorted({row for (row, _), times in Counter(matches).items() if times > 1})


def from_rows(rows: Sequence[Sequence[tuple[bool, bool, float, int]]], ideal: Sequence[Sequence[float]]) -> Ranking:
    """From rows of (hit, counted by precision, gain earned, gold items found) by rank, and the gains of all gold
    items."""
    parts = [_padded([[float(item[part]) for item in row] for row in rows], rows) for part in range(4)]
    best = _padded([sorted(gains, reverse=True) for gains in ideal], ideal)
    return Ranking(parts[0] > 0, parts[1] > 0, parts[2], parts[3], np.array([len(g) for g in ideal], dtype=np.int64), best)


def rank_values(ranking: Ranking, cuts: Iterable[int]) -> dict[str, Floats]:
    """`hit@k`, `recall@k`, `precision@k`, `ndcg@k`, `map@k` for every cut-off k, and `mrr`: arrays of n values.

    recall and map divide by the number of gold items, precision by k even when fewer came back, ndcg by the gain of
    the ideal order of min(k, gold items), discounted by log2(rank + 1). Without gold items they are 0.
    """
    width = ranking.hits.shape[1]
    ranks = np.arange(1, max(width, ranking.ideal.shape[1]) + 1)
    discounts = 1.0 / np.log2(ranks + 1)
    gold = np.maximum(ranking.gold, 1)
    hits = np.cumsum(ranking.hits, axis=1)
    counted = hits if ranking.counted is ranking.hits else np.cumsum(ranking.counted, axis=1)
    new_items = np.cumsum(ranking.new_items, axis=1)
    gained = np.cumsum(ranking.earned * discounts[:width], axis=1)
    best = np.cumsum(ranking.ideal * discounts[: ranking.ideal.shape[1]], axis=1)
    news = ranking.earned > 0
    precisions = np.cumsum(np.cumsum(news, axis=1) / ranks[:width] * news, axis=1)
    values: dict[str, Floats] = {}
    for k in cuts:
        ideal = _at(best, k)
        values[f"hit@{k}"] = (_at(hits, k) > 0).astype(np.float64)
        values[f"recall@{k}"] = _at(new_items, k) / gold
        values[f"precision@{k}"] = _at(counted, k) / k
        values[f"ndcg@{k}"] = np.divide(_at(gained, k), ideal, out=np.zeros(len(gold)), where=ideal > 0)
        values[f"map@{k}"] = _at(precisions, k) / gold
    first = np.argmax(ranking.hits, axis=1) if width else np.zeros(len(gold), dtype=np.int64)
    values["mrr"] = np.where(ranking.hits.any(axis=1), 1.0 / (first + 1), 0.0)
    return values


def _at(sums: NDArray[np.generic], k: int) -> Floats:
    """The running sums up to rank k, as floats; k may lie beyond the last rank."""
    if not sums.shape[1]:
        return np.zeros(len(sums))
    return sums[:, min(k, sums.shape[1]) - 1].astype(np.float64)


def _padded(rows: Iterable[Iterable[float]], sized: Sequence[Sequence[object] | Mapping[str, float]]) -> Floats:
    """Rows of unequal lengths (those of `sized`) as one array."""
    lengths = np.fromiter(map(len, sized), dtype=np.int64, count=len(sized))
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=int(lengths.sum()))
    width = int(lengths.max()) if len(lengths) else 0
    if int(lengths.sum()) == width * len(lengths):
        return flat.reshape(len(lengths), width)
    table = np.zeros((len(lengths), width))
    table[np.arange(width) < lengths[:, None]] = flat
    return table


Unit = Literal["document", "chunk"]
Form = Literal["documents", "chunks", "anchors"]
RequireSnippet = Annotated[
    bool,
    Field(
        description=(
            "Whether a chunk must contain one of an anchor's snippets to match it, where the anchor has any. Default: no."
        )
    ),
]


@dataclass(frozen=True)
class Gold:
    """The gold items of a case: `gains` by id for documents and chunks, `anchors` otherwise. It may be empty."""

    form: Form
    gains: dict[str, float] = field(default_factory=dict)
    anchors: tuple[Anchor, ...] = ()
    require_snippet: bool = False

    def __bool__(self) -> bool:
        return bool(self.gains or self.anchors)

    def __len__(self) -> int:
        return len(self.gains) + len(self.anchors)

    def matched(self, chunk: Chunk) -> list[int]:
        """Numbers of the gold items (in their order) that the chunk matches."""
        if self.form == "anchors":
            return [i for i, a in enumerate(self.anchors) if matches_anchor(chunk, a, require_snippet=self.require_snippet)]
        name = self.name_of(chunk)
        return [list(self.gains).index(name)] if name in self.gains else []

    def name_of(self, chunk: Chunk) -> str:
        """The chunk's name among the gold ids: its document's or its own.

        A document is named by its id; where the chunk has none by its path, unless the chunk's own id is the gold one;
        and by the chunk's id where the data knows no documents (a TREC run).
        """
        if self.form == "chunks":
            return chunk.id
        if chunk.doc_id is not None:
            return chunk.doc_id
        path = chunk.rel_path
        return chunk.id if path is None or (chunk.id in self.gains and path not in self.gains) else path

    def narrowness(self, item: int) -> tuple[int, bool, int, tuple[str, ...]]:
        """Among gold items that one chunk matches the narrower is greater, whatever order the labels are written in:
        the longer heading path, then the one with snippets, with fewer of them."""
        if self.form != "anchors":
            return 0, False, -item, ()
        anchor = self.anchors[item]
        snippets = tuple(anchor.snippets)
        return len(heading_parts(anchor.heading_path)), bool(snippets), -len(snippets), snippets

    def names(self) -> list[str]:
        """The gold items as readable text."""
        anchors = (f"{a.rel_path} # {' > '.join(heading_parts(a.heading_path))}".rstrip(" #") for a in self.anchors)
        return [*self.gains, *anchors]


def document_of(chunk: Chunk) -> str:
    """The id of the chunk's document; its own id where the data knows no documents (a TREC run)."""
    return chunk.id if chunk.doc_id is None else chunk.doc_id


def form_of(ids: Collection[str], chunks: Sequence[Chunk], unit: Unit) -> Form:
    """Whether ids that do not say so are those of documents or of chunks.

    `unit` decides, unless none of them names one of its kind among the retrieved chunks and some name one of the other.
    """
    names = set(ids)
    chunk_ids, documents = ((chunk.id for chunk in chunks), (chunk.doc_id or chunk.rel_path or chunk.id for chunk in chunks))
    if unit == "document":
        return "documents" if not names.isdisjoint(documents) or names.isdisjoint(chunk_ids) else "chunks"
    return "chunks" if not names.isdisjoint(chunk_ids) or names.isdisjoint(documents) else "documents"


def gold_of(
    sample: Sample, unit: Unit = "document", *, chunks: Sequence[Chunk] = (), require_snippet: bool = False
) -> Gold | None:
    """The gold items of a sample, None when it has no labels; empty when the labels say that nothing is relevant.

    Several forms of labels: the first that is there, for `document` in the order documents, chunks, anchors, for
    `chunk` in the order chunks, anchors, documents; an empty list gives way to a filled one. `gains` weighs the listed
    ids (1 where it is silent, 0 takes an id out); where no ids are listed, its positive ids are the gold, of documents
    or of the retrieved `chunks` as `form_of` says. Required support groups alone name no gold item.
    """
    gains = sample.gains or {}
    listed: dict[Form, Gold] = {}
    if sample.relevant_docs is not None:
        listed["documents"] = Gold("documents", _weighed(sample.relevant_docs, gains))
    if sample.relevant_chunks is not None:
        listed["chunks"] = Gold("chunks", _weighed(sample.relevant_chunks, gains))
    if sample.gains is not None and not listed:
        form = form_of(gains, chunks, unit)
        listed[form] = Gold(form, _weighed(list(gains), gains))
    if sample.anchors is not None:
        different = {(a.rel_path, heading_parts(a.heading_path), tuple(a.snippets)): a for a in sample.anchors}
        listed["anchors"] = Gold("anchors", anchors=tuple(different.values()), require_snippet=require_snippet)
    order: tuple[Form, ...] = ("documents", "chunks", "anchors") if unit == "document" else ("chunks", "anchors", "documents")
    present = [listed[form] for form in order if form in listed]
    return next((gold for gold in present if gold), present[0] if present else None)


def names_gold(sample: Sample) -> bool | None:
    """Whether a sample has a gold item, None when it has no labels: what `gold_of` comes to, whatever was retrieved."""
    gains = sample.gains or {}
    listed = [ids for ids in (sample.relevant_docs, sample.relevant_chunks) if ids is not None]
    if sample.gains is not None and not listed:
        listed = [list(gains)]
    if sample.anchors or any(gains.get(name, 1.0) > 0 for ids in listed for name in ids):
        return True
    return False if listed or sample.anchors is not None else None


def _weighed(names: list[str], gains: dict[str, float]) -> dict[str, float]:
    weighed = {name: float(gains.get(name, 1.0)) for name in names}
    return {name: gain for name, gain in weighed.items() if gain > 0}


def matches_member(chunk: Chunk, member: str | Anchor, require_snippet: bool) -> bool:
    """True when the chunk matches a member of a required support group: an id (of chunk or document), the path of a
    document without id, or an anchor."""
    if isinstance(member, Anchor):
        return matches_anchor(chunk, member, require_snippet=require_snippet)
    return member in (chunk.id, chunk.rel_path if chunk.doc_id is None else chunk.doc_id)


def gold_groups(sample: Sample) -> list[list[str | Anchor]]:
    """The required support groups that have a member."""
    return [group for group in sample.required_support_groups or () if group]


def gold_of_groups(sample: Sample, unit: Unit, chunks: Sequence[Chunk]) -> Gold:
    """No gold item, in the form in which the members of the groups name what is retrieved."""
    members = [member for group in gold_groups(sample) for member in group]
    ids = [member for member in members if isinstance(member, str)]
    return Gold(form_of(ids, chunks, unit) if len(ids) == len(members) else "chunks")


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


def ranked_list_of(case: Case, gold: Gold, order: Literal["given", "trec"], unit: Unit, require_snippet: bool) -> RankedList:
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
    rank_of = {name: rank for rank, name in enumerate(ids)}
    ranked = [(rank_of[name], chunk) for name, chunk in zip(names, chunks, strict=True)] if fold else list(enumerate(chunks))
    supports = [
        {rank for rank, chunk in ranked if any(matches_member(chunk, member, require_snippet) for member in group)}
        for group in groups
    ]
    all_met = max((min(ranks) + 1 if ranks else NEVER for ranks in supports), default=None)
    ideal = list(gold.gains.values()) or [1.0] * len(gold.anchors)
    rows = _matched(ranked, gold, ideal, len(ids), set().union(*supports))
    return RankedList(gold, ids, False, rows, ideal, all_met)


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
        single = np.array([chunk.score or 0.0 for chunk in chunks], dtype=np.float32).tolist()  # as trec_eval keeps them
        places = sorted(range(len(chunks)), key=lambda i: (single[i], name(chunks[i])), reverse=True)
        ordered = [chunks[i] for i in places]
    once: dict[str, Chunk] = {}
    for chunk in ordered:
        once.setdefault(chunk.id, chunk)
    return list(once.values())


def _matched(ranked: list[tuple[int, Chunk]], gold: Gold, gains: list[float], width: int, required: set[int]) -> list[Row]:
    """One row per rank, which earns the largest gain not earned before; `required` are ranks of support groups."""
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


def heading_parts(path: str | None) -> tuple[str, ...]:
    """The parts of a heading path: cut at `>`, trimmed, inner white space collapsed, empty parts left out."""
    parts = (" ".join(part.split()) for part in (path or "").split(">"))
    return tuple(part for part in parts if part)


def matches_anchor(chunk: Chunk, anchor: Anchor, *, require_snippet: bool = False) -> bool:
    """True when the chunk lies in the anchor's document, at or under its heading.

    `rel_path` must be equal; the chunk's heading path must *start with* the anchor's, compared part by part (`A > B`
    holds `A > B > C`, not `A > Bx`); an anchor without a heading means the whole document. With `require_snippet`
    and snippets, the chunk's text must contain one of them (case, white space and quotation marks normalised).
    """
    if chunk.rel_path != anchor.rel_path:
        return False
    gold = heading_parts(anchor.heading_path)
    if heading_parts(chunk.heading_path)[: len(gold)] != gold:
        return False
    if not (require_snippet and anchor.snippets):
        return True
    text = normalise(chunk.text)
    return any(normalise(snippet) in text for snippet in anchor.snippets)
