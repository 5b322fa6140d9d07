"""How long an iteration has been judged, by the clock on the wall: all starts of it together.

The file says how a run went, not what it found: no figure rests on it, no seal holds it, and two equal runs differ in it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from ragpipe.core.errors import OutputError
from ragpipe.store.files.atomic import atomic_write, json_bytes

EVERY_S = 5.0
"""What a start that is killed can lose."""


class WallClock:
    """Runs while an iteration is judged. `seconds` are those of this start and, by the file, of all starts before it."""

    def __init__(self, path: Path):
        self._path = path
        self._before, self._started = judged_seconds(path) or 0.0, time.monotonic()
        self._next = self._started + EVERY_S

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def tick(self) -> None:
        """To be called now and then; writes the file at most every EVERY_S seconds."""
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write down how long it has been. A file that cannot be written costs the time, not the run."""
        self._next = time.monotonic() + EVERY_S
        try:
            atomic_write(self._path, json_bytes({"judging_s": round(self.seconds, 3)}) + b"\n", durable=False)
        except OutputError:
            return


def judged_seconds(path: Path) -> float | None:
    """The seconds that the file says; None where there is none, or nothing that can be read."""
    try:
        found = json.loads(path.read_bytes())["judging_s"] if not path.is_symlink() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found >= 0 else None
