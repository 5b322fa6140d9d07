"""Paces: how many requests, or tokens, may start per second, by a known limit or by what refusals have taught."""

from __future__ import annotations

from collections import deque
from typing import Any

_CUT_TO = 0.87  # of the rate that was refused
_BACK_AFTER = 12.0  # seconds until the learned rate is again the one that was refused; then it grows beyond
_BACK_AFTER_STARTS = 30.0  # and so many starts at least: at a low rate each refusal is a large share of them
_LONGEST_BACK = 120.0  # seconds
_SEARCH = 0.15  # growth per second while nothing is known of the limit
_REPEATED = 5.0  # seconds after a cut in which another refusal means that the limit itself has fallen
_LOWEST = 1 / 30  # starts per second
_WINDOW = 2.0  # seconds over which answers are counted, at least
_FEWEST, _LONGEST_WINDOW = 8, 60.0  # so many of the last answers count although they are older, but not older than this
_FEW = 0.3  # share of the last attempts: of a limit that has fallen far, more are refused
_LAST = 40  # attempts by which that share is taken
_EARLY_CUTS = 12  # in a row: a limit is found by fewer
_SLOWER = 6.0  # times slower, with few refused, after which a slower pace is of no use; twice that once it was of use


class LearnedPace:
    """The starts per second that refusals have taught, without knowing the limit.

    A refusal cuts the rate to 0.87 of the one that was refused. Then it follows a cubic curve (as TCP CUBIC, RFC 9438): fast
    at first, slowly around the refused rate, which it reaches after 12 s, and faster beyond it. Twice as long after the cut
    the limit must have risen, and the rate grows by 15 % per second, as it does after the first refusal of all, when only what was
    answered so far is known. Where refusals repeat within 5 s, the limit has fallen: the rate is cut to 0.9 of what is answered.
    The rate grows only while it holds attempts back.

    A busy provider refuses a share of all requests, however slowly they come: a slower pace makes the run longer, without end, and
    avoids no refusal. So where a sixth of the rate does not end them, or twelve cuts in a row, the rate is forgotten
    until a larger share is refused. Times are seconds of a clock that only grows.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Starts per second; None where nothing was learned."""
        self._refused = 0.0  # the rate that was refused; 0: it is not known
        self._back_after = _BACK_AFTER
        self._grown = 0.0  # seconds on the curve since the cut
        self._last_answer = 0.0
        self._last_cut = float("-inf")
        self._answers: deque[float] = deque(maxlen=256)
        self._outcomes: deque[bool] = deque(maxlen=_LAST)  # of the last attempts: whether they were refused
        self._highest = 0.0  # the highest refused rate since the rate was last beyond all refused ones
        self._early_cuts = 0  # in a row: a refusal came soon after a cut below what is answered
        self._slower = _SLOWER
        self._tolerated = 0.0  # the share of refusals that no pace avoids; 0: none is known

    def record_answer(self, now: float, *, is_held: bool) -> None:
        """An attempt was not refused. `is_held`: this rate holds attempts back."""
        self._answers.append(now)
        self._outcomes.append(False)
        if self.rate is not None and is_held:
            self._grow(self.rate, min(now - self._last_answer, 2.0))
        self._last_answer = now

    def record_refusal(self, started: float, now: float) -> None:
        """An attempt that began at `started` was refused by a limit of the rate."""
        self._outcomes.append(True)
        if started <= self._last_cut:
            return  # it was in flight when the rate was cut
        share = sum(self._outcomes) / _LAST
        if self._tolerated:
            if share < self._tolerated:
                return
            self._tolerated, self._slower = 0.0, 2 * self._slower
        if self.rate is not None and self._is_futile(self.rate, share):
            self.rate, self._highest, self._early_cuts = None, 0.0, 0
            self._tolerated = min(0.95, 0.1 + 2 * share)
            return
        is_repeated = now - self._last_cut < _REPEATED
        self._last_answer, before = now, self.rate
        window = (
            max(_WINDOW, now - self._last_cut) if is_repeated else _WINDOW
        )  # a Retry-After in it counts as time too
        answered = self._answered(now, window)
        if before is None:
            if answered is None:
                return  # the rate is unknown: the back-off of each call has to do
            self.rate, self._refused = _CUT_TO * answered, 0.0
        elif not is_repeated:
            self.rate, self._refused = _CUT_TO * before, before
        else:
            measured = 0.7 * before if answered is None else 0.9 * answered
            self.rate = min(0.95 * before, max(0.5 * before, measured))
            self._refused = self.rate / _CUT_TO
            self._early_cuts += self.rate >= measured
        self._last_cut, self.rate = now, max(_LOWEST, self.rate)
        self._grown, self._back_after = 0.0, min(_LONGEST_BACK, max(_BACK_AFTER, _BACK_AFTER_STARTS / self.rate))

    def as_json(self) -> dict[str, Any]:
        """As it is written to the row of a provider."""
        plain = {name: getattr(self, name) for name in _PACE_FIELDS}
        answers = [round(time, 3) for time in self._answers]
        last_cut = None if self._last_cut == float("-inf") else self._last_cut
        outcomes = "".join("x" if refused else "." for refused in self._outcomes)
        return {**plain, "answers": answers, "outcomes": outcomes, "last_cut": last_cut}

    def shift(self, seconds: float) -> None:
        """Move all times to a clock that is so many seconds ahead."""
        self._last_answer += seconds
        self._last_cut += seconds
        self._answers = deque((time + seconds for time in self._answers), maxlen=self._answers.maxlen)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LearnedPace:
        """What `as_json` wrote."""
        pace = cls()
        for name in _PACE_FIELDS:
            setattr(pace, name, values[name])
        pace._answers.extend(values["answers"])
        pace._outcomes.extend(mark == "x" for mark in values["outcomes"])
        pace._last_cut = float("-inf") if values["last_cut"] is None else values["last_cut"]
        return pace

    def _is_futile(self, rate: float, share: float) -> bool:
        """Whether a slower pace avoids no refusals."""
        self._highest = max(self._highest, rate)
        if self._grown > self._back_after / 2:
            self._early_cuts = 0
        return self._early_cuts >= _EARLY_CUTS or (share < _FEW and rate * self._slower < self._highest)

    def _grow(self, rate: float, seconds: float) -> None:
        self._grown += seconds
        if rate > self._highest:
            self._highest = 0.0
        if not self._refused or self._grown > 2 * self._back_after:
            self.rate = rate * (1 + _SEARCH * seconds)
        else:
            self.rate = self._refused * (1 + (1 - _CUT_TO) * (self._grown / self._back_after - 1) ** 3)

    def _answered(self, now: float, window: float) -> float | None:
        """Answers per second in the last seconds; None before the third."""
        recent = [time for time in self._answers if time > now - window]
        if len(recent) < _FEWEST:
            recent = [time for time in list(self._answers)[-_FEWEST:] if time > now - _LONGEST_WINDOW]
        if len(recent) < 3:
            return None
        return len(recent) / max(0.25, now - recent[0])


_PACE_FIELDS = (
    "rate",
    "_refused",
    "_back_after",
    "_grown",
    "_last_answer",
    "_highest",
    "_early_cuts",
    "_slower",
    "_tolerated",
)
"""The fields of a pace that are plain numbers."""


class Bucket:
    """A limit of so many units (requests or tokens) per second, spaced evenly: what is taken delays what comes next.

    What the server counted less than was taken is credit for the next attempts, up to `CREDIT` seconds of it. An attempt that starts
    up to `late` seconds after it might have started delays the next one by so much less. Times are seconds of a clock that only grows.
    """

    CREDIT = 2.0

    def __init__(self, per_second: float, why: str, *, late: float = 0.0):
        self.per_second, self.why, self.late = per_second, why, late
        self._free_from = self._credit = 0.0

    @property
    def state(self) -> list[float]:
        """Until when it is taken, and its credit."""
        return [self._free_from, self._credit]

    def restore(self, state: list[float]) -> None:
        """Go on from a `state`."""
        self._free_from, self._credit = state

    def shift(self, seconds: float) -> None:
        """Move to a clock that is so many seconds ahead."""
        self._free_from += seconds

    def next_start(self, now: float) -> float:
        """When the next attempt may start."""
        return max(now, self._free_from)

    def take(self, amount: float, now: float) -> None:
        """An attempt of so many units starts."""
        from_credit = min(self._credit, amount)
        self._credit -= from_credit
        self._free_from = max(self._free_from, now - self.late) + (amount - from_credit) / self.per_second

    def give_back(self, amount: float) -> None:
        """So many of the units that were taken are not used."""
        self._free_from -= amount / self.per_second

    def settle(self, amount: float) -> None:
        """The server counted so many units more (negative: fewer) than were taken."""
        self._credit = min(self._credit - amount, self.CREDIT * self.per_second)
