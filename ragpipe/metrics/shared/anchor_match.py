"""Matching of retrieved chunks with gold anchors. Anchors survive re-chunking: they name path and heading, not chunk ids."""

from __future__ import annotations

from ragpipe.core.text_match import normalise
from ragpipe.schema.sample import Anchor, Chunk


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
