"""Behaviour of an answer: refusals, rules, tone, sources that disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from ragpipe.schema.judge_answers.answer_type import Answer, Flag, Integer, ItemRole, Quote


class Refusal(Answer):
    """Whether an answer as a whole declines, and whether it mentions the end of its training data."""

    reason: str = ""
    training_cutoff: Flag
    declines: Flag


class Acknowledgement(Answer):
    """Whether an answer says that its sources disagree, with the passage that does."""

    evidence: Quote = ""
    reason: str = ""
    acknowledged: Flag


class RuleVerdict(Answer):
    """Whether an answer breaks rule number `index` (from 1), how badly, with the passage that does."""

    numbered_items: ClassVar[Mapping[str, ItemRole]] = {"index": "rules"}
    index: Integer
    evidence: Quote = ""
    reason: str = ""
    severity: Literal["high", "medium", "low", "none"] = "none"
    violated: Flag


class RuleVerdicts(Answer):
    """One verdict per rule asked about; completeness is checked by the metric, never padded."""

    verdicts: list[RuleVerdict]


class Tone(Answer):
    """Whether an answer keeps a tone, with the passage that breaks it ('' when none does)."""

    evidence: Quote = ""
    reason: str = ""
    kept: Flag
