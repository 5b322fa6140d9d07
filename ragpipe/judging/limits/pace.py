"""The pace: how many requests may start per second, by what refusals have taught."""

from __future__ import annotations

from collections import deque

_CUT_TO = 0.87  # of the rate that was refused
_BACK_S, _BACK_STARTS, _LONGEST_BACK_S = 6.0, 62.0, 300.0  # at least, or so many starts, until that rate again
_SEARCH, _MOST_SEARCH = 0.15, 1.05  # growth per second where no limit is known; and at most so many times per answer
_LOWEST = 1 / 30  # starts per second
_LONE, _REPEATED = 0.08, 4  # share of the starts since a cut up to which refusals are lone ones, and so many always are
_DEEPEST = 0.35  # of the rate, in one cut
_IN_VAIN = 4  # cuts for repeated refusals, after which a slower pace is seen not to help
_ROW, _ROW_S = 5, 5.0  # refusals in a row, and seconds, that are an outage


class LearnedPace:
    """The starts per second that refusals have taught, without knowing the limit.

    A refusal cuts the rate to 0.87 of the one that was refused; that is the proven rate. It grows back in a straight line of real
    time, in about 70 starts (6 s at least), and after twice as long by 15 % per second. In the first half of the way back no limit
    refuses anything unless it has fallen: up to 8 % of the starts, refusals are lone ones there and cut nothing; where more are
    refused, the rate goes down to what is answered. Where four such cuts have not helped, requests are refused however slowly they
    come: the rate is the proven one again, until a clearly larger share is refused. Refusals in a row without any answer are one
    outage, and the proven rate follows it too. The rate grows only while it holds attempts back. Times are seconds of a clock that only grows.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Starts per second; None where nothing was learned."""
        self.free_from = 0.0
        """When the next attempt may start."""
        self._proven = self._step = self._back = 0.0  # the step is its growth per second, for twice `_back` seconds
        self._last_cut, self._last_event = float("-inf"), 0.0
        self._starts = self._refusals = self._early = 0  # since the cut; early: in the first half of the way back
        self._in_vain, self._tolerated = 0, _LONE
        self._row, self._row_began = 0, 0.0  # refusals without an answer between them
        self._answers: deque[float] = deque(maxlen=16)
        self._is_held = False

    def record_start(self, now: float) -> None:
        """An attempt starts."""
        self._starts += 1
        if self.rate is not None:
            self._is_held = now < self.free_from + 0.5 / self.rate
            self.free_from = max(self.free_from, now) + 1 / self.rate

    def record_answer(self, now: float) -> None:
        """An attempt was not refused."""
        if self.rate is not None:
            if self._row >= _ROW and now - self._row_began >= _ROW_S:
                self._set(max(self.rate, self._proven), now)
            elif self._is_held:
                self._grow(self.rate, now)
        self._row, self._last_event = 0, now
        self._answers.append(now)

    def _grow(self, rate: float, now: float) -> None:
        seconds = now - self._last_event
        if now - self._last_cut <= 2 * self._back:
            self.rate = rate + self._step * seconds
        elif len(self._answers) < 16 or rate < 32 / max(0.01, now - self._answers[0]):  # twice the answers
            self.rate = rate * min(_MOST_SEARCH, 1 + _SEARCH * seconds)

    def record_refusal(self, started: float, now: float) -> None:
        """An attempt that began at `started` was refused by a limit of the rate."""
        if self._row == 0:
            self._row_began = now
        self._row, self._last_event = self._row + 1, now
        if (
            started > self._last_cut and self._row < _ROW
        ):  # else it was in flight then, or nothing is answered at any rate
            self._learn(now)
        if self.rate is not None:
            self.free_from = max(self.free_from, now + 1 / self.rate)

    def _learn(self, now: float) -> None:
        if self.rate is None:
            self._begin(now)
            return
        is_early = now - self._last_cut < self._back / 2
        self._refusals, self._early = self._refusals + 1, self._early + is_early
        share = self._refusals / max(1, self._starts)
        if not is_early and self._early < 2:
            self._in_vain, self._proven = 0, _CUT_TO * self.rate
            self._set(self._proven, now)
        elif self._refusals >= _REPEATED and share > self._tolerated:
            self._in_vain, self._tolerated = self._in_vain + 1, _LONE
            if self._in_vain <= _IN_VAIN:
                self._set(self.rate * min(_CUT_TO, max(_DEEPEST, 0.9 * (1 - share))), now)
            else:
                self._in_vain, self._tolerated = 0, min(0.7, 1.2 * share + 0.15)
                self._set(max(self.rate, self._proven), now)

    def _begin(self, now: float) -> None:
        """The first refusal: go down to what was answered in the last seconds. No limit is known yet."""
        recent = [time for time in self._answers if time > now - 2.0]
        if len(recent) < 8:
            recent = [time for time in list(self._answers)[-8:] if time > now - 60.0]
        if len(recent) >= 3:
            self._proven = _CUT_TO * len(recent) / max(0.25, now - recent[0])
            self._set(self._proven, now)
            self._back = 0.0

    def _set(self, rate: float, now: float) -> None:
        """Go to this rate, and from there up."""
        self.rate, self._last_cut = max(_LOWEST, rate), now
        self._back = min(_LONGEST_BACK_S, max(_BACK_S, _BACK_STARTS / self.rate))
        self._step = (1 / _CUT_TO - 1) * self.rate / self._back
        self._starts = self._refusals = self._early = 0
