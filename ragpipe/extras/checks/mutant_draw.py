"""Which cases become mutants: a seeded draw, spread over the questions, the same at every start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from ragpipe.core.digest import sha256
from ragpipe.extras.checks.case_text import CaseText
from ragpipe.extras.checks.mutant import Donors, Edit, Mutation
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.schema.sample import Case, CaseKey, Output

_PATTERNS = "refusals.v2"
_LONGEST = 5_000
"""Characters from which an answer is no refusal."""
SEPARATOR = "~"
POOL = 25
"""Cases looked at for each mutant that is wanted: rare ones, such as dates, are found in a few of them only."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A case and what one mutation made of its output, under the name `<method>~<mutation>`."""

    original: Case
    mutation: str
    edit: Edit

    @property
    def output(self) -> Output:
        """The output of the mutant, as a method of its own. Recorded judgements, times and costs are the original's: they go."""
        update = {"method": self.method, "recorded": {}, "timings": {}, "usage": {}}
        return self.edit.output.model_copy(update=update)

    @property
    def method(self) -> str:
        """The name under which the mutant is a method of the run."""
        return f"{self.original.output.method}{SEPARATOR}{self.mutation}"


def drawn_order(key: CaseKey, seed: int) -> str:
    """Where a case stands in the order of the draw: it depends on nothing but its key and the seed."""
    return sha256([seed, *key[:3]])


def draw_mutants(cases: Sequence[Case], mutations: Sequence[Mutation], *, n: int, seed: int) -> list[Mutant]:
    """Up to `n` mutants of each mutation. Questions come in a random order; a question gives a second case only when all have
    given one. An answer that is missing or declines, and a case that the system failed on, give none: there is no claim in it.

    Mutants are ordered by mutation, then by the order of the draw.
    """
    usable = [case for case in cases if is_usable(case)]
    donors = Donors(usable)
    texts = {case.key: CaseText(case) for case in usable}
    mutants: list[Mutant] = []
    for mutation in mutations:
        mutated = (_mutant(case, texts[case.key], mutation, donors, seed) for case in _by_question(usable, seed))
        drawn = (mutant for mutant in mutated if mutant is not None)
        mutants += islice(drawn, n)
    return mutants


def is_usable(case: Case) -> bool:
    """Whether the system answered: its output has no error, and an answer with words that does not decline."""
    answer = case.answer
    has_answer = case.output.error is None and any(c.isalnum() for c in answer)
    return has_answer and not (len(answer) <= _LONGEST and read_refusal(answer, load_refusals(_PATTERNS)).refused)


def _by_question(cases: Sequence[Case], seed: int) -> Iterator[Case]:
    """The cases in the order of the draw: the first of every question, then the second of every question, and so on."""
    ordered = sorted(cases, key=lambda case: (sha256([seed, case.sample.id]), drawn_order(case.key, seed)))
    rounds = [list(group) for _, group in groupby(ordered, key=lambda case: case.sample.id)]
    for place in range(max(map(len, rounds), default=0)):
        yield from (group[place] for group in rounds if place < len(group))


def _mutant(case: Case, text: CaseText, mutation: Mutation, donors: Donors, seed: int) -> Mutant | None:
    rng = random.Random(sha256([seed, mutation.name, *case.key[:3]]))
    edit = mutation.change(case, text, donors, rng)
    return None if edit is None or edit.output == case.output else Mutant(case, mutation.name, edit)
