"""Questions about claims whose contexts do not fit into the model's window: asked in parts, whose answers are joined (`judge.overflow=split`).

A claim is supported where any part supports it. What only several parts together would support is lost; such answers are
flagged (`split`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.shown_order import holds_chunks
from ragpipe.judging.token_count import count_tokens, how_counted
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.call import Message
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.claim_answers import QuotedVerdict, QuotedVerdicts, Verdict, Verdicts

SPLIT = "split"
"""The flag of a question that shows a part of the contexts."""

_NUMBERS = "numbers"
_TOKENS_PER_MESSAGE = 8  # what a chat template adds
_MARGIN = 1.2  # for models whose tokens are only estimated
_WORTH = {"supported": 0, "contradicted": 1, "not_supported": 2}

A = TypeVar("A", bound=Answer)
AnyVerdict = Verdict | QuotedVerdict


class ContextMeasure:
    """Whether a question fits into a judge's window, by our own count alone: a replay must come to the same parts. Only for
    a judge whose window is given."""

    def __init__(self, settings: JudgeSettings):
        self._model = settings.model
        self._room = (settings.supported.context_tokens or 0) - (settings.max_tokens or 0)
        self._margin = _MARGIN if how_counted(settings.model).startswith("estimated") else 1.0

    @classmethod
    def of(cls, settings: object) -> ContextMeasure | None:
        """The measure of a judge that splits; None for any other."""
        if not isinstance(settings, JudgeSettings) or settings.overflow != "split":
            return None
        return cls(settings)

    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether these messages and the longest reply fit. A text has at most as many tokens as bytes: most are not counted."""
        texts = [message["content"] for message in messages]
        overhead = _TOKENS_PER_MESSAGE * len(texts)
        if sum(len(text.encode("utf-8", "replace")) for text in texts) + overhead <= self._room:
            return True
        return sum(count_tokens(text, self._model) for text in texts) * self._margin + overhead <= self._room


def halved(
    prompt: Prompt, answer: type[Answer], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The values of a question with the first half of its contexts, and with the second. None for a question that cannot be split:
    it asks for no verdicts about claims, shows no list of contexts or several, or a single context."""
    if answer not in (Verdicts, QuotedVerdicts):
        return None
    lists = [name for name, role in prompt.roles.items() if role == "sources" and holds_chunks(values.get(name))]
    if len(lists) != 1 or len(values[lists[0]]) < 2:
        return None
    name, middle = lists[0], len(values[lists[0]]) // 2
    parts = []
    for part in (slice(None, middle), slice(middle, None)):
        shown = {**values, name: values[name][part]}
        if len(values.get(_NUMBERS) or ()) == len(values[name]):
            shown[_NUMBERS] = values[_NUMBERS][part]
        parts.append(shown)
    return parts[0], parts[1]


def joined_parts(parts: Sequence[A]) -> A:
    """One answer of the answers to all parts: of each claim the verdict that is worth most (supported, contradicted, not supported),
    the first of several. An answer that does not have each claim once is given as it is, so that whoever checks completeness finds
    it incomplete."""
    by_part = [{verdict.index: verdict for verdict in _verdicts(part)} for part in parts]
    indices = [verdict.index for verdict in _verdicts(parts[0])]
    for part, verdicts in zip(parts, by_part, strict=True):
        if len(_verdicts(part)) != len(verdicts) or verdicts.keys() != set(indices):
            return part
    best = [min((verdicts[index] for verdicts in by_part), key=_worth) for index in indices]
    return parts[0].model_copy(update={"verdicts": best})


def _verdicts(answer: Answer) -> Sequence[AnyVerdict]:
    assert isinstance(answer, Verdicts | QuotedVerdicts)
    return answer.verdicts


def _worth(verdict: AnyVerdict) -> int:
    if isinstance(verdict, Verdict):
        return 0 if verdict.supported else 1
    return _WORTH[verdict.verdict]
