"""The budget of a run: what its judge side may spend, minus what all its earlier starts have spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.settings import ConfigOrigins
from ragpipe.core.usage import PARTS, Amount, Price, Usage
from ragpipe.judge.budget import Budget
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.pricing import rates_for
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.settings import AnyTransport, RunConfig
from ragpipe.store.call_database import StorePlace
from ragpipe.store.call_store import paid_by
from ragpipe.store.files import json_unless_same, make_folders
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.journal import HoldJournal
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json
from ragpipe.store.seals import open_seal


@contextmanager
def open_budget(config: RunConfig, store: StorePlace, run_id: str) -> Iterator[Budget | None]:
    """The budget of the account of `run_id`; None where there is no limit, or nothing is asked. It goes on from the ledger of the
    call store, beside which its holds stand.

    Raises DataError for a damaged journal, FolderLocked while another process spends from this account, OutputError.
    """
    owner = budget_owner(config.judge, config.embedder)
    if owner is None or not owner.budget.is_set or not config.transport.asks:
        yield None
        return
    folder = config.store.folder(config.output_dir) / "budgets" / run_id
    make_folders(folder)
    with FolderLock(folder):
        ledger = _ledger(config, owner, store, run_id)
        with closing(HoldJournal.open(folder / "holds.jsonl", ledger)) as holds:
            yield Budget(owner.budget, owner.section, holds)


def _ledger(config: RunConfig, owner: JudgeSettings | JurySettings, store: StorePlace, run_id: str) -> Amount:
    """What the run has paid by the ledger of this call store, or by its folder where that came from another machine."""
    folder = RunFolder.at(Path(config.output_dir), config.name, run_id)
    carried = CarriedSpend(folder, store, run_id)
    usages = paid_by(store, run_id), Usage.sum(carried.spend_of(number) for number in folder.iterations())
    by_store, by_folder = (Amount(usage.usd_known + _unpriced(owner, usage), usage.tokens, usage.replies) for usage in usages)
    return by_store.at_least(by_folder)


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
        """`spent` of the iteration's cost.json, else of the seal, None when neither has it; and what the call store says."""
        cost = self._folder.iteration(iteration).cost
        try:
            seal = open_seal(self._folder.seal) or {}
        except ValueError:
            seal = {}
        recorded = read_json(cost)["spent"] if cost.is_file() else seal.get("spent", {}).get(str(iteration))
        return {"folder": recorded, "store": paid_by(self._store, self._run_id, iteration).as_json()}

    def _note(self, iteration: int) -> Path:
        return self._folder.iteration(iteration).root / NOTE


def configured_rates(config: RunConfig) -> dict[str, Price]:
    """The prices of the judge and of the embedder by their printable names; nothing where neither is paid."""
    judges = config.judge.members.values() if isinstance(config.judge, JurySettings) else (config.judge,)
    models = (*judges, config.embedder)
    return {model.label: rates_for(model) for model in models if isinstance(model, JudgeSettings)}


def applied_rates(folder: RunFolder, iteration: int) -> dict[str, Price] | None:
    """The prices that an iteration's `cost.json` was computed with; None where it has none that can be read."""
    path = folder.iteration(iteration).cost
    try:
        return _parsed(read_json(path)["prices"]) if path.is_file() else None
    except (KeyError, TypeError, ValueError, AttributeError, DataError):
        return None


def sealed_rates(folder: RunFolder, seal: Mapping[str, Any]) -> dict[int, dict[str, Price]]:
    """The prices of each iteration as the seal says; where a start was killed before it sealed them, as `cost.json` says."""
    rates = {number: applied_rates(folder, number) or {} for number in folder.iterations()}
    return {**rates, **{int(number): _parsed(prices) for number, prices in seal.get("prices", {}).items()}}


def is_priced_as_sealed(config: RunConfig, seal: Mapping[str, Any]) -> bool:
    """Whether the prices of a run's configuration are those of its last sealed iteration."""
    sealed = seal.get("prices", {})
    last = max(sealed, key=int, default=None)
    return last is None or are_same_rates(_parsed(sealed[last]), configured_rates(config))


def are_same_rates(old: Mapping[str, Price], new: Mapping[str, Price]) -> bool:
    """Whether all models have the same prices, wherever these come from."""
    before, after = ({name: rates.tiers for name, rates in prices.items() if rates.tiers} for prices in (old, new))
    return before == after


def _parsed(prices: Mapping[str, Any]) -> dict[str, Price]:
    return {name: Price.of_document(document) for name, document in prices.items()}


def budget_problems(judge: Any, embedder: Any, transport: AnyTransport, origins: ConfigOrigins) -> list[Problem]:
    """What is wrong with the budgets of a judge and an embedder.

    A budget of a judge covers its embedder too: both are what measuring costs. An embedder has one of its own only where the
    judge costs nothing. `transport` is how the judge is asked: its replies have their own prices.
    """
    if (owner := budget_owner(judge, embedder)) is None:
        return []
    judges = {"judge": judge}
    if isinstance(judge, JurySettings):
        judges = {f"jury.members.{name}": member for name, member in judge.members.items()}
    models = {**judges, "embedder": embedder}
    paid = {key: model for key, model in models.items() if isinstance(model, JudgeSettings)}
    problems, account, budget = [], f"{owner.section}.budget", owner.budget
    if "embedder" in paid and embedder is not owner and embedder.budget.is_set:
        key = next(f"embedder.budget.{part}" for part in PARTS if getattr(embedder.budget, part) is not None)
        expected = f"no budget: {account} covers the calls of both"
        problems.append(Problem(origins.location(key), key, "a second budget", expected, f"set {account} alone"))
    for section, model in paid.items():
        is_embedder = section == "embedder"
        rates = None if budget.usd is None else rates_for(model) if is_embedder else transport.rates(model)
        if rates is not None and not rates.tiers:
            key, expected = (
                f"{(not is_embedder and transport.prices_of) or section}.prices",
                f"a known price, with {account}.usd",
            )
            fix = f"{key}={{input: 0.15, output: 0.60}}, in US dollars per million tokens; or limit {account}.tokens"
            problems.append(Problem(origins.location(key), key, rates.reason, expected, fix))
        if (budget.usd is not None or budget.tokens is not None) and not is_embedder and model.max_tokens is None:
            key = f"{section}.max_tokens"
            reason = "null: a reply may be of any length, and what it may cost cannot be held"
            fix = f"{key}=2048, or {account}.calls alone"
            problems.append(Problem(origins.location(key), key, reason, f"a number, with {account}", fix))
    return problems


def budget_owner(judge: Any, embedder: Any) -> JudgeSettings | JurySettings | None:
    """Whose `budget` limits what measuring costs: the judge, the jury, or the embedder where the judge costs nothing; None: nothing costs."""
    return next((section for section in (judge, embedder) if isinstance(section, JudgeSettings | JurySettings)), None)
