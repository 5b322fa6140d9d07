"""What a process under way says of itself in `.progress.json`, under the key `state`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args

from ragpipe.core.errors import OutputError
from ragpipe.store.files.atomic import atomic_write, json_bytes
from ragpipe.store.files.processes import Process

Phase = Literal["collecting", "judging", "scoring", "done"]
SILENT_S = 30.0
"""Seconds without a word after which a process is taken for stalled: it writes every one or two."""
NUMBER_MAX = 2**53
"""No number of a state is larger: up to here a float counts exactly."""


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """Cases (of a collection: outputs). `resumed` of the `done` ones were finished by an earlier start."""

    total: int
    done: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Requests of this process for these cases, counted where they are sent. `sent` is the sum of `answered`, `failed` and
    `in_flight`; retries count each time, stored replies never. `waiting` calls hold their next request back."""

    sent: int = 0
    answered: int = 0
    in_flight: int = 0
    waiting: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class TextCounts:
    """Texts for an embedding model in this process."""

    embedded: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class LimitFigures:
    """What the limits of the judge's server did to the requests of this process.

    `refused` requests met its limit of the rate (status 429), `overloaded` ones its limit of concurrency (503, 529, or a 429 that
    says so). `requests_per_minute` and
    `tokens_per_minute` are the limits in force, by the user or by the server's headers; `learned_per_minute` the requests per
    minute, and `width` the requests in flight, that refusals have taught. None: no such limit.
    """

    refused: int = 0
    overloaded: int = 0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    learned_per_minute: float | None = None
    width: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The value of the key `limits`."""
        return {
            "refused": self.refused,
            "overloaded": self.overloaded,
            "requestsPerMinute": _rounded(self.requests_per_minute),
            "tokensPerMinute": _rounded(self.tokens_per_minute),
            "learnedPerMinute": _rounded(self.learned_per_minute),
            "width": self.width,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The figures in the value of the key `limits`. Raises KeyError, TypeError or ValueError for any other content."""

        def limit(name: str) -> float | None:
            return None if data[name] is None else _number(data[name])

        return cls(
            _count(data["refused"]),
            _count(data["overloaded"]),
            limit("requestsPerMinute"),
            limit("tokensPerMinute"),
            limit("learnedPerMinute"),
            None if data["width"] is None else _count(data["width"]),
        )


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
        tokens: tokens of all answers.
        usd: their price in US dollars; None where one is not known.
        errors: cases with an error.
        error_groups: errors by kind; a case can have several.
        seconds_left: an estimate; None where nothing tells.
        command: the words of this start (`store.files.processes.started_command`); empty where they are not known.
        limits: what the judge's limits did.
    """

    phase: Phase
    process: Process
    started_at: str
    updated_at: str
    cases: CaseCounts
    calls: CallCounts = CallCounts()
    texts: TextCounts = TextCounts()
    waiting_until: str | None = None
    waiting_for: str = ""
    rate_per_second: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0
    errors: int = 0
    error_groups: Mapping[str, int] = field(default_factory=dict)
    seconds_left: float | None = None
    command: str = ""
    limits: LimitFigures = LimitFigures()

    def silent_s(self, now: float | None = None) -> float:
        """Seconds since `updated_at`; `now` is in seconds of `time.time`."""
        return (time.time() if now is None else now) - datetime.fromisoformat(self.updated_at).timestamp()

    def as_json(self) -> dict[str, Any]:
        """The value of the key `state`."""
        calls = self.calls
        return {
            "phase": self.phase,
            "pid": self.process.pid,
            "host": self.process.host,
            "processMark": self.process.mark,
            "startedAt": self.started_at,
            "updatedAt": self.updated_at,
            "cases": {"total": self.cases.total, "done": self.cases.done, "resumed": self.cases.resumed},
            "calls": {
                "sent": calls.sent,
                "answered": calls.answered,
                "inFlight": calls.in_flight,
                "waiting": calls.waiting,
                "failed": calls.failed,
            },
            "texts": {"embedded": self.texts.embedded, "waiting": self.texts.waiting},
            "waitingUntil": self.waiting_until,
            "waitingFor": self.waiting_for,
            "ratePerSecond": round(self.rate_per_second, 3),
            "tokens": self.tokens,
            "usd": None if self.usd is None else round(self.usd, 8),
            "errors": self.errors,
            "errorGroups": dict(self.error_groups),
            "secondsLeft": None if self.seconds_left is None else round(self.seconds_left, 1),
            "command": self.command,
            "limits": self.limits.as_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The state in the value of the key `state`. Raises KeyError, TypeError or ValueError for any other content: also for a
        number that is negative, not finite or beyond `NUMBER_MAX`, and for a time that UTC does not have."""
        calls, texts, phase = data["calls"], data["texts"], data["phase"]
        if phase not in get_args(Phase):
            raise ValueError(f"phase {phase!r}")
        return cls(
            phase,
            Process(str(data["host"]), int(data["pid"]), str(data["processMark"])),
            _time(data["startedAt"]),
            _time(data["updatedAt"]),
            CaseCounts(*(_count(data["cases"][name]) for name in ("total", "done", "resumed"))),
            CallCounts(*(_count(calls[name]) for name in ("sent", "answered", "inFlight", "waiting", "failed"))),
            TextCounts(_count(texts["embedded"]), _count(texts["waiting"])),
            data["waitingUntil"] and _time(data["waitingUntil"]),
            str(data["waitingFor"]),
            _number(data["ratePerSecond"]),
            _count(data["tokens"]),
            None if data["usd"] is None else _number(data["usd"]),
            _count(data["errors"]),
            {str(kind): _count(count) for kind, count in data["errorGroups"].items()},
            None if data["secondsLeft"] is None else _number(data["secondsLeft"]),
            str(data["command"]),
            LimitFigures.from_json(data["limits"]),
        )


def iso_time(seconds: float | None = None) -> str:
    """A time of `time.time`, by default now, as `2026-01-24T14:30:00.000Z`."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} without a time zone")
    try:
        moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error
    return text


def _count(value: Any) -> int:
    return int(_number(value))


def _number(value: Any) -> float:
    """A number that can be counted, timed or paid; what is compared is never NaN."""
    if not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r} is no count")
    return float(value)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


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
