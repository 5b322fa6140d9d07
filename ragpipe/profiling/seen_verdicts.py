"""What recorded verdicts of one name were, and the scale that they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragpipe.schema.sample import is_unreadable, several

_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 5.0), (0.0, 10.0), (0.0, 100.0))


@dataclass
class SeenVerdicts:
    """What the verdicts of one name were: `n` numbers from `low` to `high`, all of them true or false where `is_boolean`."""

    n: int = 0
    low: float = 0.0
    high: float = 0.0
    is_boolean: bool = True
    unreadable: int = 0

    def add(self, verdict: Any) -> None:
        """Take one verdict into account. Null, where none was given, counts for nothing."""
        if verdict is None:
            return
        if is_unreadable(verdict):
            self.unreadable += 1
            return
        value = float(verdict)
        self.low, self.high = (min(self.low, value), max(self.high, value)) if self.n else (value, value)
        self.is_boolean = self.is_boolean and isinstance(verdict, bool)
        self.n += 1

    def add_recorded(self, value: Any) -> None:
        """Take a recorded value into account, which may be several verdicts: their mean is neither true nor false."""
        verdicts = several(value)
        for verdict in [value] if verdicts is None else verdicts.values():
            self.add(verdict)
        self.is_boolean = self.is_boolean and verdicts is None

    @property
    def scale(self) -> tuple[float, float] | None:
        """The narrowest of 0-1, 1-5, 0-5, 0-10 and 0-100 that holds every value; None where none does: a count without a scale."""
        return next(((low, high) for low, high in _SCALES if low <= self.low and self.high <= high), None)
