"""What is relevant for a case, whatever form its labels have: documents, chunks, or anchors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ragpipe.metrics.shared.anchor_match import heading_parts, matches_anchor
from ragpipe.schema.sample import Anchor, Chunk, Sample

Unit = Literal["document", "chunk"]
Form = Literal["documents", "chunks", "anchors"]


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
            return [
                i for i, a in enumerate(self.anchors) if matches_anchor(chunk, a, require_snippet=self.require_snippet)
            ]
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
    chunk_ids, documents = (
        (chunk.id for chunk in chunks),
        (chunk.doc_id or chunk.rel_path or chunk.id for chunk in chunks),
    )
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
    order: tuple[Form, ...] = (
        ("documents", "chunks", "anchors") if unit == "document" else ("chunks", "anchors", "documents")
    )
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


def matches_member(chunk: Chunk, member: str | Anchor, *, require_snippet: bool = False) -> bool:
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
