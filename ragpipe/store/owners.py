"""The processes that have a call store open, and whether they are alive."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.errors import FolderLocked
from ragpipe.store.call_rows import StoreConnection, stored_keys
from ragpipe.store.processes import Process, is_alive, is_stopped, this_process

_CLAIM = (
    "SELECT c.owner, o.host, o.pid, o.mark, o.beat, o.run_id FROM claims c LEFT JOIN owners o ON o.id = c.owner WHERE c.key = ?"
)
_CLOSED: set[str] = set()
"""Closed stores of this process: on a full disk their claims stay in the file, and no longer count."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that opened the store. `host` is None where nothing more is known of it."""

    id: str
    host: str | None
    pid: int
    mark: str
    beat: int
    run_id: str

    @property
    def process(self) -> Process:
        return Process(self.host or "", self.pid, self.mark)

    @property
    def closed(self) -> bool:
        """Whether it has closed the store, whatever its process does."""
        return self.host is None or self.id in _CLOSED

    def __str__(self) -> str:
        stopped = f", which is stopped (`kill -CONT {self.pid}` lets it go on)" if is_stopped(self.process) else ""
        return f"process {self.pid} on {self.host} (run {self.run_id}){stopped}"


class Owners:
    """The owners as one connection sees them; call all methods in a transaction. `me` is its own id; after `silent_after_s`
    with the same beat an owner counts as dead, where its process cannot be checked."""

    def __init__(self, db: StoreConnection, *, run_id: str, silent_after_s: float):
        self._db, self._run_id, self._silent_after_s = db, run_id, silent_after_s
        self.me = uuid.uuid4().hex
        self._seen: dict[str, tuple[int, float]] = {}  # owner -> its beat, and when it was first seen so

    def enter(self) -> None:
        """Register this store; remove the owners whose process has ended."""
        for owner in every_owner(self._db):
            if is_alive(owner.process) is False:
                self._db.execute("DELETE FROM claims WHERE owner = ?", (owner.id,))
                self._db.execute("DELETE FROM owners WHERE id = ?", (owner.id,))
        me = this_process()
        self._db.execute("INSERT INTO owners VALUES (?, ?, ?, ?, 0, ?)", (self.me, me.host, me.pid, me.mark, self._run_id))

    def beat(self) -> None:
        self._db.execute("UPDATE owners SET beat = beat + 1 WHERE id = ?", (self.me,))

    def leave(self) -> None:
        self._db.execute("DELETE FROM claims WHERE owner = ?", (self.me,))
        self._db.execute("DELETE FROM owners WHERE id = ?", (self.me,))

    def closed(self) -> None:
        """Mark this store as closed, even where that could not be written."""
        _CLOSED.add(self.me)

    def claim(self, keys: Sequence[bytes]) -> list[bool]:
        """Claim keys; False for one while another store, or another task of this one, holds its claim."""
        held = stored_keys(self._db, "claims", keys)
        free = [key for key in dict.fromkeys(keys) if key not in held]
        self._db.executemany("INSERT INTO claims VALUES (?, ?)", [(key, self.me) for key in free])
        unanswered = dict.fromkeys(free, True)  # a key that stands there twice is granted once
        return [self._take_over(key) if key in held else unanswered.pop(key, False) for key in keys]

    def _take_over(self, key: bytes) -> bool:
        """Take over the claim of an owner that is dead; False where it is not."""
        holder = self.holder(key)
        if holder is not None and (holder.id == self.me or not self._is_dead(holder)):
            return False
        self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (key, self.me))
        return True

    def release(self, key: bytes) -> bool:
        """Free a claim; False when this store did not hold it, or no longer."""
        return bool(self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self.me)).rowcount)

    def end_claim(self, key: bytes) -> None:
        """End the claim on a key, whoever holds it: its reply is there."""
        self._db.execute("DELETE FROM claims WHERE key = ?", (key,))

    def holder(self, key: bytes) -> Owner | None:
        row = self._db.execute(_CLAIM, (key,)).fetchone()
        return _owner(row) if row else None

    def _is_dead(self, owner: Owner) -> bool:
        if owner.closed:
            return True
        alive = is_alive(owner.process)
        if alive is False:
            return True
        now = time.monotonic()
        seen, since = self._seen.get(owner.id, (None, now))
        if seen != owner.beat or (alive and is_stopped(owner.process)):  # a stopped process cannot beat, and may continue
            since = now
        self._seen[owner.id] = (owner.beat, since)
        return now - since > self._silent_after_s


def every_owner(db: StoreConnection) -> list[Owner]:
    """The processes that the store knows, those that ended without a word included."""
    return [_owner(row) for row in db.execute("SELECT id, host, pid, mark, beat, run_id FROM owners").fetchall()]


def _owner(row: tuple[Any, ...]) -> Owner:
    """The owner of a row; an unknown one where the row has cells that no store wrote."""
    owner = Owner(*row)
    kinds = (owner.host, str), (owner.pid, int), (owner.mark, str), (owner.beat, int), (owner.run_id, str)
    return owner if all(type(value) is kind for value, kind in kinds) else Owner(str(row[0]), None, 0, "", 0, "")


def owner_state(owner: Owner) -> str:
    """`alive`, `dead`, or `unknown` for a process of another host."""
    return "dead" if owner.closed else {True: "alive", False: "dead", None: "unknown"}[is_alive(owner.process)]


def refuse_if_in_use(place: str, owners: Callable[[], Sequence[Owner]], *, silent_after_s: float) -> None:
    """Raises FolderLocked when a live process has this store open, even one that asks nothing at the moment.

    `owners` reads who has it open. A process on another host is watched for `silent_after_s`: it is alive when its beat changes.
    """
    current = owners()
    living = [str(owner) for owner in current if owner_state(owner) == "alive"]
    unknown = {owner.id: owner.beat for owner in current if owner_state(owner) == "unknown"}
    end = time.monotonic() + silent_after_s
    while unknown and not living and time.monotonic() < end:
        time.sleep(min(1.0, silent_after_s))
        living += [str(owner) for owner in owners() if unknown.get(owner.id, owner.beat) != owner.beat]
    if living:
        raise FolderLocked(f"the call store {place} is in use by {living[0]}: wait for its end")
