"""The budget of a run: what its judge side may spend, minus what all its earlier starts have spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ragpipe.config.settings import RunConfig
from ragpipe.engine.carried_spend import CarriedSpend
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.limits.budget import Budget
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.amount import Amount
from ragpipe.schema.usage import Usage
from ragpipe.store.calls.call_database import StorePlace
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.files.atomic import make_folders
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.hold_journal import HoldJournal
from ragpipe.store.run.run_folder import RunFolder

HOLDS = "holds.jsonl"
"""The journal of an account."""


def budget_owner(config: RunConfig) -> JudgeSettings | JurySettings | None:
    """The section whose `budget` limits the judge side of a run: the judge, the jury, or the embedder where the judge costs nothing;
    None where there is no limit, or nothing is asked."""
    sections = (config.judge, config.embedder)
    owner = next((section for section in sections if isinstance(section, JudgeSettings | JurySettings)), None)
    is_limited = owner is not None and owner.budget.is_set and config.transport.asks
    return owner if is_limited else None


@contextmanager
def open_budget(config: RunConfig, store: StorePlace, run_id: str) -> Iterator[Budget | None]:
    """The budget of one account, None where there is none. It goes on from the ledger of the call store, beside which its holds stand.

    Args:
        config: the configuration of the run.
        store: the place of the call store.
        run_id: the run whose account pays.

    Raises DataError for a damaged journal, FolderLocked while another process spends from this account, OutputError.
    """
    owner = budget_owner(config)
    if owner is None:
        yield None
        return
    folder = config.store.folder(config.output_dir) / "budgets" / run_id
    make_folders(folder)
    with FolderLock(folder):
        journal = HoldJournal.open(folder / HOLDS, _ledger(config, owner, store, run_id))
        with closing(journal):
            yield Budget(owner.budget, owner.section, journal)


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
