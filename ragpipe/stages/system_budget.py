"""The budget of the system under test: what its answers have cost by the outputs' journal, and what more they may cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragpipe.judging.limits.budget import Budget
from ragpipe.schema.amount import Amount
from ragpipe.schema.sample import Output
from ragpipe.scoring.system_usage import USD, figures
from ragpipe.stages.collected_outputs import JOURNAL_FIELDS
from ragpipe.stages.read_answers import token_usage
from ragpipe.store.run.hold_journal import HoldJournal
from ragpipe.store.run.journal import read_entries
from ragpipe.systems.settings import LiveSystem

JOURNAL = ".system-budget.jsonl"
"""The journal of the holds, beside that of the outputs."""


def cost_of_answer(settings: LiveSystem) -> Callable[[Mapping[str, Any]], Amount | None]:
    """What an answer costs by its `usage`; None where that lacks what the budget limits: money, or tokens."""
    price, limits = settings.prices.usd if settings.prices else None, settings.budget

    def cost(answer: Mapping[str, Any]) -> Amount | None:
        usage = answer.get("usage")
        if not isinstance(usage, Mapping):
            return None
        numbers = {name: value for name, value in token_usage(usage).items() if _is_number(value)}
        counted = figures(numbers, price)
        needed = [name for name, limit in ((USD, limits.usd), ("tokens_total", limits.tokens)) if limit is not None]
        if not all(name in counted for name in needed):
            return None
        return Amount(counted.get(USD, 0.0), round(counted.get("tokens_total", 0.0)), 1)

    return cost


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


@contextmanager
def open_system_budget(
    settings: LiveSystem, outputs_journal: Path, taken_over: Collection[str]
) -> Iterator[Budget | None]:
    """The budget of a collection, None where it has none. It goes on from what the outputs say that they have cost.

    Args:
        settings: the section of the system.
        outputs_journal: the journal of the outputs.
        taken_over: methods whose outputs another run had collected: this one did not pay for them.

    Raises DataError for a damaged journal, OutputError.
    """
    if not settings.budget.is_set:
        yield None
        return
    costs, ledger, before = cost_of_answer(settings), Amount(), Amount()
    for output in _answers(outputs_journal):
        cost = costs({"usage": output.usage}) or Amount(calls=1)
        ledger += cost
        before += cost if output.method not in taken_over else Amount()
    journal = HoldJournal.open(outputs_journal.with_name(JOURNAL), ledger, spent_before=before)
    try:
        yield Budget(settings.budget, "system", journal)
    finally:
        journal.close()


def _answers(outputs_journal: Path) -> Iterator[Output]:
    for entry in read_entries(outputs_journal, form=JOURNAL_FIELDS):
        if not entry["failed"]:
            yield Output.model_validate_json(entry["output"])
