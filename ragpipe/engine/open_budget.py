"""The budget of a run: what its judge side may spend, minus what all its earlier starts have spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.limits.budget import Budget
from ragpipe.judging.pricing import rates_for
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.usage import Amount, Usage
from ragpipe.store.calls.call_database import StorePlace
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.files.atomic import json_unless_same, make_folders
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.hold_journal import HoldJournal
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json
from ragpipe.store.run.seals import open_seal

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


NOTE = ".paid.json"
"""A file beside an iteration's tables while it is judged again: what was paid before. A start after a killed one counts from it."""


class CarriedSpend:
    """The spend of a run by iteration: what its folder says, and what the call store of this machine gained since."""

    def __init__(self, folder: RunFolder, store: StorePlace, run_id: str):
        self._folder, self._store, self._run_id = folder, store, run_id

    def note_before(self, iteration: int) -> None:
        """Write down what was paid before the iteration is judged again, unless a start that was killed did."""
        if not (note := self._note(iteration)).is_file():
            json_unless_same(note, self._before(iteration))

    def spend_of(self, iteration: int) -> Usage:
        """As `paid_by`, with what earlier processes paid from another call store."""
        note = self._note(iteration)
        before = read_json(note) if note.is_file() else self._before(iteration)
        now = paid_by(self._store, self._run_id, iteration)
        if before["folder"] is None:
            return now
        gained = (now - Usage.from_json(before["store"])).clipped()
        carried = Usage.from_json(before["folder"]) + gained
        # the store that the run was made with holds all of it, also what a killed start paid: it never holds too much
        return now if now.replies >= carried.replies else carried

    def clear_notes(self) -> None:
        """Remove the notes: the run is sealed, and its folder says what was paid."""
        for iteration in self._folder.iterations():
            self._note(iteration).unlink(missing_ok=True)

    def _before(self, iteration: int) -> dict[str, Any]:
        recorded = self._recorded(iteration)
        return {"folder": recorded, "store": paid_by(self._store, self._run_id, iteration).as_json()}

    def _recorded(self, iteration: int) -> dict[str, Any] | None:
        """`spent` of the iteration's cost.json, else of the seal; None when neither has it."""
        cost = self._folder.iteration(iteration).cost
        if cost.is_file():
            spent: dict[str, Any] = read_json(cost)["spent"]
            return spent
        try:
            seal = open_seal(self._folder.seal) or {}
        except ValueError:
            return None
        sealed: dict[str, Any] | None = seal.get("spent", {}).get(str(iteration))
        return sealed

    def _note(self, iteration: int) -> Path:
        return self._folder.iteration(iteration).root / NOTE
