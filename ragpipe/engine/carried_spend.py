"""What a run has paid when its folder may have been moved to a machine with another call store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragpipe.schema.usage import Usage
from ragpipe.store.calls.call_database import StorePlace
from ragpipe.store.calls.spend import paid_by
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json
from ragpipe.store.run.seals import open_seal

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
