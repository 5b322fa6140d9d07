"""Which of the reference's facts the answer holds, the vital ones apart: the nugget evaluation of TREC RAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Nugget, NuggetSupport, NuggetSupports
from ragpipe.judge.answers import Nuggets as ListedNuggets
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, gather_ordered, verdicts_in_batches, without_a_word
from ragpipe.metrics.shared.multi_reference import ReferenceMetric, by_reference

EARNED = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
STRICT = {"support": 1.0, "partial_support": 0.0, "not_support": 0.0}
OKAY = 0.5  # what an okay nugget weighs beside a vital one in the weighted score
Row = dict[str, Any]


class NuggetsMetric(ReferenceMetric, JudgeMetric):
    """The share of the vital nuggets that the answer states in full, 0 to 1 (TREC's V strict, its main measure).

    Further scores, diagnostic: `<name>_vital` (a partly stated nugget counts half), `<name>_all_strict` and
    `<name>_all` (vital and okay nuggets alike), `<name>_weighted` (an okay nugget has half the weight, a partly stated
    one counts half).

    `nuggetize` lists the atomic facts of the reference answer and says which are vital, without seeing the answer: it
    is asked once for all systems on a question. `assign` says how far the answer states each, `batch` nuggets per
    call. Of more than `most` nuggets, vital ones are kept first, then earlier ones; flagged `nuggets_cut`. A reference
    that declines to answer has one vital nugget: that the question cannot be answered, and why. A reference without a
    nugget is skipped (`no_nuggets`), one without a vital nugget only in the two vital scores (`no_vital_nuggets`). An
    answer without a word is 0 and costs no call.

    Of several references, the one whose nuggets the answer states best counts; with `references: all` the nuggets of
    all of them, each once. Needs a reference. Source: AutoNuggetizer (Pradeep et al., arXiv 2411.09607 and
    2504.15068).
    """

    version = 2
    needs = frozenset({"reference"})
    best_of_each = True
    pools = True
    reads = frozenset({"answer"})

    answer_types = {"nuggetize": (ListedNuggets,), "assign": (NuggetSupports,)}
    nuggetize: Prompt
    assign: Prompt
    most: int = Field(
        default=20,
        ge=1,
        description="Largest number of nuggets per case; vital ones are kept first. It is part of the question.",
    )
    batch: int = Field(default=10, ge=1, description="Nuggets per judge call about their support, 1 or more.")

    def scores(self) -> tuple[ScoreSpec, ...]:
        others = ("vital", "all_strict", "all", "weighted")
        return (ScoreSpec(self.name), *(ScoreSpec(f"{self.name}_{kind}", diagnostic=True) for kind in others))

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        rows = details.get("nuggets")
        if not rows:
            return None
        kind = score.removeprefix(self.name).removeprefix("_") or "strict"
        credits = [f"{EARNED[row['support']]:g} ({row['importance']})" for row in rows]
        formulas = {
            "strict": "vital ones supported in full / vital ones",
            "vital": "vital ones / their number",
            "all_strict": "those supported in full / all",
            "all": "their mean",
            "weighted": "their mean, okay ones weighing half",
        }
        return f"{formulas.get(kind, kind)}: {', '.join(credits)}"

    @by_reference
    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        if why := without_a_word(case.answer):
            return [Score(0.0, spec.name, reason=why, details={"flags": [why]}) for spec in self.scores()]
        shown = (
            self.prompt_values(self.nuggetize, case, {"n": self.most}, question=case.question, reference=reference)
            for reference in case.references
        )
        replies = await gather_ordered(*(judge(self.nuggetize, ListedNuggets, **values) for values in shown))
        nuggets, flags = self.kept([nugget for reply in replies for nugget in reply.nuggets])
        flags = [*answer_flags(case.answer), *flags]

        async def ask(part: list[Nugget], again: bool) -> list[NuggetSupport]:
            values = {"question": case.question, "answer": case.answer, "nuggets": [nugget.nugget for nugget in part]}
            shown = self.prompt_values(self.assign, case, again=again, **values)
            return (await judge(self.assign, NuggetSupports, **shown)).verdicts

        supports = await verdicts_in_batches(nuggets, self.batch, ask)
        rows: list[Row] = [
            {"nugget": nugget.nugget, "importance": nugget.importance, "support": verdict.support, "reason": verdict.reason}
            for nugget, verdict in zip(nuggets, supports, strict=True)
        ]
        return self._scores(rows, flags)

    def kept(self, nuggets: Sequence[Nugget]) -> tuple[list[Nugget], list[str]]:
        """Each nugget once (vital where it was listed as both), at most `most`, and the flag that some were cut."""
        once: dict[str, Nugget] = {}
        for nugget in nuggets:
            name = nugget.nugget.strip()
            if any(c.isalnum() for c in name) and (name not in once or nugget.importance == "vital"):
                once[name] = nugget.model_copy(update={"nugget": name})
        ranked = sorted(once.values(), key=lambda nugget: nugget.importance != "vital")
        return ranked[: self.most], ["nuggets_cut"] if len(ranked) > self.most else []

    def _scores(self, rows: list[Row], flags: list[str]) -> Sequence[Score]:
        vital = [row for row in rows if row["importance"] == "vital"]
        details = {"nuggets": rows, "vital": len(vital), "total": len(rows), "flags": flags}
        values = (_mean(vital, STRICT), _mean(vital, EARNED), _mean(rows, STRICT), _mean(rows, EARNED), _weighted(rows))
        held = sum(row["support"] == "support" for row in vital)
        reason = f"{held} of {len(vital)} vital nuggets are in the answer"
        lacking = "no_vital_nuggets" if rows else "no_nuggets"
        return [
            Score(name=spec.name, status="skipped", reason=lacking, details=details)
            if value is None
            else Score(value, spec.name, reason=reason, details=details)
            for spec, value in zip(self.scores(), values, strict=True)
        ]


def _mean(rows: Sequence[Row], credit: Mapping[str, float]) -> float | None:
    return sum(credit[row["support"]] for row in rows) / len(rows) if rows else None


def _weighted(rows: Sequence[Row]) -> float | None:
    weights = [1.0 if row["importance"] == "vital" else OKAY for row in rows]
    earned = sum(w * EARNED[row["support"]] for w, row in zip(weights, rows, strict=True))
    return earned / sum(weights) if rows else None
