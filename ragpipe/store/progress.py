"""`.progress.json`: how far an iteration is, and what the process that works on it does, for people and other programs.

A view of the journal and of the process's counts. No run reads it back; `read_progress` is for those who watch one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError, to_json

from ragpipe.core.digest import sha256
from ragpipe.core.errors import OutputError
from ragpipe.core.sample import CaseKey
from ragpipe.store.files import atomic_write, is_disk_full, json_bytes, open_regular
from ragpipe.store.processes import Process

SHOWN = 500
"""Finished cases that are shown, the newest."""
MOST_BYTES = 64 * 1024
"""Of the file where more cases are finished: with every entry each write would take longer than the last, and the view lag behind."""
JOURNAL = "journal.jsonl"  # has every finished case, as long as cases are judged
EVERY_S = 0.5
"""Seconds between two writes: a finished case is in the file within one."""


class FinishedCase(NamedTuple):
    """A case with its result as plain JSON, and when it was finished: ISO 8601, UTC."""

    case: CaseKey
    question: str
    result: Any
    completed_at: str


def _shown(finished: FinishedCase) -> dict[str, Any]:
    case = finished.case
    return {
        "hash": sha256(list(case)),
        "queryLogId": case.sample_id,
        "method": case.method,
        "repeat": case.repeat,
        "question": finished.question,
        "completedAt": finished.completed_at.replace("+00:00", "Z"),
        "result": finished.result,
    }


class ProgressView:
    """The view of one iteration.

    `total` counts cases. Up to 500 finished cases all entries are shown; then the newest 500 that 64 KB hold, and the journal's
    name. A view that cannot be written is left; only a full disk is an error, because the rest cannot be written then either.
    Threads may call it.
    """

    def __init__(self, path: Path, *, name: str, iteration: int, total: int):
        self.path, self.name, self.iteration, self.total = Path(path), name, iteration, total
        self._entries: deque[FinishedCase] = deque(maxlen=SHOWN)
        self._known: set[int] = set()  # hashes of their names
        self._updated = iso_time()
        self._state: ProgressState | None = None
        self._next = 0.0
        self._stale = True
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def add_all(self, cases: Sequence[FinishedCase]) -> None:
        """Note finished cases. A case added again (on resume, on a retry) replaces its entry.

        Writes the file at most twice a second: now, or when it is due.
        """
        if not cases:
            return
        with self._lock:
            for finished in cases:
                name = hash(finished.case)
                if name in self._known:
                    self._entries = deque((entry for entry in self._entries if entry.case != finished.case), SHOWN)
                self._known.add(name)
                self._entries.append(finished)
            self._updated = self._entries[-1].completed_at.replace("+00:00", "Z")
            self._stale = True
            wait = self._next - time.monotonic()
            if wait <= 0:
                self._write(durable=False)
            elif self._timer is None:  # the case may be the last one for minutes
                self._timer = threading.Timer(wait, self._write_late)
                self._timer.daemon = True
                self._timer.start()

    def _write_late(self) -> None:
        with self._lock, suppress(OutputError):
            self._timer = None
            if self._stale:
                self._write(durable=False)

    def flush(self) -> None:
        """Write the last state, unless the file already has it."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
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
        done = len(self._known)
        statistics = {
            "totalQuestions": self.total,
            "completedQuestions": done,
            "pendingQuestions": max(0, self.total - done),
            "completionPercentage": round(100 * done / self.total, 1) if self.total else 100.0,
        }
        head = {
            "testSetName": self.name,
            "iterationNumber": self.iteration,
            "lastUpdated": self._updated,
            "statistics": statistics,
        }
        state = {} if self._state is None else {"state": self._state.as_json()}
        if done <= SHOWN:
            return {**head, **state, "entries": [*map(_shown, self._entries)]}
        head |= {**state, "journal": JOURNAL, "entries": []}
        left, newest = MOST_BYTES - len(_indented(head)), list[dict[str, Any]]()
        for entry in map(_shown, reversed(self._entries)):
            if (left := left - len(_indented({"entries": [entry]}))) < 0:
                break
            newest.append(entry)
        return {**head, "entries": newest[::-1]}

    def _write(self, *, durable: bool) -> None:
        try:
            data = _indented(self.content())
            if not (durable and _has_content(self.path, data)):
                atomic_write(self.path, data, durable=durable)
            self._stale = False
        except OutputError as error:
            if is_disk_full(error):
                raise
        self._next = time.monotonic() + EVERY_S


def _indented(content: Mapping[str, Any]) -> bytes:
    try:
        return to_json(content, indent=2) + b"\n"  # ten times as fast as `json` with an indent
    except PydanticSerializationError:  # a lone surrogate
        return json_bytes(content, indent=2) + b"\n"


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
        if not path.with_name(JOURNAL).exists():
            content.pop("journal", None)
        content["state"] = replace(state, phase=phase, updated_at=iso_time(), seconds_left=None).as_json()
        atomic_write(path, _indented(content), durable=False)


Phase = Literal["collecting", "judging", "scoring", "done"]
SILENT_S = 30.0
"""Seconds without a word after which a process is taken for stalled: it writes every one or two."""
NUMBER_MAX = 2**53
"""No number of a state is larger: up to here a float counts exactly."""


_IN_RANGE = Field(ge=0, le=NUMBER_MAX, allow_inf_nan=False)
Count = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Tenths = Annotated[float, _IN_RANGE, PlainSerializer(lambda number: round(number, 1))]
Thousandths = Annotated[float, _IN_RANGE, PlainSerializer(lambda number: round(number, 3))]
Dollars = Annotated[float, _IN_RANGE, PlainSerializer(lambda number: round(number, 8))]


def _checked_time(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} without a time zone")
    try:
        moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error
    return text


Time = Annotated[str, AfterValidator(_checked_time)]
_CAMEL = ConfigDict(alias_generator=to_camel)


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """Cases (of a collection: outputs). `resumed` of the `done` ones were finished by an earlier start."""

    total: Count
    done: Count = 0
    resumed: Count = 0


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Requests of this process for these cases, counted where they are sent. `sent` is the sum of `answered`, `failed` and
    `in_flight`; retries count each time, stored replies never. `waiting` calls hold their next request back."""

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    sent: Count = 0
    answered: Count = 0
    in_flight: Count = 0
    waiting: Count = 0
    failed: Count = 0


@dataclass(frozen=True, slots=True)
class TextCounts:
    """Texts for an embedding model in this process."""

    embedded: Count = 0
    waiting: Count = 0


@dataclass(frozen=True, slots=True)
class LimitFigures:
    """What the limits of the judge's server did to the requests of this process.

    `refused` requests met its limit of the rate (status 429), `overloaded` ones its limit of concurrency (503, 529, or a 429 that
    says so). `requests_per_minute` and `tokens_per_minute` are the limits in force, by the user or by the server's headers;
    `learned_per_minute` the requests per minute, and `width` the requests in flight, that refusals have taught. None: no such limit.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    refused: Count = 0
    overloaded: Count = 0
    requests_per_minute: Tenths | None = None
    tokens_per_minute: Tenths | None = None
    learned_per_minute: Tenths | None = None
    width: Count | None = None


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a process is.

    Attributes:
        phase: what it does; `done` once the iteration is scored.
        process: who it is.
        started_at: when this start began the phase `collecting` or `judging`; ISO 8601, UTC.
        updated_at: when this was true.
        cases: cases, or outputs while they are collected.
        calls: requests.
        texts: texts embedded, or read by a detector, in the process.
        waiting_until: until when a server's limits hold the waiting calls back; None where none waits.
        waiting_for: why, in a word or two (`429`, `no answer`, `rpm`, `overload`); empty where none waits.
        rate_per_second: answered requests per second since `started_at`.
        tokens: tokens of all answers that the run has paid for, also in earlier starts.
        usd: their price in US dollars; None where one is not known.
        errors: cases with an error.
        error_groups: errors by kind; a case can have several.
        seconds_left: an estimate; None where nothing tells.
        command: the words of this start (`store.processes.started_command`); empty where they are not known.
        limits: what the judge's limits did.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    phase: Phase
    process: Process
    started_at: Time
    updated_at: Time
    cases: CaseCounts
    calls: CallCounts = CallCounts()
    texts: TextCounts = TextCounts()
    waiting_until: Time | None = None
    waiting_for: str = ""
    rate_per_second: Thousandths = 0.0
    tokens: Count = 0
    usd: Dollars | None = 0.0
    errors: Count = 0
    error_groups: Mapping[str, Count] = field(default_factory=dict)
    seconds_left: Tenths | None = None
    command: str = ""
    limits: LimitFigures = LimitFigures()

    def silent_s(self, now: float | None = None) -> float:
        """Seconds since `updated_at`; `now` is in seconds of `time.time`."""
        return (time.time() if now is None else now) - datetime.fromisoformat(self.updated_at).timestamp()

    def as_json(self) -> dict[str, Any]:
        """The value of the key `state`."""
        state = _state_adapter().dump_python(self, by_alias=True, exclude={"process"})
        me = self.process
        return {"phase": state.pop("phase"), "pid": me.pid, "host": me.host, "processMark": me.mark, **state}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProgressState:
        """The state in the value of the key `state`. Raises KeyError, TypeError or ValueError for any other content: also for a
        number that is negative, not finite or beyond `NUMBER_MAX`, and for a time that UTC does not have."""
        process = {"host": data["host"], "pid": data["pid"], "mark": data["processMark"]}
        return _state_adapter().validate_python({**data, "process": process})


@cache
def _state_adapter() -> TypeAdapter[ProgressState]:
    return TypeAdapter(ProgressState)


def iso_time(seconds: float | None = None) -> str:
    """A time of `time.time`, by default now, as `2026-01-24T14:30:00.000Z`."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


STATE_EVERY_S = 5.0
"""Seconds between two writes: the most that a killed start can lose."""


class WallClock:
    """Runs while an iteration is judged. `seconds` includes, from the file, all earlier starts."""

    def __init__(self, path: Path):
        self._path = path
        self._before, self._started = judged_seconds(path) or 0.0, time.monotonic()
        self._next = self._started + STATE_EVERY_S

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def tick(self) -> None:
        """Write the file when it is due. Call it often."""
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the file. When that fails, the time is lost and the run goes on."""
        self._next = time.monotonic() + STATE_EVERY_S
        with suppress(OutputError):
            atomic_write(self._path, json_bytes({"judging_s": round(self.seconds, 3)}) + b"\n", durable=False)


def judged_seconds(path: Path) -> float | None:
    """The seconds in the file; None where it is missing or unreadable."""
    try:
        seconds = json.loads(path.read_bytes())["judging_s"] if not path.is_symlink() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        return None
    return float(seconds)
