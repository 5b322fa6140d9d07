"""The processes that use a row: each shows at every beat that it is alive, and what it left behind is freed when it is dead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragpipe.store.files.processes import Process, is_alive
from ragpipe.store.limits.limit_rows import Moment

SILENT_S = 15.0
"""Seconds without a beat after which an owner is dead, where its process cannot be looked at."""

IsAlive = Callable[[Process], bool | None]


@dataclass(frozen=True, slots=True)
class RowOwner:
    """One process that has rows open: a name that no other has, and the process."""

    id: str
    process: Process
    is_alive: IsAlive = is_alive

    def beat(self, moment: Moment) -> dict[str, Any]:
        """What a row says of this owner: its process, and that it is alive now."""
        return {**asdict(self.process), "at": moment.seconds}

    def dead(self, owners: Mapping[str, Mapping[str, Any]], moment: Moment, *, same_clock: bool) -> list[str]:
        """The owners in a row that are dead: their process has ended, or the clock has run for too long without a beat.

        Args:
            owners: what the row says of its owners.
            moment: now.
            same_clock: whether the row was written by the same clock; if not, nobody of it is left.
        """
        others = {name: values for name, values in owners.items() if name != self.id}
        return [name for name, values in others.items() if not same_clock or self._is_dead(values, moment)]

    @staticmethod
    def shift(owners: Mapping[str, dict[str, Any]], seconds: float) -> None:
        """Move the signs of life in a row to a clock that is so many seconds ahead."""
        for values in owners.values():
            values["at"] += seconds

    def _is_dead(self, values: Mapping[str, Any], moment: Moment) -> bool:
        process = Process(values["host"], values["pid"], values["mark"])
        return moment.seconds - values["at"] > SILENT_S or self.is_alive(process) is False
