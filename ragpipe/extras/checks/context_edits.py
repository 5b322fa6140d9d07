"""The retrieved chunks without those that are labelled relevant, in another order, or with one that does not belong."""

from __future__ import annotations

import random
import re

from ragpipe.extras.checks.case_text import CaseText, content_words, share_of_words
from ragpipe.extras.checks.citation_edits import MARK
from ragpipe.extras.checks.mutant import Donors, Edit
from ragpipe.metrics.shared.anchor_match import matches_anchor
from ragpipe.schema.sample import Case, Chunk, Citation

_UNRELATED = 0.2
"""Share of the question's content words in a chunk up to which it is taken to be irrelevant."""


def drop_gold_chunks(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case without every retrieved chunk that some label of the question calls relevant; the others keep their ranks.

    None where nothing relevant was retrieved, or nothing is labelled.
    """
    gold = [chunk for chunk in case.contexts if _is_gold(case, chunk)]
    if not gold:
        return None
    chunks = [chunk for chunk in case.contexts if chunk not in gold]
    return Edit(case.output.model_copy(update={"chunks": chunks}), _listed(case.contexts), _listed(chunks))


def _is_gold(case: Case, chunk: Chunk) -> bool:
    """Whether a label of any form names the chunk or its document."""
    sample = case.sample
    gains = {name for name, gain in (sample.gains or {}).items() if gain > 0}
    groups = [member for group in sample.required_support_groups or () for member in group]
    names = {*(sample.relevant_docs or ()), *(sample.relevant_chunks or ()), *gains}
    names |= {member for member in groups if isinstance(member, str)}
    anchors = [*(sample.anchors or ()), *(member for member in groups if not isinstance(member, str))]
    is_named = bool({chunk.id, chunk.doc_id, chunk.rel_path} & names)
    return is_named or any(matches_anchor(chunk, anchor, require_snippet=False) for anchor in anchors)


def shuffle_chunks(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with its chunks in another order. Marks `[n]` are turned to the new ranks, so that all citations name what
    they named. None with fewer than two chunks."""
    chunks = case.contexts
    order = list(range(len(chunks)))
    if len(order) < 2:
        return None
    while order == sorted(order):
        rng.shuffle(order)
    ranks = sorted(chunk.rank for chunk in chunks)
    shuffled = [chunks[old].model_copy(update={"rank": rank}) for rank, old in zip(ranks, order, strict=True)]
    new_ranks = {chunks[old].rank: rank for rank, old in zip(ranks, order, strict=True)}
    citations = case.output.citations
    output = case.output.model_copy(
        update={
            "chunks": shuffled,
            "answer": None if case.output.answer is None else renumbered(case.answer, new_ranks),
            "citations": None if citations is None else [_renumbered_citation(item, new_ranks) for item in citations],
        }
    )
    return Edit(output, _listed(chunks), _listed(shuffled))


def renumbered(text: str, ranks: dict[int, int]) -> str:
    """A text whose marks `[n]` name the new ranks of the chunks that they named; ranges and unknown numbers stay."""

    def turned(match: re.Match[str]) -> str:
        numbers = re.sub(r"\d+", lambda number: str(ranks.get(int(number[0]), int(number[0]))), match["numbers"])
        return f"[{match['caret']}{numbers}]"

    return MARK.sub(turned, text)


def _renumbered_citation(citation: Citation, ranks: dict[int, int]) -> Citation:
    marker = citation.marker
    if marker is not None:
        marker = renumbered(marker, ranks) if MARK.search(marker) else _bare(marker, ranks)
    return citation.model_copy(
        update={"marker": marker, "text": None if citation.text is None else renumbered(citation.text, ranks)}
    )


def _bare(marker: str, ranks: dict[int, int]) -> str:
    """A marker that is a number without brackets."""
    return str(ranks.get(int(marker), int(marker))) if marker.strip().isdecimal() else marker


def add_irrelevant_chunk(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one more chunk at the end, taken from another question and of another document.

    It has few of the question's words. None where nothing was retrieved, or no such chunk is to be had.
    """
    if not case.contexts:
        return None
    last = max(case.contexts, key=lambda chunk: chunk.rank)
    for chunk in donors.chunks(case, rng):
        if share_of_words(case.question, content_words(chunk.text)) <= _UNRELATED:
            score = None if last.score is None else last.score * 0.9 if last.score > 0 else last.score - 1
            added = chunk.model_copy(update={"rank": last.rank + 1, "score": score})
            chunks = [*case.contexts, added]
            return Edit(case.output.model_copy(update={"chunks": chunks}), _listed(case.contexts), _listed(chunks))
    return None


def _listed(chunks: list[Chunk]) -> str:
    return ", ".join(f"[{chunk.rank}] {chunk.id}" for chunk in sorted(chunks, key=lambda chunk: chunk.rank)) or "(none)"
