"""What a task over a run itself adds to what the run paid: its folder may have travelled, and its call store not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragpipe.reports.run_data import read_json
from ragpipe.store.calls.spend import TOKENS, paid_by
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.seals import open_seal

NOTE = ".paid.json"
"""Beside an iteration's tables while it is judged again: what was paid before. A start after a killed one counts from there."""
_COUNTS = ("calls", "tries", *TOKENS, "tries_without_price", "tries_without_usage")


class CarriedSpend:
    """The bill of a run's own processes, iteration by iteration: what its folder says, and what the call store of this
    place gained since."""

    def __init__(self, folder: RunFolder, store: Path, run_id: str):
        self._folder, self._store, self._run_id = folder, store, run_id

    def begin(self, iteration: int) -> None:
        """Note what was paid before the iteration is judged again, unless a start that was killed did."""
        if not (note := self._note(iteration)).is_file():
            json_unless_same(note, self._before(iteration))

    def of(self, iteration: int) -> Mapping[str, Any]:
        """As `paid_by`, with what the folder's former processes paid elsewhere."""
        note = self._note(iteration)
        before = read_json(note) if note.is_file() else self._before(iteration)
        now = paid_by(self._store, self._run_id, iteration)
        if before["folder"] is None:
            return now
        gained = _summed(now, before["store"], sign=-1)
        whole = _summed(before["folder"], gained)
        # the store that the run was made with holds all of it, also what a killed start paid: it never holds too much
        return now if now["tries"] >= whole["tries"] else whole

    def end(self) -> None:
        """The run is sealed: its folder says what was paid."""
        for iteration in self._folder.iterations():
            self._note(iteration).unlink(missing_ok=True)

    def _before(self, iteration: int) -> dict[str, Any]:
        return {"folder": self._said(iteration), "store": paid_by(self._store, self._run_id, iteration)}

    def _said(self, iteration: int) -> dict[str, Any] | None:
        cost = self._folder.iteration(iteration).cost
        if cost.is_file():
            found: dict[str, Any] = read_json(cost)["spent"]
            return found
        try:
            seal = open_seal(self._folder.seal) or {}
        except ValueError:
            return None
        sealed: dict[str, Any] | None = seal.get("spent", {}).get(str(iteration))
        return sealed

    def _note(self, iteration: int) -> Path:
        return self._folder.iteration(iteration).root / NOTE


def _summed(one: Mapping[str, Any], other: Mapping[str, Any], *, sign: int = 1) -> dict[str, Any]:
    """Two bills together, or with `sign` -1 the first without the second. `usd` is None where a price is not known."""
    found: dict[str, Any] = {name: max(0, one.get(name, 0) + sign * other.get(name, 0)) for name in _COUNTS}
    known = max(0.0, one.get("usd_known", 0.0) + sign * other.get("usd_known", 0.0))
    return {**found, "usd": None if found["tries_without_price"] else known, "usd_known": known}
