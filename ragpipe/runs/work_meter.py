"""The state of work under way, from its counters: what the terminal and `.progress.json` show."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.judge.attempts import AttemptRunner, Traffic
from ragpipe.judge.session import JudgeSession
from ragpipe.store.processes import started_command, this_process
from ragpipe.store.progress import CallCounts, CaseCounts, LimitFigures, Phase, ProgressState, TextCounts, iso_time

_FEW_ROUNDS = 3  # answers per request under way from which the answers so far tell the rate


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What is done of a piece of work: cases, the failed ones, and how often each kind of error occurred."""

    done: int
    resumed: int = 0
    errors: int = 0
    error_groups: Mapping[str, int] = field(default_factory=dict)


class WorkMeter:
    """Reads the counters whenever `state` is asked for; it keeps none of its own. Any thread may ask.

    Args:
        phase: what is done.
        total: cases in all.
        work: reads what is done of them.
        session: the judge session that asks; None where no judge is asked.
        servers: the attempts of other servers that are asked, such as a system under test.
        planned_calls: requests that the work needs, as the plan expects; None where there is no plan.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        phase: Phase,
        total: int,
        work: Callable[[], WorkDone],
        *,
        session: JudgeSession | None = None,
        servers: Sequence[AttemptRunner] = (),
        planned_calls: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._phase, self._total, self._work, self._session = phase, total, work, session
        self._servers, self._planned, self._clock = tuple(servers), planned_calls, clock
        self._started, self._started_at = clock(), iso_time()

    def state(self) -> ProgressState:
        """The state at this moment."""
        work, session, elapsed = self._work(), self._session, max(self._clock() - self._started, 1e-9)
        # the attempts that the plan counts: those of the judge, or of the system under test
        leading = [*self._servers, *(session.asking_attempts() if session is not None else ())]
        attempts = leading if session is None else [*leading, *session.child_attempts()]
        calls = _calls(attempts)
        until, reason = _hold(attempts)
        answered, now = _calls(leading), time.monotonic()
        is_held = until is not None and until > now
        rate = call_rate([runner.traffic for runner in leading], now, is_held=is_held)
        fresh, remaining = work.done - work.resumed, self._total - work.done
        # the time left; with the wait where nothing is under way meanwhile
        planned = self._planned if leading else None  # the questions of a judge in this process are no calls
        left = seconds_left(elapsed, fresh, remaining, answered.answered, planned, rate)
        if left and until is not None and not answered.in_flight:
            left += max(0.0, until - time.monotonic())
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
            session.total_spend().tokens if session is not None else 0,
            session.total_spend().usd if session is not None else 0.0,
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


def _hold(attempts: Sequence[AttemptRunner]) -> tuple[float | None, str]:
    """Until when (monotonic seconds) and why calls wait: the longest of what holds back the servers."""
    holds = [hold for runner in attempts if (hold := runner.hold()) is not None]
    return max(holds, key=lambda hold: hold[0], default=(None, ""))


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


def seconds_left(
    elapsed: float, fresh: int, remaining: int, answered: int, planned: int | None, rate: float | None
) -> float | None:
    """An estimate of the time that work still takes; None where nothing tells.

    By calls where some are made: those that are still to come, at the rate of answers. Their number is the plan's at the
    beginning, and more and more that of the finished cases, in the measure in which cases are finished: the plan is an
    estimate, and open cases have calls behind them already. By cases where no call is made.

    Args:
        elapsed: seconds so far, of this start.
        fresh: cases that this start has finished.
        remaining: cases that are not finished.
        answered: calls that were answered.
        planned: calls that the whole work needs; None where nobody has planned it.
        rate: calls per second that are answered (`call_rate`); None before the first answer.
    """
    if remaining <= 0:
        return 0.0
    if not answered or rate is None:
        return elapsed * remaining / fresh if fresh > 0 and not planned else None
    by_cases = answered / fresh * remaining if fresh > 0 else None
    by_plan = max(0, planned - answered) if planned else None
    if by_cases is None or by_plan is None:
        calls = by_plan if by_cases is None else by_cases
    else:
        if by_plan:
            by_cases = min(by_cases, by_plan)
        share = fresh / (fresh + remaining)
        calls = share * by_cases + (1 - share) * by_plan
    return None if calls is None else calls / rate


def call_rate(traffic: Sequence[Traffic], now: float, *, is_held: bool = False) -> float | None:
    """Answers per second that may be expected from now on; None before the first answer.

    In the beginning the requests under way by the mean seconds of an answer (Little's law): the first call goes alone, so
    what was answered so far says little. Later the answers since the first one. A silence counts only where it is longer than
    two answers usually take: replies of a slow judge arrive in bursts.

    Args:
        traffic: the requests to the servers that do the work.
        now: the time of `time.monotonic`.
        is_held: whether calls wait for a time that is known, such as a Retry-After: then a silence says nothing.
    """
    answered, in_flight = sum(t.answered for t in traffic), sum(t.in_flight for t in traffic)
    firsts = [t.first_answer for t in traffic if t.first_answer is not None]
    lasts = [t.last_answer for t in traffic if t.last_answer is not None]
    if not firsts or not lasts:
        return None
    latency = max(sum(t.answer_seconds for t in traffic) / max(1, answered), 1e-6)
    silence = 0.0 if is_held and not in_flight else max(0.0, now - max(lasts) - 2 * latency)
    span = max(lasts) - min(firsts) + silence
    if answered < max(2, _FEW_ROUNDS * in_flight) or span <= 0:
        return max(1, in_flight) / latency
    return (answered - 1) / span
