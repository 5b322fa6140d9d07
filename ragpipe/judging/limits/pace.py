"""The pace: how many requests may start per second, by what refusals have taught."""

from __future__ import annotations

import math
from collections import deque

_CUT_TO = 0.87  # of the rate that was refused
_BACK_AFTER, _BACK_AFTER_STARTS, _LONGEST_BACK = 6.0, 70.0, 300.0  # seconds, or so many starts, until that rate again
_SEARCH, _MOST_SEARCH = 0.15, 1.05  # growth per second where no limit is known; and at most so many times per answer
_LOWEST = 1 / 30  # starts per second
_LONE = 0.08  # share of the starts since a cut, up to which refusals are lone ones
_REPEATED = 4  # refusals since a cut, from which a larger share tells of a limit
_IN_VAIN = 4  # cuts for repeated refusals, after which a slower pace is seen not to help
_ROW, _ROW_S, _BACK_FROM_ROW_S = (
    5,
    5.0,
    20.0,
)  # refusals in a row, and seconds, that are an outage; then back after so many
_PROVEN_FOR = 600.0  # seconds in which the proven rate fades to 1/e: a limit may fall


class LearnedPace:
    """The starts per second that refusals have taught, without knowing the limit.

    A refusal cuts the rate to 0.87 of the one that was refused, and the rate grows back to it in 70 starts (6 s at least), in a
    straight line of real time; after twice as long it grows by 15 % per second. Before half of that time no limit refuses
    anything unless it has fallen. So lone refusals then, up to 8 % of the starts, cut nothing; where more are refused, the rate goes down to
    what is answered. Where that has not helped after four cuts, requests are refused however slowly they come: the rate goes
    back, and grows until a clearly larger share is refused. Refusals in a row without any answer are one outage, after which the
    rate is soon the old one. The rate grows only while it holds attempts back. Times are seconds of a clock that only grows.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Starts per second; None where nothing was learned."""
        self._low = self._target = 0.0  # the rate grows from the one to the other; a target of 0: no limit is known
        self._grown, self._back_after = 0.0, _BACK_AFTER  # seconds since the cut, and until the target
        self._last_event, self._last_cut = 0.0, float("-inf")
        self._starts = self._refusals = self._early = (
            0  # since the cut; early: refusals in the first half of the way back
        )
        self._in_vain, self._tolerated = 0, _LONE  # cuts for repeated refusals; the share of refusals that cuts nothing
        self._before = self._proven = 0.0  # the rate before those cuts, and the highest that was answered lately
        self._row, self._row_began, self._row_rate = 0, 0.0, 0.0  # refusals without an answer between them
        self._answers: deque[float] = deque(maxlen=64)

    def record_start(self) -> None:
        """An attempt starts."""
        self._starts += 1

    def record_answer(self, now: float, *, is_held: bool) -> None:
        """An attempt was not refused. `is_held`: this rate holds attempts back."""
        if self.rate is not None:
            if self._row >= _ROW and now - self._row_began >= _ROW_S:
                self._go_back(max(self._row_rate, self.rate), _BACK_FROM_ROW_S)
            elif is_held:
                self._grow(self.rate, now - self._last_event)
        self._proven *= math.exp(-max(0.0, now - self._last_event) / _PROVEN_FOR)
        self._row, self._last_event = 0, now
        self._answers.append(now)
        if len(self._answers) == self._answers.maxlen:
            self._proven = max(self._proven, len(self._answers) / max(3.0, now - self._answers[0]))

    def record_refusal(self, started: float, now: float) -> None:
        """An attempt that began at `started` was refused by a limit of the rate."""
        self._last_event = now
        if self._row == 0:
            self._row_began, self._row_rate = now, self.rate or 0.0
        self._row += 1
        if started <= self._last_cut or self._row >= _ROW:
            return  # it was in flight when the rate was cut, or nothing is answered at any rate
        self._refusals += 1
        is_early = now - self._last_cut < 0.5 * self._back_after
        self._early += is_early
        if self.rate is None:
            self._begin(now)
        elif not is_early and self._early == 0:
            self._in_vain, self._before = 0, 0.0
            self._cut(now, _CUT_TO * self.rate, self.rate)
        elif not is_early and self._early == 1:
            self._cut(now, self._answered(self.rate, now))
        elif self._refusals >= _REPEATED and self._refusals > self._tolerated * self._starts:
            self._cut_again(self.rate, now)

    def _begin(self, now: float) -> None:
        """The first refusal: go down to what was answered in the last seconds."""
        recent = [time for time in self._answers if time > now - 2.0]
        if len(recent) < 8:
            recent = [time for time in list(self._answers)[-8:] if time > now - 60.0]
        if len(recent) >= 3:
            self._cut(now, _CUT_TO * len(recent) / max(0.25, now - recent[0]))
            self._target = 0.0

    def _answered(self, rate: float, now: float) -> float:
        """A little less than what is answered of this rate, and no more than a cut down at once."""
        answered = max(0, self._starts - self._refusals)
        share = answered / max(1, self._starts)
        per_second = min(rate * share, answered / max(0.1, now - self._last_cut))
        return min(_CUT_TO * rate, max((0.65 if share > 0.35 else 0.25) * rate, 0.95 * per_second))

    def _cut_again(self, rate: float, now: float) -> None:
        """Refusals repeat: go down to what is answered. Where that has not helped, go back up."""
        self._before = self._before or rate
        share, self._tolerated = self._refusals / max(1, self._starts), _LONE
        if self._in_vain < _IN_VAIN:
            self._in_vain += 1
            lower = self._answered(rate, now)
            self._cut(now, lower, max(lower / _CUT_TO, _CUT_TO * rate))
        else:
            self._cut(now, max(rate, self._before, self._proven))
            self._in_vain, self._before, self._target = 0, 0.0, 0.0
            self._tolerated = min(0.7, 1.2 * share + 0.15)

    def _cut(self, now: float, rate: float, target: float | None = None) -> None:
        """Go down to this rate, and from there back to the target."""
        self.rate, self._last_cut = max(_LOWEST, rate), now
        target = target or self.rate / _CUT_TO
        self._go_back(target, min(_LONGEST_BACK, max(_BACK_AFTER, _BACK_AFTER_STARTS / target)))

    def _go_back(self, target: float, seconds: float) -> None:
        self._low, self._target = self.rate or target, target
        self._grown, self._back_after = 0.0, seconds
        self._starts = self._refusals = self._early = 0

    def _grow(self, rate: float, seconds: float) -> None:
        self._grown += seconds
        if self._target and self._grown <= 2 * self._back_after:
            self.rate = self._low + (self._target - self._low) * self._grown / self._back_after
        elif len(self._answers) < 16 or rate < 30 / max(
            0.01, self._answers[-1] - self._answers[-16]
        ):  # twice the answers
            self.rate = rate * min(_MOST_SEARCH, 1 + _SEARCH * seconds)
