"""The list of all mutations, in the order of the reports, and the seeded draw of the cases that they change."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from ragpipe.core.digest import sha256
from ragpipe.extras.checks.case_text import CaseText
from ragpipe.extras.checks.changed_cases import ChangedCase, Pair, drawn_order, is_usable, renamed, with_output
from ragpipe.extras.checks.citation_edits import forge_citation, misplace_citation, strip_citations
from ragpipe.extras.checks.claim_edits import add_claim, negate_claim, refuse
from ragpipe.extras.checks.context_edits import add_irrelevant_chunk, drop_gold_chunks, shuffle_chunks
from ragpipe.extras.checks.date_edits import change_date
from ragpipe.extras.checks.mutant import Donors, Mutation
from ragpipe.extras.checks.name_edits import change_name
from ragpipe.extras.checks.number_edits import change_number
from ragpipe.schema.sample import Case

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
POOL = 25
"""Cases looked at for each mutant that is wanted: rare ones, such as dates, are found in a few of them only."""


def draw_mutants(cases: Sequence[Case], mutations: Sequence[Mutation], *, n: int, seed: int) -> list[ChangedCase]:
    """Up to `n` mutants of each mutation. Questions come in a random order; a question gives a second case only when all have
    given one. An answer that is missing or declines, and a case that the system failed on, give none: there is no claim in it.

    Mutants are ordered by mutation, then by the order of the draw.
    """
    usable = [case for case in cases if is_usable(case)]
    donors = Donors(usable)
    texts = {case.key: CaseText(case) for case in usable}
    mutants: list[ChangedCase] = []
    for mutation in mutations:
        mutated = (_mutant(case, texts[case.key], mutation, donors, seed) for case in _by_question(usable, seed))
        mutants += islice((mutant for mutant in mutated if mutant is not None), n)
    return mutants


def _by_question(cases: Sequence[Case], seed: int) -> Iterator[Case]:
    """The cases in the order of the draw: the first of every question, then the second of every question, and so on."""
    ordered = sorted(cases, key=lambda case: (sha256([seed, case.sample.id]), drawn_order(case.key, seed)))
    rounds = [list(group) for _, group in groupby(ordered, key=lambda case: case.sample.id)]
    for place in range(max(map(len, rounds), default=0)):
        yield from (group[place] for group in rounds if place < len(group))


def _mutant(case: Case, text: CaseText, mutation: Mutation, donors: Donors, seed: int) -> ChangedCase | None:
    rng = random.Random(sha256([seed, mutation.name, *case.key[:3]]))
    edit = mutation.change(case, text, donors, rng)
    if edit is None or edit.output == case.output:
        return None
    mutant = renamed(case, with_output(case, edit.output), mutation.name)
    pair = Pair("mutation", mutation.name, case.key[:3], mutant.key[:3], in_reference=edit.in_reference)
    return ChangedCase(pair, case, mutant, edit)
