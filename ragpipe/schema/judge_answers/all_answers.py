"""Every shipped answer type by its name."""

from __future__ import annotations

from collections.abc import Mapping

from ragpipe.schema.judge_answers import (
    behaviour_answers,
    citation_answers,
    claim_answers,
    grade_answers,
    relevance_answers,
    synthesis_answers,
)
from ragpipe.schema.judge_answers.answer_type import Answer

_MODULES = (claim_answers, relevance_answers, grade_answers, citation_answers, behaviour_answers, synthesis_answers)

ANSWER_TYPES: Mapping[str, type[Answer]] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Answer) and value is not Answer
}
