"""How many of the items that the contexts contain does the answer list?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.text import list_items
from ragpipe.metrics.base import Computed


class ListCompletenessMetric(Computed):
    """min(items listed, items possible) / items possible, 0 to 1: a request for 10 highlights, of which the contexts
    contain 5, is complete with 5.

    Items possible are the case's label `expected.context_has`; items listed are the list items of the answer's
    outermost level (`-`, `*`, `1.`, `2)` at the start of a line). `<name>_surplus` counts the items listed beyond the
    possible ones: they cannot come from the contexts. Items are counted, not read: whether they are true is measured
    by faithfulness. Skipped without the label (`no_item_count`), where it is 0 (`no_items_in_contexts`), and for an
    answer that is no list (`no_list`). Needs an answer.
    """

    needs = frozenset({"answer"})
    reads_cells = True

    def scores(self) -> tuple[ScoreSpec, ...]:
        surplus = ScoreSpec(f"{self.name}_surplus", None, None, higher_is_better=False, diagnostic=True)
        return (ScoreSpec(self.name), surplus)

    def sample_skip_reason(self, sample: Sample) -> str | None:
        possible = sample.expects.context_has
        if not possible:
            return "no_item_count" if possible is None else "no_items_in_contexts"
        return super().sample_skip_reason(sample)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        listed, possible = len(details["items"]), details["possible"]
        if score == self.name:
            return f"min({listed} listed, {possible} possible) / {possible}"
        return f"max(0, {listed} listed - {possible} possible)"

    def compute(self, cases: Sequence[Case]) -> Sequence[Sequence[Score]]:
        return [self._score(case) for case in cases]

    def _score(self, case: Case) -> list[Score]:
        possible = case.sample.expects.context_has
        items = list_items(case.answer)
        names = [spec.name for spec in self.scores()]
        if not items or not possible:
            return [Score(name=name, status="skipped", reason="no_list") for name in names]
        details = {"items": items, "possible": possible}
        reason = f"{len(items)} items listed, the contexts hold {possible}"
        values = (min(len(items), possible) / possible, float(max(0, len(items) - possible)))
        return [Score(value, name, reason=reason, details=details) for value, name in zip(values, names, strict=True)]
