"""Questions by a language model: template questions in other words, and free questions about sections. Checked by rule."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragpipe.core.call import Payload
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, JudgeError, Problem
from ragpipe.core.sample import CaseKey
from ragpipe.core.text import normalise, occurs
from ragpipe.data.markdown import Document, DocumentSection
from ragpipe.extras.test_sets.drafts import QuestionDraw, anchor
from ragpipe.extras.test_sets.english import word_set
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.template_cases import COMPLETE, Record, case_id
from ragpipe.judge.answer_type import Answer, answer_schema
from ragpipe.judge.answers import Rephrasing, SectionQuestion, SectionQuestions
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.recording_judge import reply_size
from ragpipe.runs.own_questions import OpenJudge, OwnQuestion

A = TypeVar("A", bound=Answer)

PER_SECTION = 2
"""Questions that the model is asked for about one section."""
SHORTEST_SECTION, LONGEST_SECTION = 80, 8_000
"""Characters of a section that the model is asked about."""
_NEAR_EQUAL = "near_equal"


@dataclass(frozen=True, slots=True)
class SynthesisQuestion:
    """One question to the model: its template, the type of its reply and its values. `name` is the case or the section."""

    name: str
    prompt: Prompt
    answer: type[Answer]
    values: dict[str, Any]

    def planned(self) -> OwnQuestion:
        """The question as the plan counts it."""
        payload = Payload(self.prompt.render(**self.values), answer_schema(self.answer))
        return OwnQuestion(payload, self.answer, self.prompt.length(self.values), reply_size(self.answer, self.values))


@dataclass
class ModelTally:
    """What became of the model's questions: how many were asked for and kept, and why the others were dropped."""

    asked: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def as_card(self) -> dict[str, Any]:
        """For the card of the set."""
        return {"asked": self.asked, "kept": self.kept, "dropped": dict(sorted(self.dropped.items()))}


class ModelQuestions:
    """The model's part of a test set.

    Args:
        prompts: where the templates `synthesize/rephrase` and `synthesize/ask` are.
        documents: the documents.
        draw: the draw of the template questions, with which the model's may not be near-equal.
        seed: the seed of the set: which questions are reworded and which sections are asked about.
        model: the printable name of the judge, for the origin of each case.
    """

    def __init__(self, prompts: PromptLibrary, documents: SourceDocuments, draw: QuestionDraw, seed: int, model: str):
        self.rephrase_prompt = prompts.load("synthesize", "rephrase", "v1")
        self.ask_prompt = prompts.load("synthesize", "ask", "v1")
        self.rephrased, self.free = ModelTally(), ModelTally()
        self._documents, self._draw, self._seed, self._model = documents, draw, seed, model

    def rewordings(self, records: Sequence[Record], share: float) -> list[SynthesisQuestion]:
        """The questions that ask for other words: of this share of the cases, drawn by the seed."""
        order = sorted(records, key=lambda record: sha256([self._seed, "rephrase", record["id"]]))
        chosen = {record["id"] for record in order[: round(share * len(records))]}
        asked = {record["id"]: {"question": record["question"]} for record in records if record["id"] in chosen}
        return [SynthesisQuestion(name, self.rephrase_prompt, Rephrasing, values) for name, values in asked.items()]

    def section_questions(self) -> list[SynthesisQuestion]:
        """A question for each section that can be asked about, in the order of the draw."""
        return [self._about(document, section) for document, section in self._sections()]

    async def rephrase(self, asked: Sequence[SynthesisQuestion], records: Sequence[Record], judge: OpenJudge) -> None:
        """Put the model's wording into each record whose wording holds. The others keep that of the template."""
        by_id = {record["id"]: record for record in records}
        self.rephrased.asked = len(asked)
        for question, reply in zip(asked, await _replies(judge, asked), strict=True):
            record = by_id[question.name]
            fault = self._reworded(record, reply) if isinstance(reply, Rephrasing) else _kind(reply)
            if fault:
                self.rephrased.dropped[fault] += 1
            else:
                self.rephrased.kept += 1

    async def ask_freely(self, n: int, judge: OpenJudge) -> list[Record]:
        """`n` free questions, as records. Sections are asked about in the order of the draw until there are enough.

        Raises DataError where all sections together give fewer that hold.
        """
        sections, records = list(self._sections()), list[Record]()
        place = 0
        while len(records) < n and place < len(sections):
            lot = sections[place : place + math.ceil((n - len(records)) / PER_SECTION)]
            place += len(lot)
            replies = await _replies(judge, [self._about(*item) for item in lot])
            for (document, section), reply in zip(lot, replies, strict=True):
                if not isinstance(reply, SectionQuestions):
                    self.free.dropped[_kind(reply)] += 1
                    continue
                self.free.asked += len(reply.questions)
                records += self._usable(document, section, reply.questions)
        if len(records) < n:
            actual = f"{len(records):,} that hold, from {place:,} sections"
            problem = Problem("the model", "synthesize.counts.free", actual, f"{n:,}", "ask for fewer: no call is repeated")
            raise DataError("the model gave too few questions; nothing was written", [problem])
        if spare := len(records) - n:
            self.free.dropped["not_needed"] = spare
        self.free.kept = n
        return records[:n]

    def _usable(self, document: Document, section: DocumentSection, questions: Iterable[SectionQuestion]) -> Iterator[Record]:
        for question in questions:
            fault = section_question_fault(question, section.text)
            if fault is None and not self._draw.add(question.question.strip()):
                fault = _NEAR_EQUAL
            if fault:
                self.free.dropped[fault] += 1
            else:
                yield self._record(document, section, question)

    def _record(self, document: Document, section: DocumentSection, question: SectionQuestion) -> Record:
        text = question.question.strip()
        origin = {**self._origin(self.ask_prompt, [document.rel_path]), "fact": f"{document.rel_path}#{section.heading_path}"}
        return {
            "id": case_id("free", text),
            "question": text,
            "references": [question.answer.strip()],
            "anchors": [anchor(document, section, question.quote.strip())],
            "relevant_docs": [document.rel_path],
            "answerable": True,
            "expected": {"behavior": "answer"},
            "category": COMPLETE,
            "subcategory": "free",
            "question_type": "free",
            "meta": {"origin": origin},
        }

    def _reworded(self, record: Record, reply: Rephrasing) -> str | None:
        """Put a wording into a record. Returns why not, None where it was put there."""
        after = reply.question.strip()
        if fault := rephrasing_fault(record["question"], after):
            return fault
        if record.get("answerable") is False and not self._documents.is_absent(after):
            return "may_be_answerable"
        if not self._draw.replace(record["question"], after):
            return _NEAR_EQUAL
        before = record["meta"]["origin"]
        fact = {"fact": before["fact"]} if "fact" in before else {}
        origin = {**self._origin(self.rephrase_prompt, before["documents"]), "template": before["source"], **fact}
        record["question"], record["meta"]["origin"] = after, origin
        return None

    def _origin(self, prompt: Prompt, documents: list[str]) -> dict[str, Any]:
        source = {"kind": "model", "source": prompt.signature, "model": self._model}
        return {**source, "documents": documents, "seed": self._seed}

    def _about(self, document: Document, section: DocumentSection) -> SynthesisQuestion:
        title = f"{document.title}: {section.heading_path or document.title}"
        values = {"title": title, "section": section.text, "n": PER_SECTION}
        return SynthesisQuestion(f"{document.rel_path}:{section.line}", self.ask_prompt, SectionQuestions, values)

    def _sections(self) -> list[tuple[Document, DocumentSection]]:
        """The sections of the plain documents that are neither too short nor too long, in the order of the draw."""
        pairs = [(document, section) for document in self._documents.plain for section in document.sections]
        fitting = [pair for pair in pairs if SHORTEST_SECTION <= len(pair[1].text) <= LONGEST_SECTION]
        return sorted(fitting, key=lambda pair: sha256([self._seed, "free", pair[0].rel_path, pair[1].line]))


async def _replies(judge: OpenJudge, questions: Sequence[SynthesisQuestion]) -> list[Answer | JudgeError]:
    """The reply to each question, in order; the error where it cannot be read or was refused for good. Raises what `all` raises."""
    judges = [CaseJudge(judge.session, CaseKey(question.name, "synthesize"), "synthesize") for question in questions]
    asked = zip(judges, questions, strict=True)
    return await judge.all(ask(question.prompt, question.answer, **question.values) for ask, question in asked)


def _kind(reply: Answer | JudgeError) -> str:
    return reply.kind if isinstance(reply, JudgeError) else "unparsable"


LONGEST_QUESTION = 400
FEWEST_QUOTED_WORDS = 3
_NUMBER_WORDS = word_set("two three four five six seven eight nine ten eleven twelve")
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_][\w'\u2019-]*")
_QUOTED = re.compile(r'"([^"]+)"')
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SPEAKS_OF_THE_TEXT = re.compile(
    r"\b(?:this|the|that|given|following|above) (?:section|passage|text|excerpt|paragraph|document|material)s?\b", re.IGNORECASE
)


def rephrasing_fault(before: str, after: str) -> str | None:
    """Why a rewording cannot take the place of a question; None where it can.

    `not_one_line` (blank, too long or of several lines), `unchanged`, `name_lost` or `number_lost` (a name, a number or a text in quotation marks
    is gone), `number_added`.
    """
    if not after.strip() or "\n" in after.strip() or len(after) > LONGEST_QUESTION:
        return "not_one_line"
    old, new = normalise(before), normalise(after)
    if old == new:
        return "unchanged"
    if any(normalise(text) not in new for text in _QUOTED.findall(before)):
        return "name_lost"
    words = set(_TOKEN.findall(new))
    if not {normalise(name) for name in _names(before)} <= words:
        return "name_lost"
    old_numbers, new_numbers = map(_numbers, (old, new))
    if not old_numbers <= new_numbers:
        return "number_lost"
    return "number_added" if new_numbers - old_numbers else None


def section_question_fault(question: SectionQuestion, section: str) -> str | None:
    """Why a question about a section cannot be used; None where it can.

    `not_one_line`, `no_answer`, `speaks_of_the_text` (it needs the section beside it), `quote_too_short`, `quote_not_found` (the quote does not
    stand in the section), `number_not_in_section` (the answer has a number that the section has not).
    """
    text = question.question.strip()
    if not text or "\n" in text or len(text) > LONGEST_QUESTION:
        return "not_one_line"
    if not any(sign.isalnum() for sign in question.answer):
        return "no_answer"
    if _SPEAKS_OF_THE_TEXT.search(text):
        return "speaks_of_the_text"
    if len(_TOKEN.findall(question.quote)) < FEWEST_QUOTED_WORDS:
        return "quote_too_short"
    if "..." in question.quote or "\u2026" in question.quote or not occurs(question.quote, [normalise(section)]):
        return "quote_not_found"
    if not set(_NUMBER.findall(question.answer)) <= set(_NUMBER.findall(f"{section} {text}")):
        return "number_not_in_section"
    return None


def _names(question: str) -> list[str]:
    """The words with a capital that do not begin a sentence, and those with a digit beside letters."""
    tokens = [(match.start(), match[0]) for match in _TOKEN.finditer(question)]
    begins = {0, *(match.end() for match in re.finditer(r"[.!?:] +\"?|^\"", question))}
    return [word for start, word in tokens if word[0].isupper() and word != "I" and start not in begins]


def _numbers(text: str) -> set[str]:
    return {*_NUMBER.findall(text)} | ({*re.findall(r"[a-z]+", text)} & _NUMBER_WORDS)
