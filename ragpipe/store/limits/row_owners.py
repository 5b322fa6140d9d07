"""The processes that use a row: each shows at every beat that it is alive, and what it left behind is freed when it is dead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragpipe.store.files.processes import Process, is_alive
from ragpipe.store.limits.limit_rows import Moment

SILENT_S = 15.0
"""Seconds without a beat after which an owner is dead, where nothing else says whether its process lives."""
_GAP_S = 2.0
"""How much of the time in which nobody gave a sign of life counts as the silence of each. Whoever has requests under way gives one as
often: a longer gap says that nobody could write, or nobody was there."""
_CLOSED: set[str] = set()
"""Owners of this process that have ended. Where that could not be written, they still stand in rows."""

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

    def dead(
        self, owners: Mapping[str, Mapping[str, Any]], moment: Moment, *, same_clock: bool, may_be_silent: bool
    ) -> list[str]:
        """The owners in a row that are dead: their process has ended, or the clock has run for too long without a beat.

        Args:
            owners: what the row says of its owners, after `catch_up`.
            moment: now.
            same_clock: whether the row was written by the same clock; if not, nobody of it is left.
            may_be_silent: whether a process that is known to live keeps what it has however long it is silent (stopped, or its way
                to the rows is cut). What may be billed stays its own; what it only keeps from others does not.
        """
        others = {name: values for name, values in owners.items() if name != self.id}
        return [
            name
            for name, values in others.items()
            if not same_clock or name in _CLOSED or self._is_dead(values, moment, may_be_silent)
        ]

    def close(self) -> None:
        """This owner has ended, whatever rows say of it and although its process goes on."""
        _CLOSED.add(self.id)

    @staticmethod
    def catch_up(owners: Mapping[str, dict[str, Any]], moment: Moment) -> None:
        """Move the signs of life in a row to the clock of now, where it was set back, and past the time in which nobody gave one.

        After an outage all are silent, and the first one back must not take the others for dead. But a little of such a time counts,
        so that one who only comes now and then does not keep the dead alive for ever.
        """
        passed = moment.seconds - max((values["at"] for values in owners.values()), default=moment.seconds)
        RowOwner.shift(owners, min(passed, 0.0) + max(passed - _GAP_S, 0.0))

    @staticmethod
    def shift(owners: Mapping[str, dict[str, Any]], seconds: float) -> None:
        """Move the signs of life in a row to a clock that is so many seconds ahead."""
        for values in owners.values():
            values["at"] += seconds

    def _is_dead(self, values: Mapping[str, Any], moment: Moment, may_be_silent: bool) -> bool:
        process = Process(values["host"], values["pid"], values["mark"])
        alive = self.is_alive(process)
        if alive is False:
            return True
        # Without a mark a living process may be another one, which has the pid again.
        is_proved = alive is True and process.mark != ""
        return moment.seconds - values["at"] > SILENT_S and not (is_proved and may_be_silent)
