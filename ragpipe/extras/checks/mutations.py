"""The list of all mutations, in the order of the reports."""

from __future__ import annotations

from ragpipe.extras.checks.citation_edits import forge_citation, misplace_citation, strip_citations
from ragpipe.extras.checks.claim_edits import add_claim, negate_claim, refuse
from ragpipe.extras.checks.context_edits import add_irrelevant_chunk, drop_gold_chunks, shuffle_chunks
from ragpipe.extras.checks.date_edits import change_date
from ragpipe.extras.checks.mutant import Mutation
from ragpipe.extras.checks.name_edits import change_name
from ragpipe.extras.checks.number_edits import change_number

MUTATIONS = (
    Mutation("drop_gold_chunks", "the chunks that are labelled relevant are taken away", drop_gold_chunks),
    Mutation("change_number", "a number that the chunks support is changed", change_number),
    Mutation("change_date", "a date that the chunks support is changed", change_date),
    Mutation("change_name", "a name that the chunks support is replaced by another", change_name),
    Mutation("negate_claim", "a sentence that the chunks support is negated", negate_claim),
    Mutation("add_claim", "a sentence about something else is added", add_claim),
    Mutation("strip_citations", "all citations are taken away", strip_citations),
    Mutation("forge_citation", "a citation names a chunk that was not retrieved", forge_citation),
    Mutation("misplace_citation", "a citation names a retrieved chunk that says something else", misplace_citation),
    Mutation("refuse", "the answer becomes a refusal, though one is due", refuse),
    Mutation("shuffle_chunks", "the chunks come in another order", shuffle_chunks),
    Mutation("add_irrelevant_chunk", "a chunk of another question is added at the end", add_irrelevant_chunk),
)
MUTATION_NAMES = tuple(mutation.name for mutation in MUTATIONS)
MUTATIONS_VERSION = 1
"""Raised whenever the same case gives another mutant."""
