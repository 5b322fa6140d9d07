"""The line that shows how far work is: which parts it has, and which of them are dropped where there is little room."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from ragpipe.reports.number_format import money, plural, whole
from ragpipe.store.run.progress_state import ProgressState

_SEPARATOR = " | "


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the line. Parts with a low `rank` keep their place longest; those of one rank are forms of the same thing,
    of which the first that fits is shown."""

    rank: int
    place: int
    text: str


def progress_line(
    state: ProgressState,
    *,
    label: str,
    noun: str = "cases",
    elapsed: float,
    is_ended: bool = False,
    width: int | None = None,
    now: float | None = None,
) -> str:
    """`judging 12/40 cases | 1:20 left | waits 12 s (429) | 96 sent, 90 answered | 4 in flight | $0.12 | 1 error`.

    Args:
        state: what is shown.
        label: what is done.
        noun: what `cases` of the state counts.
        elapsed: seconds since the beginning.
        is_ended: whether the work is over: the line has its duration in place of the time left.
        width: columns that the line may take; None for any number. Cases and time left are never dropped.
        now: the time of `time.time`.
    """
    cases = f"{whole(state.cases.done)}/{whole(state.cases.total)}"
    parts = [part for part in _parts(state, elapsed, is_ended, time.time() if now is None else now) if part.text]
    for head in (f"{label} {cases} {noun}", f"{label} {cases}", cases):
        kept = {0: _Part(0, 0, head), 1: parts[0]}
        if width is None or len(_joined(kept)) <= width:
            break
    for part in parts[1:]:
        longer = kept | {part.rank: part}
        if part.rank not in kept and (width is None or len(_joined(longer)) <= width):
            kept = longer
    return _joined(kept)


def _joined(parts: dict[int, _Part]) -> str:
    return _SEPARATOR.join(part.text for part in sorted(parts.values(), key=lambda part: part.place))


def _parts(state: ProgressState, elapsed: float, is_ended: bool, now: float) -> list[_Part]:
    """All parts behind the cases, the most wanted first."""
    calls = state.calls
    waits = "" if is_ended else _waits(state, now)
    sent = f"{whole(calls.sent)} sent, {whole(calls.answered)} answered" if calls.sent else ""
    failed = f", {whole(calls.failed)} failed" if calls.failed else ""
    is_shown = calls.sent and not is_ended
    texts = state.texts
    embedding = f"{plural(texts.embedded, 'text')} computed here" if texts.embedded or texts.waiting else ""
    return [
        _Part(1, 1, _time(state, elapsed, is_ended)),
        _Part(2, 2, waits),
        _Part(2, 2, waits.partition(" (")[0]),
        _Part(3 if state.errors else 9, 9, plural(state.errors, "error")),
        _Part(4, 3, sent + failed if sent else ""),
        _Part(4, 3, sent),
        _Part(11 if state.usd is None else 5, 7, money(state.usd) if calls.answered or state.tokens else ""),
        _Part(6, 4, f"{whole(calls.in_flight)} in flight" if is_shown else ""),
        _Part(7, 5, f"{state.rate_per_second:,.1f}/s" if calls.answered else ""),
        _Part(8, 8, embedding + (f", {whole(texts.waiting)} waiting" if texts.waiting and not is_ended else "")),
        _Part(10, 6, f"{whole(state.tokens)} tokens" if state.tokens else ""),
    ]


def _time(state: ProgressState, elapsed: float, is_ended: bool) -> str:
    is_whole = state.cases.done >= state.cases.total
    if is_ended or is_whole:
        return duration(elapsed) if is_whole else f"stopped after {duration(elapsed)}"
    return "estimating" if state.seconds_left is None else f"{duration(state.seconds_left)} left"


def _waits(state: ProgressState, now: float) -> str:
    """`waits 12 s (429)`; where the next request may go within a second, how many calls wait."""
    if state.waiting_until is None:
        return ""
    seconds = datetime.fromisoformat(state.waiting_until).timestamp() - now
    words = f"waits {seconds:,.0f} s" if seconds >= 1 else f"{whole(state.calls.waiting)} waiting"
    return f"{words} ({state.waiting_for})"


def duration(seconds: float) -> str:
    """`1:20`, `2:03:04`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
