"""The chunks that an answer cites."""

from __future__ import annotations

from ragpipe.schema.sample import Case, Chunk


def cited_chunks(case: Case) -> list[Chunk]:
    """The retrieved chunks that the recorded citations name, in the order of the citations, each once.

    An id that several retrieved chunks have names all of them. A citation of an id that was not retrieved is kept as a
    chunk without place or text: a gold id is still a gold id.
    """
    retrieved: dict[str, list[Chunk]] = {}
    for chunk in case.contexts:
        retrieved.setdefault(chunk.id, []).append(chunk)
    names = dict.fromkeys(c.chunk_id for c in case.output.citations or () if c.chunk_id is not None)
    return [chunk for name in names for chunk in retrieved.get(name) or [Chunk(id=name, rank=1)]]
