"""The state of work under way, from its counters: what the terminal and `.progress.json` show."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.core.usage import Usage
from ragpipe.judge.attempts import AttemptRunner
from ragpipe.judge.session import JudgeSession
from ragpipe.store.processes import started_command, this_process
from ragpipe.store.progress import CallCounts, CaseCounts, LimitFigures, Phase, ProgressState, TextCounts, iso_time


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What is done of a piece of work: cases, the failed ones, and how often each kind of error occurred."""

    done: int
    resumed: int = 0
    errors: int = 0
    error_groups: Mapping[str, int] = field(default_factory=dict)


class WorkMeter:
    """Reads the counters of some work over `total` cases whenever `state` is asked for; it keeps none of its own. Any thread
    may ask. `session` is the judge session that asks, `servers` are the attempts of others that are asked, such as a system
    under test; `spent_before` is what the run had paid before."""

    def __init__(
        self,
        phase: Phase,
        total: int,
        work: Callable[[], WorkDone],
        *,
        session: JudgeSession | None = None,
        servers: Sequence[AttemptRunner] = (),
        spent_before: Usage = Usage(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.monotonic,
    ):
        self._phase, self._total, self._work, self._session = phase, total, work, session
        self._servers, self._spent_before, self._clock = tuple(servers), spent_before, clock
        self._started, self._started_at = clock(), iso_time()

    def state(self) -> ProgressState:
        """The state at this moment."""
        work, session, elapsed = self._work(), self._session, max(self._clock() - self._started, 1e-9)
        spent = self._spent_before if session is None else self._spent_before + session.total_spend()
        leading = [*self._servers, *(session.asking_attempts() if session is not None else ())]
        attempts = [*leading, *(session.child_attempts() if session is not None else ())]
        calls = _calls(attempts)
        # until when and why calls wait: the longest of what holds back the servers
        holds = [hold for runner in attempts if (hold := runner.hold()) is not None]
        until, reason = max(holds, key=lambda hold: hold[0], default=(None, ""))
        now, fresh, remaining = time.monotonic(), work.done - work.resumed, self._total - work.done
        # what is left at the pace of the cases so far, with the wait where nothing is under way meanwhile; None before the first case
        left = elapsed * remaining / fresh if fresh > 0 else None if remaining > 0 else 0.0
        if left and until is not None and not calls.in_flight:
            left += max(0.0, until - now)
        return ProgressState(
            self._phase,
            this_process(),
            self._started_at,
            iso_time(),
            CaseCounts(self._total, work.done, work.resumed),
            calls,
            TextCounts(*session.texts()) if session is not None else TextCounts(),
            None if until is None else iso_time(time.time() + until - now),
            reason,
            calls.answered / elapsed,
            spent.tokens,
            spent.usd,
            work.errors,
            work.error_groups,
            left,
            started_command(),
            _limits(leading),
        )


def _calls(attempts: Sequence[AttemptRunner]) -> CallCounts:
    traffic = [runner.traffic for runner in attempts]
    answered, failed = sum(t.answered for t in traffic), sum(t.failed for t in traffic)
    in_flight = sum(t.in_flight for t in traffic)
    # the sum of its parts also where another thread counts meanwhile
    return CallCounts(answered + failed + in_flight, answered, in_flight, sum(t.waiting for t in traffic), failed)


def _limits(leading: Sequence[AttemptRunner]) -> LimitFigures:
    """What limits did to the requests of the first of these servers: the judge's, or that of the system under test."""
    if not leading:
        return LimitFigures()
    runner = leading[0]
    limiter = runner.state.rate_limiter
    learned, width = limiter.pace.rate, limiter.width.limit
    return LimitFigures(
        runner.traffic.refusals,
        runner.traffic.overloads,
        limiter.per_minute("requests"),
        limiter.per_minute("tokens", "input", "output"),
        None if learned is None else learned * 60,
        None if width is None else int(width),
    )
