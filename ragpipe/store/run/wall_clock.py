"""The wall-clock time of judging an iteration, summed over all starts of the run.

No figure is computed from the file and no seal covers it: two equal runs differ in it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from ragpipe.core.errors import OutputError
from ragpipe.store.files.atomic import atomic_write, json_bytes

EVERY_S = 5.0
"""Seconds between two writes: the most that a killed start can lose."""


class WallClock:
    """Runs while an iteration is judged. `seconds` includes, from the file, all earlier starts."""

    def __init__(self, path: Path):
        self._path = path
        self._before, self._started = judged_seconds(path) or 0.0, time.monotonic()
        self._next = self._started + EVERY_S

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def tick(self) -> None:
        """Write the file when EVERY_S seconds have passed since the last time. Call it often."""
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the file. When that fails, the time is lost and the run goes on."""
        self._next = time.monotonic() + EVERY_S
        try:
            atomic_write(self._path, json_bytes({"judging_s": round(self.seconds, 3)}) + b"\n", durable=False)
        except OutputError:
            return


def judged_seconds(path: Path) -> float | None:
    """The seconds in the file; None where it is missing or unreadable."""
    try:
        seconds = json.loads(path.read_bytes())["judging_s"] if not path.is_symlink() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        return None
    return float(seconds)
