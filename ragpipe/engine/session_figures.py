"""What the sessions of worker processes have asked and paid, as plain data, and its sum shown by the session of their driver.

These are figures for the progress: a worker that is killed takes the last half second of them with it. What a run has paid is read
from the ledger of the call store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragpipe.judging.limits.attempts import AttemptRunner
from ragpipe.judging.limits.budget import Budget, BudgetUsedUp
from ragpipe.judging.limits.traffic import Hold, Traffic
from ragpipe.judging.session import JudgeSession
from ragpipe.schema.usage import Usage

_COUNTS = ("sent", "answered", "failed", "refusals", "overloads", "waiting", "answer_seconds")


def session_figures(session: JudgeSession) -> dict[str, Any]:
    """The figures of a session: per server its requests, and what was paid. Times are seconds from now."""
    now = time.monotonic()
    return {
        "servers": [_server_figures(attempts, now) for attempts in _servers(session)],
        "paid": [each.usage.spend.as_json() for each in (session, *session.colleagues)],
        "used_up": _used_up(session.budget),
    }


def show_figures(session: JudgeSession, workers: Iterable[Mapping[str, Any]]) -> None:
    """Let a session that asks nothing itself show the sum of what workers have asked and paid."""
    figures, now = list(workers), time.monotonic()
    for attempts, servers in zip(
        _servers(session), zip(*(each["servers"] for each in figures), strict=True), strict=False
    ):
        _show_traffic(attempts.traffic, servers, now)
        holds = [server["hold"] for server in servers if server["hold"] is not None]
        attempts.hold_elsewhere = Hold(now + max(holds)[0], max(holds)[1]) if holds else None
    for place, each in enumerate((session, *session.colleagues)):
        each.usage.spend = Usage.sum(Usage.from_json(worker["paid"][place]) for worker in figures)
    used_up = next((worker["used_up"] for worker in figures if worker["used_up"] is not None), None)
    if session.budget is not None and used_up is not None:
        session.budget.used_up = BudgetUsedUp(used_up[0], tuple(used_up[1]))


def without_open_calls(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a worker that has ended: its calls in flight have failed, and none waits."""
    servers = [
        {**server, "failed": server["sent"] - server["answered"], "waiting": 0, "hold": None}
        for server in figures["servers"]
    ]
    return {**figures, "servers": servers}


def _used_up(budget: Budget | None) -> list[Any] | None:
    """Why the budget admits nothing more, with the words that raise it; None as long as it does."""
    return None if budget is None or budget.used_up is None else [str(budget.used_up), budget.used_up.raised]


def _servers(session: JudgeSession) -> list[AttemptRunner]:
    return [*session.asking_attempts(), *session.child_attempts()]


def _server_figures(attempts: AttemptRunner, now: float) -> dict[str, Any]:
    traffic, hold = attempts.traffic, attempts.hold()
    return {
        **{name: getattr(traffic, name) for name in _COUNTS},
        "first_answer": None if traffic.first_answer is None else traffic.first_answer - now,
        "last_answer": None if traffic.last_answer is None else traffic.last_answer - now,
        "hold": None if hold is None else [hold.until - now, hold.reason],
    }


def _show_traffic(traffic: Traffic, servers: Sequence[Mapping[str, Any]], now: float) -> None:
    for name in _COUNTS:
        setattr(traffic, name, sum(server[name] for server in servers))
    firsts = [server["first_answer"] for server in servers if server["first_answer"] is not None]
    lasts = [server["last_answer"] for server in servers if server["last_answer"] is not None]
    traffic.first_answer = now + min(firsts) if firsts else None
    traffic.last_answer = now + max(lasts) if lasts else None
