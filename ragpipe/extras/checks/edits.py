"""What changes a case: the case as an edit reads it, what it may borrow from other questions, and what the edit makes of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ragpipe.judging.heuristic.lexicon import STOP_WORDS
from ragpipe.judging.heuristic.numbers import find_numbers
from ragpipe.schema.sample import Case, Chunk, Citation, Output

NAME = re.compile(r"[A-ZÀ-ÖØ-Þ][\w-]*(?:\s(?:(?:of|de|van|von)\s)?[A-ZÀ-ÖØ-Þ][\w-]*)*")
_UNTOUCHED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|\[[^\[\]\n]{1,60}\](?:\([^()\s]*\))?|【[^】\n]{1,60}】"  # citation marks and links
    r"|\b(?:https?://|www\.)\S+|\S+@\S+\.\w+"  # addresses
    r"|“[^“”\n]*”|\"[^\"\n]*\""  # a quotation is somebody else's text
    r"|^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=[.:;!?])\s+\(?\d{1,2}[.)](?=\s)",  # numbers of list items
    re.DOTALL | re.MULTILINE,
)
_NEIGHBOURS = 12  # characters around a changed place by which it is found again in the passage of a citation


@dataclass(frozen=True, slots=True)
class Edit:
    """What was made of an output. `before` and `after` are the texts that differ, for people to read.

    `in_reference`: what was changed in the answer stands in a reference answer too, so that what compares the two must see it.
    """

    output: Output
    before: str
    after: str
    in_reference: bool = False


class Donors:
    """The chunks of other questions, from which an edit takes what does not belong to a case."""

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


class Subject:
    """A case to be changed, with its texts: `sources` is what the chunks say, `known` all that the case says anywhere."""

    def __init__(self, case: Case, donors: Donors):
        self.case, self.donors, self.answer = case, donors, case.answer
        self.sources = "\n".join(chunk.text for chunk in case.contexts)
        self.references = "\n".join(case.references)
        turns = [turn.text for turn in case.sample.history]
        self.known = "\n".join([self.sources, self.references, self.answer, case.question, *turns])

    @cached_property
    def source_words(self) -> frozenset[str]:
        """The content words of the chunks."""
        return content_words(self.sources)

    @cached_property
    def source_numbers(self) -> frozenset[str]:
        """The numbers of the chunks."""
        return numbers_in(self.sources)

    @cached_property
    def known_numbers(self) -> frozenset[str]:
        """The numbers of the whole case."""
        return numbers_in(self.known)

    def changed(self, before: str, after: str, **fields: Any) -> Edit:
        """The case with these fields of its output replaced."""
        return Edit(self.case.output.model_copy(update=fields), before, after)

    def edited(self, span: tuple[int, int], text: str, *, in_reference: bool = False, **fields: Any) -> Edit:
        """The case with one part of its answer replaced, in the recorded passages of its citations too, and further fields of the
        output. `before` and `after` are the lines of the answer around the change."""
        (start, end), answer = span, self.answer
        mutated = answer[:start] + text + answer[end:]
        left, right = answer.rfind("\n", 0, start) + 1, answer.find("\n", end)
        right = len(answer) if right < 0 else right
        around = (_neighbourhood(answer, start, end), _neighbourhood(mutated, start, start + len(text)))
        update = {"answer": mutated, "citations": _edited_passages(self.case, *around), **fields}
        after = mutated[left : right + len(mutated) - len(answer)]
        return Edit(self.case.output.model_copy(update=update), answer[left:right], after, in_reference)


Change = Callable[[Subject, random.Random], Edit | None]
"""Changes a case in one way; None where it does not apply to the case."""


def _neighbourhood(text: str, start: int, end: int) -> str:
    return text[max(0, start - _NEIGHBOURS) : end + _NEIGHBOURS]


def _edited_passages(case: Case, before: str, after: str) -> list[Citation] | None:
    """The recorded citations, their passages changed as the answer was; one without the changed place stays as it is."""
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
    lead, keep = max(0, lead - 1), max(0, tail - 1)
    return " ".join(first[lead : len(first) - keep]), " ".join(second[lead : len(second) - keep])


def free_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches that touch no part which edits leave alone: citation marks, links, addresses, code, quotations, list numbers."""
    spans = [match.span() for match in _UNTOUCHED.finditer(text)]
    for match in pattern.finditer(text):
        if not any(match.start() < end and start < match.end() for start, end in spans):
            yield match


def content_words(text: str) -> frozenset[str]:
    """The words of three or more letters that are no English stop words, without regard to case."""
    return frozenset(word for word in re.findall(r"[^\W\d_]{3,}", text.casefold()) if word not in STOP_WORDS)


def share_of_words(text: str, words: frozenset[str]) -> float:
    """The share of a text's content words that are among `words`, 0 to 1; 0 for a text without any."""
    own_words = content_words(text)
    return len(own_words & words) / len(own_words) if own_words else 0.0


def numbers_in(text: str) -> frozenset[str]:
    """The numbers of a text in normal form: `1,000`, `1000` and `one thousand` are one."""
    return frozenset(number.value for number in find_numbers(text))


def has_phrase(text: str, phrase: str) -> bool:
    """Whether a text has a phrase as whole words, without regard to case and to line breaks."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE) is not None
