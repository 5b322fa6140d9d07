"""Drafts of cases, and the draw among them: exact numbers, evenly spread, no two questions alike, the same for a seed, few about one fact."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from ragpipe.core.digest import sha256
from ragpipe.data.markdown import Document, DocumentSection
from ragpipe.extras.test_sets.english import fill, meaning_words
from ragpipe.extras.test_sets.question_templates import Kind, Template, Templates

LOT = 60
"""How many drafts per wanted case the draw looks at together."""


@dataclass(frozen=True)
class Draft:
    """A template with what fills it.

    `spread` are the things that should be used evenly, the most important first: a draft whose fact was used already comes after all
    whose fact was not. `fact` is where the fact, list or paragraph stands that it asks for; empty where it asks for none. `labels` are fields of the case; `values` the literal pieces of documents in its reference, `documents` their paths.
    """

    kind: Kind
    template: Template
    slots: Mapping[str, str]
    spread: tuple[str, ...]
    fact: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from other drafts."""
        return sha256([self.kind, self.template.name, sorted(self.slots.items())])


@dataclass(frozen=True)
class DrawnQuestion:
    """A draft with the phrasing that was chosen for it, filled."""

    draft: Draft
    question: str


def drafts_of(
    templates: Templates, kind: Kind, about: str, slots: Mapping[str, str], spread: Sequence[str], **rest: Any
) -> Iterator[Draft]:
    """A draft for each template that the slots, which are about this, fill. The template is added behind `spread`; `rest` are further fields
    of the drafts."""
    for template in templates.fitting(kind, about, slots):
        yield Draft(kind, template, slots, (*spread, template.name), **rest)


def answered(anchors: Sequence[Mapping[str, Any]], *paths: str, rule: str | None = None, **expected: Any) -> dict[str, Any]:
    """The labels and documents of a draft that these places of these documents answer; `rule` says which side of a conflict counts."""
    conflict = {} if rule is None else {"recency_conflict_rule": rule}
    behaviour = {"answerable": True, "expected": {"behavior": "answer", **expected}}
    return {"labels": {"anchors": list(anchors), "relevant_docs": list(paths), **conflict, **behaviour}, "documents": paths}


class QuestionDraw:
    """A draw of questions over several kinds, by a seed; no two of them are equal or near-equal.

    Two questions are near-equal when the same words carry their meaning (`english.meaning_words`).
    """

    def __init__(self, seed: int):
        self._seed = seed
        self._asked: set[frozenset[str]] = set()

    def take(self, drafts: Iterable[Draft], n: int) -> list[DrawnQuestion]:
        """`n` of the drafts, each as a question; fewer where there are no more different questions.

        Always the draft whose things to spread were used least, the most important first; of equal ones the one with the smallest hash.
        Of very many drafts those with the smallest hashes are looked at first.
        """
        ordered = sorted(((self._hash(draft.key), draft) for draft in drafts), key=itemgetter(0)) if n else []
        uses, asked_for, drawn = Counter[tuple[int, str]](), set[str](), list[DrawnQuestion]()
        for start in range(0, len(ordered), LOT * max(n, 1)):
            lot = ordered[start : start + LOT * n]
            waiting = [(_use_counts(draft, uses), place) for place, (_, draft) in enumerate(lot)]
            heapq.heapify(waiting)
            while waiting and len(drawn) < n:
                counts, place = heapq.heappop(waiting)
                draft = lot[place][1]
                if (now := _use_counts(draft, uses)) != counts:  # used more since: uses only grow
                    heapq.heappush(waiting, (now, place))
                elif draft.fact and draft.fact in asked_for:
                    continue
                elif (question := self._new_question(draft)) is not None:
                    drawn.append(question)
                    asked_for.add(draft.fact)
                    uses.update(enumerate(draft.spread))
        return drawn

    def add(self, question: str) -> bool:
        """Take a question that was made elsewhere. False where a near-equal one was taken before."""
        before = len(self._asked)
        self._asked.add(meaning_words(question))
        return len(self._asked) > before

    def replace(self, old: str, new: str) -> bool:
        """Put another wording in a question's place. False, and nothing changes, where it is near-equal to another question."""
        before, after = meaning_words(old), meaning_words(new)
        if after != before and after in self._asked:
            return False
        self._asked = (self._asked - {before}) | {after}
        return True

    def _new_question(self, draft: Draft) -> DrawnQuestion | None:
        """The draft in the first of its phrasings, in seeded order, whose question was not asked before; None where all were."""
        for phrasing in sorted(draft.template.question.questions, key=lambda text: self._hash([draft.key, text])):
            question = fill(phrasing, draft.slots)
            if self.add(question):
                return DrawnQuestion(draft, question)
        return None

    def _hash(self, value: Any) -> str:
        return sha256([self._seed, value])


def _use_counts(draft: Draft, uses: Counter[tuple[int, str]]) -> tuple[int, ...]:
    """How often each of the things to spread was used."""
    return tuple(uses[item] for item in enumerate(draft.spread))


Role = Literal["newer", "older"] | None


def anchor(document: Document, section: DocumentSection, *snippets: str, role: Role = None) -> dict[str, Any]:
    """The place of a section, with literal pieces of its text, and which side of a conflict its document is on."""
    place: dict[str, Any] = {"rel_path": document.rel_path}
    if section.heading_path:
        place["heading_path"] = section.heading_path
    place["snippets"] = list(snippets)
    return place if role is None else {**place, "role": role}
