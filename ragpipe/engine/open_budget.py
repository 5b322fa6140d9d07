"""The budget of a run: what its judge side may spend, minus what all its earlier starts have spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragpipe.config.settings import RunConfig
from ragpipe.engine.carried_spend import CarriedSpend
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.limits.budget import Budget
from ragpipe.judging.limits.shared_budget import SharedBudget
from ragpipe.judging.limits.shared_limits import SharedUse, open_limits
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.amount import Amount
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.calls.store_place import StorePlace
from ragpipe.store.run.run_folder import RunFolder


def budget_owner(config: RunConfig) -> JudgeSettings | JurySettings | None:
    """The section whose `budget` limits the judge side of a run: the judge, the jury, or the embedder where the judge costs nothing;
    None where there is no limit, or nothing is asked."""
    sections = (config.judge, config.embedder)
    owner = next((section for section in sections if isinstance(section, JudgeSettings | JurySettings)), None)
    is_limited = owner is not None and owner.budget.is_set and config.transport.asks
    return owner if is_limited else None


@dataclass(frozen=True, slots=True)
class Spending:
    """What holds new calls back: the budget of the run, and the limits that it shares with other processes. None: there are none."""

    budget: Budget | None = None
    shared: SharedUse | None = None


@contextmanager
def open_spending(config: RunConfig, store: StorePlace, run_id: str, tell: Callable[[str], None]) -> Iterator[Spending]:
    """What holds the calls of one run back; nothing, where no provider is asked. The limits stand beside the call store, whose ledger
    the budget goes on from.

    Args:
        config: the configuration of the run.
        store: the place of the call store.
        run_id: the run whose account pays.
        tell: gets notices for the user.

    Raises DataError for a damaged account, OutputError.
    """
    if not config.transport.asks or not _asks_a_provider(config):
        yield Spending()
        return
    owner = budget_owner(config)
    with open_limits(store, tell) as limits, closing(limits.account(run_id)) as account:
        budget = None
        if owner is not None:
            budget = SharedBudget(owner.budget, owner.section, account, _ledger(config, owner, store, run_id))
        yield Spending(budget, SharedUse(limits, account))


def _asks_a_provider(config: RunConfig) -> bool:
    return any(isinstance(section, JudgeSettings | JurySettings) for section in (config.judge, config.embedder))


def _ledger(config: RunConfig, owner: JudgeSettings | JurySettings, store: StorePlace, run_id: str) -> Amount:
    """What the run has paid by the ledger of this call store, or by its folder where that came from another machine."""
    usage = paid_by(store, run_id)
    folder = RunFolder.at(Path(config.output_dir), config.name, run_id)
    carried = CarriedSpend(folder, store, run_id)
    by_folder = Usage.sum(carried.spend_of(number) for number in folder.iterations())
    return Amount.of_usage(usage, _unpriced(owner, usage)).at_least(
        Amount.of_usage(by_folder, _unpriced(owner, by_folder))
    )


def _unpriced(owner: JudgeSettings | JurySettings, usage: Usage) -> float:
    """What replies may have cost that were paid before their price was known: all tokens at the dearest price of today."""
    if not usage.unpriced:
        return 0.0
    models = owner.asked_servers.values() if isinstance(owner, JurySettings) else (owner,)
    return max((rates_for(model).most_usd(usage.tokens_in, usage.tokens_out) or 0.0 for model in models), default=0.0)
