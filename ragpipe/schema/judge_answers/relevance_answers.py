"""Relevance of chunks, passages and answers, generated questions, and whether contexts suffice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ragpipe.schema.judge_answers.answer_type import Answer, Flag, Integer, ItemRole, Number, Share


class ChunkVerdict(Answer):
    """Whether chunk number `index` (from 1) helps to answer the question."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    relevant: Flag


class ContextRelevance(Answer):
    """One verdict per chunk asked about, then how far the chunks together give what the question needs, 0 to 1."""

    verdicts: list[ChunkVerdict]
    reason: str = ""
    score: Share


class ChunkGrade(Answer):
    """How relevant chunk number `index` (from 1) is, 0 to 100, and whether it counts as relevant."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    relevance: Annotated[Number, Field(ge=0, le=100)]
    relevant: Flag


class ChunkGrades(Answer):
    """One grade per chunk asked about; completeness is checked by the metric, never padded."""

    verdicts: list[ChunkGrade]


class PassageGrade(Answer):
    """How relevant passage number `index` (from 1) is to the question, 0 to 3."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "sources"}
    index: Integer
    reason: str = ""
    grade: Annotated[Integer, Field(ge=0, le=3)]


class PassageGrades(Answer):
    """One grade per passage asked about; completeness is checked by the metric, never padded."""

    verdicts: list[PassageGrade]


class AnswerRelevance(Answer):
    """How well an answer answers what was asked, 0 to 1, with the findings that lead to it."""

    reason: str = ""
    addresses_question: Flag
    on_topic: Flag
    completeness: Share
    score: Share


class DirectRelevance(Answer):
    """How much of what was asked an answer gives, 0 to 1, with the findings that lead to it."""

    reason: str = ""
    addresses_question: Flag
    on_topic: Flag
    score: Share


class GeneratedQuestions(Answer):
    """Questions that a text would answer; empty when it answers none."""

    questions: list[str]


class Sufficiency(Answer):
    """Whether the contexts suffice to answer the question, and what is missing where they do not."""

    missing: list[str]
    reason: str = ""
    verdict: Literal["sufficient", "partial", "insufficient"]
