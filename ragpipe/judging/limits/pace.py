"""Paces: how many requests, or tokens, may start per second, by a known limit or by what refusals have taught."""

from __future__ import annotations

import math
from collections import deque

_CUT_TO = 0.87  # of the rate that was refused
_BACK_AFTER = 12.0  # seconds until the learned rate is again the one that was refused; then it grows beyond
_BACK_AFTER_STARTS = 30.0  # and so many starts at least: at a low rate each refusal is a large share of them
_LONGEST_BACK = 120.0  # seconds
_SEARCH = 0.15  # growth per second while nothing is known of the limit, and at most to double per answer
_NEAR = 12  # attempts after a cut in which another refusal means that the limit itself has fallen
_LOWEST = 1 / 30  # starts per second
_WINDOW = 2.0  # seconds over which answers are counted, at least
_FEWEST, _LONGEST_WINDOW = 8, 60.0  # so many of the last answers count although they are older, but not older than this
_LAST = 40  # attempts by which the share of refusals is taken
_PROVEN_BY, _PROVEN_S = 64, 3.0  # answers, and seconds at least, over which a rate is proven
_PROVEN_FOR = 600.0  # seconds in which the proven rate fades to 1/e: a limit may fall
_BELOW = 0.9  # of the proven rate, below which a limit refuses nothing unless it has fallen
_EARLY = 0.9  # of the time until the rate is back at the refused one: a refusal after it is that limit's
_FLOOD = 1.8  # times what is answered now: a limit that has just fallen refuses so fast a rate
_UNEXPLAINED, _MOST_UNEXPLAINED = 5, 12  # refusals in a row that no limit explains, after which they count as chance
_FACTOR_MORE, _SHARE_MORE = (
    1.2,
    0.25,
)  # a clearly larger share than chance refuses: so many times that one, and so much more
_MOST_BY_CHANCE = 0.7  # share of the last attempts; of more, a limit is the cause
_MANY = 0.3  # share of the last attempts: where more are refused, the higher of the two numbers holds


class LearnedPace:
    """The starts per second that refusals have taught, without knowing the limit.

    A refusal cuts the rate to 0.87 of the one that was refused. Then it follows a cubic curve (as TCP CUBIC, RFC 9438): fast
    at first, slowly around the refused rate, which it reaches after 12 s, and faster beyond it. Twice as long after the cut
    the limit must have risen, and the rate grows by 15 % per second, as it does after the first refusal of all, when only what was
    answered so far is known. Where refusals repeat within 12 attempts, the limit has fallen: the rate is cut to 0.9 of what is answered.
    The rate grows only while it holds attempts back.

    A busy provider refuses a share of all requests, however slowly they come: a slower pace makes the run longer, without end, and
    avoids no refusal. A limit that has not fallen refuses nothing below a rate that was answered before. So after five refusals in a row
    below 0.9 of the highest rate that was answered lately, refusals count as chance: the rate goes back to that one and grows, until
    a clearly larger share is refused. Times are seconds of a clock that only grows.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Starts per second; None where nothing was learned."""
        self._refused = 0.0  # the rate that was refused; 0: it is not known
        self._back_after = _BACK_AFTER
        self._grown = 0.0  # seconds on the curve since the cut
        self._last_answer = 0.0
        self._last_cut = float("-inf")
        self._since_cut = _NEAR  # attempts; there was no cut
        self._answers: deque[float] = deque(maxlen=256)
        self._outcomes: deque[bool] = deque(maxlen=_LAST)  # of the last attempts: whether they were refused
        self._proven = 0.0  # the highest rate that was answered lately
        self._unexplained = 0  # refusals in a row that no limit explains
        self._needed = _UNEXPLAINED  # of those, until they count as chance
        self._tolerated = 0.0  # the share of refusals that no pace avoids; 0: none is known

    def record_answer(self, now: float, *, is_held: bool) -> None:
        """An attempt was not refused. `is_held`: this rate holds attempts back."""
        self._proven *= math.exp(-max(0.0, now - self._last_answer) / _PROVEN_FOR)
        self._answers.append(now)
        self._outcomes.append(False)
        self._since_cut += 1
        counted = min(_PROVEN_BY, len(self._answers))
        self._proven = max(self._proven, (counted - 1) / max(_PROVEN_S, now - self._answers[-counted]))
        if self.rate is not None and is_held:
            self._grow(self.rate, max(0.0, now - self._last_answer))
        self._last_answer = now

    def record_refusal(self, started: float, now: float) -> None:
        """An attempt that began at `started` was refused by a limit of the rate."""
        self._outcomes.append(True)
        if started <= self._last_cut:
            return  # it was in flight when the rate was cut
        self._since_cut += 1
        share = sum(self._outcomes) / _LAST
        if self._tolerated:
            if share < self._tolerated:
                return
            self._forget_chance(share)
        is_near = self._since_cut <= _NEAR
        window = max(_WINDOW, now - self._last_cut) if is_near else _WINDOW  # a Retry-After in it counts as time too
        self._last_answer, answered = now, self._answered(now, window)
        if self.rate is None:
            if answered is not None:  # else the back-off of each call has to do
                self._cut(now, _CUT_TO * answered, refused=0.0)
        elif self._is_chance(self.rate, answered, share, is_near=is_near):
            self.rate, self._refused, self._unexplained = max(self.rate, self._proven), 0.0, 0
            self._tolerated = min(_MOST_BY_CHANCE, _FACTOR_MORE * share + _SHARE_MORE)
        elif is_near:
            measured = 0.7 * self.rate if answered is None else 0.9 * answered
            rate = min(0.95 * self.rate, max(0.5 * self.rate, measured))
            self._cut(now, rate, refused=rate / _CUT_TO)
        else:
            self._cut(now, _CUT_TO * self.rate, refused=self.rate)

    def _cut(self, now: float, rate: float, *, refused: float) -> None:
        """Go down to this rate, and from there back to the one that was refused (0: it is not known)."""
        self.rate = max(_LOWEST, rate)
        self._last_cut, self._since_cut, self._refused = now, 0, refused
        self._grown, self._back_after = 0.0, min(_LONGEST_BACK, max(_BACK_AFTER, _BACK_AFTER_STARTS / self.rate))

    def _forget_chance(self, share: float) -> None:
        """A clearly larger share is refused: it was no chance, or no chance alone. Only what is answered of the rate is left of it."""
        self._tolerated = self._proven = 0.0
        self._needed = min(_MOST_UNEXPLAINED, 2 * self._needed)
        if self.rate is not None:
            self.rate *= 1 - share

    def _is_chance(self, rate: float, answered: float | None, share: float, *, is_near: bool) -> bool:
        """Whether the refusals at this rate and before come by chance, and not by a limit."""
        is_late = self._refused > 0 and self._grown >= _EARLY * self._back_after
        is_flood = is_near and answered is not None and rate > _FLOOD * answered
        if rate >= _BELOW * self._proven:
            self._unexplained = 0
        elif not is_late and not is_flood:
            self._unexplained += 1
        return self._unexplained >= (self._needed if share < _MANY else _MOST_UNEXPLAINED)

    def _grow(self, rate: float, seconds: float) -> None:
        self._grown += min(seconds, 2.0)
        if self._refused and self._grown <= 2 * self._back_after:
            curve = self._refused * (1 + (1 - _CUT_TO) * (self._grown / self._back_after - 1) ** 3)
            self.rate = max(_LOWEST, curve)
        else:
            self.rate = rate * min(2.0, 1 + _SEARCH * seconds)

    def _answered(self, now: float, window: float) -> float | None:
        """Answers per second in the last seconds; None before the third."""
        recent = [time for time in self._answers if time > now - window]
        if len(recent) < _FEWEST:
            recent = [time for time in list(self._answers)[-_FEWEST:] if time > now - _LONGEST_WINDOW]
        if len(recent) < 3:
            return None
        return len(recent) / max(0.25, now - recent[0])


class Bucket:
    """A limit of so many units (requests or tokens) per second, spaced evenly: what is taken delays what comes next.

    What the server counted less than was taken is credit for the next attempts, up to `CREDIT` seconds of it. Times are seconds of a clock that only grows.
    """

    CREDIT = 2.0

    def __init__(self, per_second: float, why: str):
        self.per_second, self.why = per_second, why
        self._free_from = self._credit = 0.0

    def next_start(self, now: float) -> float:
        """When the next attempt may start."""
        return max(now, self._free_from)

    def take(self, amount: float, now: float) -> None:
        """An attempt of so many units starts."""
        from_credit = min(self._credit, amount)
        self._credit -= from_credit
        self._free_from = max(self._free_from, now) + (amount - from_credit) / self.per_second

    def settle(self, amount: float) -> None:
        """The server counted so many units more (negative: fewer) than were taken."""
        self._credit = min(self._credit - amount, self.CREDIT * self.per_second)
