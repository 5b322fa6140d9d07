"""`.progress.json`: how far an iteration is, and what the process that works on it does, for people and other programs.

A view of the journal and of the process's counts. No run reads it back; `read_progress` is for those who watch one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ragpipe.core.digest import sha256
from ragpipe.core.digest_table import DigestTable, name_digest
from ragpipe.core.errors import OutputError
from ragpipe.schema.sample import CaseKey
from ragpipe.store.files.atomic import atomic_write, is_disk_full, json_bytes
from ragpipe.store.files.filesystem import open_regular
from ragpipe.store.run.progress_state import Phase, ProgressState, iso_time

ALL_UP_TO = 1000
LAST = 100
EVERY_S = 1.0
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
SHARE = 0.05
"""The largest share of the time that is spent on writing the view."""


class FinishedCase(NamedTuple):
    """A case with its result as plain JSON, and when it was finished: ISO 8601; None: now."""

    case: CaseKey
    question: str
    result: Any
    completed_at: str | None = None


@dataclass(frozen=True)
class _Entry:
    """A finished case as it is shown."""

    finished: FinishedCase

    @cached_property
    def values(self) -> dict[str, Any]:
        return _shown(self.finished)

    @cached_property
    def text(self) -> bytes:
        try:
            return _indented(self.values, "    ").encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate
            return b"    " + json_bytes(self.values, indent=2).replace(b"\n", b"\n    ")


def _indented(values: Mapping[str, Any], indent: str) -> str:
    """A JSON object as `json` writes it with an indent of two, for values that are plain or objects of plain values.

    Each value is encoded by itself: with an indent, `json` goes through the whole object in Python, ten times as slowly.
    """
    inner = f"{indent}  "
    lines = (
        f"{inner}{_encode(name)}: "
        + (_indented(value, inner).lstrip() if isinstance(value, Mapping) and value else _encode(value))
        for name, value in values.items()
    )
    return f"{indent}{{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _time(completed_at: str | None) -> str:
    return completed_at.replace("+00:00", "Z") if completed_at else iso_time()


def _shown(finished: FinishedCase) -> dict[str, Any]:
    """The entry of a case."""
    case = finished.case
    return {
        "hash": sha256(list(case)),
        "queryLogId": case.sample_id,
        "method": case.method,
        "repeat": case.repeat,
        "question": finished.question,
        "completedAt": finished.completed_at,
        "result": finished.result,
    }


class ProgressView:
    """The view of one iteration.

    `total` counts cases. Up to 1,000 finished cases all entries are shown, then the last 100 and the journal's name.
    `notices` says once that the view cannot be written; only a full disk is an error, because the rest cannot be
    written then either. Threads may call it.
    """

    def __init__(self, path: Path, *, name: str, iteration: int, total: int, journal: str = "journal.jsonl"):
        self.path, self.name, self.iteration, self.total, self.journal = Path(path), name, iteration, total, journal
        self.notices: list[str] = []
        self._entries: deque[_Entry] = deque()
        self._known = DigestTable()
        self._new = 0  # cases that are counted, and not known by name
        self._updated = iso_time()
        self._state: ProgressState | None = None
        self._next = 0.0
        self._stale = True
        self._lock = threading.RLock()

    def add(self, case: CaseKey, question: str, result: Any, *, completed_at: str | None = None) -> None:
        """Note one finished case: `add_all`."""
        self.add_all([FinishedCase(case, question, result, completed_at)])

    def add_all(self, cases: Sequence[FinishedCase]) -> None:
        """Note finished cases. A case added again (on resume, on a retry) replaces its entry.

        Writes the file when it is due: at most once a second, and never more than 5 % of the time.
        """
        if not cases:
            return
        with self._lock:
            for left, finished in enumerate(cases, 1 - len(cases)):
                if self._known.setdefault(name_digest(*map(str, finished.case))) is not None:
                    kept = (entry for entry in self._entries if entry.finished.case != finished.case)
                    self._entries = deque(kept)
                if -left < LAST or self._done <= ALL_UP_TO:  # the others would leave at once
                    self._append(finished)
            self._added()

    def add_new(self, count: int, last: Callable[[int], Iterable[FinishedCase]]) -> None:
        """Note finished cases of which none was noted before, nor is again: they are only counted.

        Args:
            count: how many there are, at least one.
            last: gives the last so many of them, in their order: those that are shown.
        """
        with self._lock:
            self._new += count
            for finished in last(count if self._done <= ALL_UP_TO else min(count, LAST)):
                self._append(finished)
            self._added()

    @property
    def _done(self) -> int:
        return self._new + len(self._known)

    def _append(self, finished: FinishedCase) -> None:
        self._entries.append(_Entry(finished._replace(completed_at=_time(finished.completed_at))))

    def _added(self) -> None:
        """Cases were noted: drop the entries that are not shown any more, and write the file when it is due."""
        if self._entries:
            self._updated = str(self._entries[-1].finished.completed_at)
        if self._done > ALL_UP_TO:
            while len(self._entries) > LAST:
                self._entries.popleft()
        self._stale = True
        if time.monotonic() >= self._next:
            self._write(durable=False)

    def flush(self) -> None:
        """Write the last state, unless the file already has it."""
        with self._lock:
            if self._stale:
                self._write(durable=True)

    def show(self, state: ProgressState, *, at_once: bool = False) -> None:
        """Note what the process does, and write the file when it is due; with `at_once` now. A full disk is left to
        others: it ends the run at the next case."""
        with self._lock, suppress(OutputError):
            self._state, self._stale = state, True
            if at_once or time.monotonic() >= self._next:
                self._write(durable=False)

    def content(self) -> dict[str, Any]:
        """The content of the file, in its documented form."""
        return {**self._summary(), "entries": [entry.values for entry in self._entries]}

    def _summary(self) -> dict[str, Any]:
        """The content without the entries."""
        done = self._done
        content: dict[str, Any] = {
            "testSetName": self.name,
            "iterationNumber": self.iteration,
            "lastUpdated": self._updated,
            "statistics": {
                "totalQuestions": self.total,
                "completedQuestions": done,
                "pendingQuestions": max(0, self.total - done),
                "completionPercentage": round(100 * done / self.total, 1) if self.total else 100.0,
            },
        }
        if self._state is not None:
            content["state"] = self._state.as_json()
        if done > ALL_UP_TO:
            content["journal"] = self.journal
        return content

    def _bytes(self) -> bytes:
        """The content as indented JSON, put together from the texts of the entries."""
        summary = json_bytes({**self._summary(), "entries": []}, indent=2)
        if not self._entries:
            return summary + b"\n"
        return summary.removesuffix(b"]\n}") + b"\n" + b",\n".join(e.text for e in self._entries) + b"\n  ]\n}\n"

    def _write(self, *, durable: bool) -> None:
        started = time.monotonic()
        try:
            data = self._bytes()
            if not (durable and _has_content(self.path, data)):
                atomic_write(self.path, data, durable=durable)
            self._stale = False
        except OutputError as error:
            if is_disk_full(error):
                raise
            if not self.notices:
                self.notices.append(f"the progress view is not up to date: {error}")
        ended = time.monotonic()
        self._next = ended + max(EVERY_S, (ended - started) / SHARE)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == data
    except OSError:
        return False


def read_progress(path: Path) -> ProgressState | None:
    """What the process that works on an iteration, or did last, says in its progress file. None where there is no such file, or
    none with a state that can be read. It was true at its `updated_at`."""
    try:
        return ProgressState.from_json(_content(path)["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _content(path: Path) -> dict[str, Any]:
    """The content of a progress file. Raises OSError, also for a link or a pipe, ValueError, RecursionError."""
    with open_regular(path) as file:
        content: dict[str, Any] = json.load(file)
    return content


def mark_phase(path: Path, phase: Phase) -> None:
    """Write into a progress file that its process is in another phase now. A file that cannot be read or written is left."""
    state = read_progress(path)
    if state is None:
        return
    with suppress(OSError, ValueError, OutputError):
        content = _content(path)
        content["state"] = replace(state, phase=phase, updated_at=iso_time(), seconds_left=None).as_json()
        atomic_write(path, json_bytes(content, indent=2) + b"\n", durable=False)
