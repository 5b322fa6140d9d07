"""Which of two answers to a question is better: the candidate's or the base's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Preference
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, gather_pair, one_line, without_a_word

WIN, TIE, LOSS = 1.0, 0.5, 0.0
CRITERIA = (
    "Correct and complete comes first: what the answer says is right by the contexts, leaves out nothing that the question asks for and "
    "claims nothing beyond them. Between answers that are equal in this, the more helpful one is better: it meets what the person wants "
    "to know, and can be used at once. Length is no merit."
)
_SIDES = ("base", "candidate")


class PreferenceMetric(JudgeMetric):
    """Two calls about each pair of `task=compare compare.preference=true`: which answer is better by the `criteria`, each answer shown
    first once.

    1 where the candidate's is preferred in both orders, 0 where the base's is, else .5: a tie in both, or two choices that do not
    agree. The same answer on both sides is a tie without a call. A pair with a side that gave no answer is skipped.

    `<name>_first`: of the choices the share that fell on the answer shown first; .5 where position does not matter.
    `<name>_inconsistent`: 1 where the two orders gave different results. Neither says anything about the answers.
    """

    needs = frozenset({"answer"})
    answer_types = {"choose": (Preference,)}

    choose: Prompt
    criteria: str = Field(
        default=CRITERIA, min_length=1, description="What makes an answer the better one. The judge sees it as it is written."
    )
    contexts: bool = Field(default=True, description="Whether the judge sees the contexts of both sides. false: none.")

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (
            ScoreSpec(self.name, grades=(("win", WIN), ("tie", TIE), ("loss", LOSS)), choice=True),
            ScoreSpec(f"{self.name}_first", diagnostic=True),
            ScoreSpec(f"{self.name}_inconsistent", binary=True, diagnostic=True, higher_is_better=False),
        )

    def skip_reason(self, case: Case) -> str | None:
        if (why := super().skip_reason(case)) is not None:
            return why
        if (other := case.other_answer) is None:
            return "no_other_answer"
        return f"{why} of the base" if (why := without_a_word(other)) else None

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        answers = {"base": case.other_answer or "", "candidate": case.answer}
        first, inconsistent = f"{self.name}_first", f"{self.name}_inconsistent"
        if answers["base"].strip() == answers["candidate"].strip():
            same = [Score(None, name, "skipped", "the same answer") for name in (first, inconsistent)]
            return [Score(TIE, self.name, reason="the same answer"), *same]

        async def ask(shown: Sequence[str]) -> dict[str, Any]:
            reply = await judge(self.choose, Preference, **self._values(case, *(answers[side] for side in shown)))
            winner = {"A": shown[0], "B": shown[1]}.get(reply.winner, "tie")
            return {"first": shown[0], "winner": winner, "reason": reply.reason}

        orders = await gather_pair(ask(_SIDES), ask(_SIDES[::-1]))
        winners = [order["winner"] for order in orders]
        differ = winners[0] != winners[1]
        value = TIE if differ else {"candidate": WIN, "base": LOSS}.get(winners[0], TIE)
        chosen = [order["winner"] == order["first"] for order in orders if order["winner"] != "tie"]
        reason = "; then: ".join(order["reason"] for order in (orders if differ else orders[:1]))
        details = {"orders": list(orders), "flags": [flag for text in answers.values() for flag in answer_flags(text)]}
        return [
            Score(value, self.name, reason=one_line(reason) or None, details=details),
            Score(sum(chosen) / len(chosen), first) if chosen else Score(None, first, "skipped", "no choice"),
            Score(float(differ), inconsistent),
        ]

    def _values(self, case: Case, first: str, second: str) -> dict[str, Any]:
        shows = self.contexts and any(chunk.text for chunk in case.contexts)
        parts = {"contexts": case.contexts} if shows else {}
        values = {"question": case.question, "criteria": self.criteria, "first": first, "second": second}
        return self.prompt_values(self.choose, case, parts, **values)
