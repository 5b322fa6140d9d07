"""A mutant, what makes one, and the other cases that it may borrow from."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ragpipe.extras.checks.case_text import CaseText
from ragpipe.schema.sample import Case, Chunk, Citation, Output

NAME = re.compile(r"[A-ZÀ-ÖØ-Þ][\w-]*(?:\s(?:(?:of|de|van|von)\s)?[A-ZÀ-ÖØ-Þ][\w-]*)*")


@dataclass(frozen=True, slots=True)
class Edit:
    """What a mutation made of an output. `before` and `after` are the texts that differ, for people to read.

    `in_reference`: what was changed in the answer stands in a reference answer too, so that what compares the two must see it.
    """

    output: Output
    before: str
    after: str
    in_reference: bool = False


class Donors:
    """The chunks of other questions, from which a mutation takes what does not belong to a case."""

    def __init__(self, cases: Sequence[Case]):
        self._chunks = [(case.sample.id, chunk) for case in cases for chunk in case.contexts]

    def chunks(self, case: Case, rng: random.Random) -> list[Chunk]:
        """Chunks of other questions, in random order, without those of documents that the case retrieved or knows as relevant.

        One whose id the case uses for something else (`c1` in every case) gets another id.
        """
        sample = case.sample
        own_ids = {chunk.id for chunk in case.contexts} | set(sample.relevant_chunks or ()) | set(sample.gains or ())
        own_docs = {chunk.doc_id for chunk in case.contexts if chunk.doc_id}
        own_docs |= set(sample.relevant_docs or ()) | set(sample.gains or ())
        own_paths = {anchor.rel_path for anchor in sample.anchors or ()}
        own_paths |= {chunk.rel_path for chunk in case.contexts if chunk.rel_path}
        own_texts = {chunk.text for chunk in case.contexts}
        strangers = {
            chunk.text: chunk.model_copy(update={"id": f"{chunk.id}-of-{sample_id}"}) if chunk.id in own_ids else chunk
            for sample_id, chunk in self._chunks
            if sample_id != sample.id
            and chunk.text not in own_texts
            and chunk.doc_id not in own_docs
            and chunk.rel_path not in own_paths
            and chunk.policy == "summarize"
            and chunk.text.strip()
        }
        return rng.sample(list(strangers.values()), len(strangers))

    @cached_property
    def _common_words(self) -> frozenset[str]:
        """The words that some chunk writes small."""
        return frozenset(word for _, chunk in self._chunks for word in re.findall(r"\b[a-zà-öø-ÿ]+\b", chunk.text))

    def is_name(self, name: str) -> bool:
        """Whether some word of a capitalised phrase is written small nowhere: `Form` and `Finally` are no names."""
        return any(word.casefold() not in self._common_words for word in name.split())

    @cached_property
    def names(self) -> list[str]:
        """The names in all chunks that begin no sentence, each once, in order of appearance."""
        names: dict[str, None] = {}
        for _, chunk in self._chunks:
            for match in NAME.finditer(chunk.text):
                if match.start() and chunk.text[: match.start()].rstrip()[-1:].isalnum() and self.is_name(match[0]):
                    names[match[0]] = None
        return list(names)


Change = Callable[[Case, CaseText, Donors, random.Random], Edit | None]
"""Makes a mutant of a case; None where the mutation does not apply to it."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to change a case. `what` says it in words, for reports."""

    name: str
    what: str
    change: Change


def edited_answer(case: Case, span: tuple[int, int], text: str, *, in_reference: bool = False) -> Edit:
    """The case with one part of its answer replaced, in the recorded passages of its citations too.

    `before` and `after` are the lines of the answer around the change.
    """
    start, end = span
    answer = case.answer
    mutated = answer[:start] + text + answer[end:]
    left = answer.rfind("\n", 0, start) + 1
    right = answer.find("\n", end)
    right = len(answer) if right < 0 else right
    output = case.output.model_copy(
        update={
            "answer": mutated,
            "citations": _edited_passages(case, _with_neighbours(answer, span), _with_neighbours(mutated, (start, start + len(text)))),
        }
    )  # fmt: skip
    return Edit(output, answer[left:right], mutated[left : right + len(mutated) - len(answer)], in_reference)


def _with_neighbours(text: str, span: tuple[int, int], width: int = 12) -> str:
    """A part of a text with a few characters around it, so that it is found again at the same place only."""
    return text[max(0, span[0] - width) : span[1] + width]


def _edited_passages(case: Case, before: str, after: str) -> list[Citation] | None:
    """The recorded citations, their passages changed as the answer was. A passage in which the changed place cannot be found
    stays as it is."""
    if case.output.citations is None:
        return None
    core_before, core_after = _different_part(before, after)
    edited = []
    for citation in case.output.citations:
        passage = citation.text or ""
        if before in passage:
            passage = passage.replace(before, after, 1)
        elif core_before.strip() and passage.count(core_before) == 1 and passage in case.answer:
            passage = passage.replace(core_before, core_after, 1)
        edited.append(citation.model_copy(update={"text": passage}) if citation.text else citation)
    return edited


def _different_part(before: str, after: str) -> tuple[str, str]:
    """The words in which two texts differ, with one word before and after them."""
    first, second = before.split(" "), after.split(" ")
    lead = next((place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
    tails = zip(reversed(first[lead:]), reversed(second[lead:]), strict=False)
    tail = next((place for place, pair in enumerate(tails) if pair[0] != pair[1]), 0)
    lead = max(0, lead - 1)
    keep = max(0, tail - 1)
    return " ".join(first[lead : len(first) - keep]), " ".join(second[lead : len(second) - keep])


def replaced_output(edit: Edit, **fields: object) -> Edit:
    """The edit with further fields of its output changed."""
    return replace(edit, output=edit.output.model_copy(update=fields))
