"""Which transport a plan recommends."""

from __future__ import annotations

import pytest

from ragpipe.engine.plans.batch_plan import advice


@pytest.mark.parametrize(
    ("rounds", "by_batch", "live", "words"),
    [
        (2, 0.50, 1.00, "recommended: transport=batch, where results may wait"),
        (2, 0.005, 0.010, "recommended: transport=batch, where results may wait"),
        (2, 0.0004, 0.0008, "recommended: transport=live, which costs less than a cent more and answers at once"),
        (9, 0.0004, 0.0008, "recommended: transport=live, which costs less than a cent more and answers at once"),
        (5, 0.50, 1.00, "recommended: transport=live, unless 5 rounds one after the other are worth it"),
        (1, 1.00, 1.00, "recommended: transport=live, which is not dearer and answers at once"),
        (1, None, 1.00, "no recommendation without both prices"),
    ],
)
def test_batches_are_recommended_where_they_save_money_that_is_worth_a_wait(
    rounds: int, by_batch: float | None, live: float | None, words: str
) -> None:
    assert advice(rounds, by_batch, live, "live") == words
