"""Questions that a language model writes for a test set."""

from __future__ import annotations

from ragpipe.schema.judge_answers.answer_type import Answer


class Rephrasing(Answer):
    """A question in other words."""

    question: str


class SectionQuestion(Answer):
    """A question that a section answers, the passage that proves it, and the answer."""

    question: str
    quote: str
    answer: str


class SectionQuestions(Answer):
    """Questions about one section; the list is empty where it answers none."""

    questions: list[SectionQuestion]
