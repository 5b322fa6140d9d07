"""Who else uses a call store that is to be changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ragpipe.core.errors import FolderLocked
from ragpipe.store.calls.owners import Owner
from ragpipe.store.files.processes import is_alive


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
