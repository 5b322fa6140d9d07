"""The chunks that an answer cites."""

from __future__ import annotations

from ragpipe.metrics.shared.citation_parsing import names_of
from ragpipe.schema.sample import Case, Chunk


def cited_chunks(case: Case) -> list[Chunk]:
    """The retrieved chunks that the recorded citations name, in the order of the citations, each once.

    An id that several retrieved chunks have names all of them; without an id a marker `[n]` names the chunk of rank n. A
    citation of what was not retrieved names none: an id that nobody showed to the system is made up, even where it happens
    to be a gold one.
    """
    named: dict[str | int, list[Chunk]] = {}
    for chunk in case.contexts:
        named.setdefault(chunk.id, []).append(chunk)
        named.setdefault(chunk.rank, []).append(chunk)
    names = dict.fromkeys(name for citation in case.output.citations or () for name in names_of(citation))
    places = {(chunk.rank, chunk.id): chunk for name in names for chunk in named.get(name, ())}
    return list(places.values())
