"""The line of live progress: its parts at several widths, and when it is drawn."""

import io
import threading
from datetime import datetime
from typing import Any

import pytest

from ragpipe.core.safe_stream import SafeStream
from ragpipe.report.console import Progress, progress_line
from ragpipe.store.processes import Process
from ragpipe.store.progress import CallCounts, CaseCounts, ProgressState, TextCounts
from tests.support.waiting import wait_until

NOW = datetime.fromisoformat("2026-11-23T08:00:00.000Z").timestamp()


def state(done: int = 12, total: int = 40, **more: Any) -> ProgressState:
    process, at = Process("here", 4242), "2026-11-23T08:00:00.000Z"
    return ProgressState("judging", process, at, at, CaseCounts(total, done), **more)


BUSY: dict[str, Any] = {
    "calls": CallCounts(sent=96, answered=90, in_flight=4, waiting=3, failed=2),
    "waiting_until": "2026-11-23T08:00:12.000Z",
    "waiting_for": "429",
    "rate_per_second": 4.5,
    "tokens": 12345,
    "usd": 0.1234,
    "errors": 1,
    "seconds_left": 80.0,
}


def line(width: int | None = None, elapsed: float = 20.0, is_ended: bool = False, **values: Any) -> str:
    return progress_line(state(**values), label="judging", elapsed=elapsed, is_ended=is_ended, width=width, now=NOW)


WIDE = "12/40 cases | 1:20 left | $0.1234 | 1 error (refused 1) | waits 12 s (429)"
SENT = "96 sent, 90 answered, 2 without a reply"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (20, "12/40 | 1:20 left"),
        (45, "judging █░░░░ 12/40 | 1:20 left | $0.1234"),
        (60, "judging ██░░░░░ 12/40 | 1:20 left | $0.1234 | 1 error"),
        (80, "judging ███░░░░░░░ 12/40 | 1:20 left | $0.1234 | 1 error (refused 1)"),
        (100, f"judging ███░░░░░░░░░ {WIDE}"),
        (140, f"judging █████░░░░░░░░░░░░ {WIDE} | 96 sent, 90 answered | 4 in flight"),
        (200, f"judging ███████░░░░░░░░░░░░░░░░░░ {WIDE} | {SENT} | 4 in flight | 4.5/s | 12,345 tokens"),
    ],
)
def test_what_does_not_fit_falls_away_from_the_end(width: int, expected: str) -> None:
    assert line(width, **BUSY, error_groups={"refused": 1}) == expected


def test_what_a_line_says_of_errors_prices_and_its_end() -> None:
    """What is in flight or waits at the end of an interrupted run is no news: it was given up."""
    whole = {**BUSY, "calls": CallCounts(sent=120, answered=120), "seconds_left": 0.0, "done": 40}
    paid, rate = "$0.1234 | 1 error", "4.5/s | 12,345 tokens"
    ended = line(elapsed=62.4, is_ended=True, **whole)
    assert ended == f"judging 40/40 cases | 1:02 | {paid} | 120 sent, 120 answered | {rate}"
    assert line(elapsed=24.0, is_ended=True, **BUSY) == f"judging 12/40 cases | stopped after 0:24 | {paid} | {SENT} | {rate}"
    kinds = {"errors": 4, "error_groups": {"deadline": 1, "refused": 3, "budget": 1, "cut_short": 1}}
    assert line(**kinds) == "judging 12/40 cases | estimating | 4 errors (refused 3, budget 1, cut_short 1)"
    assert line(width=60, **kinds) == "judging ██░░░░░ 12/40 | estimating | 4 errors"
    assert "| price unknown |" in line(**{**BUSY, "usd": None})
    shown = line(texts=TextCounts(embedded=1024, waiting=256))
    assert shown == "judging 12/40 cases | estimating | 1,024 texts computed here, 256 waiting | 0 errors"
    assert progress_line(state(10), label="judging", elapsed=1, width=80, blocks="#-").startswith("judging ##-------- 10/40 |")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks at the counters are those of the test alone."""
    monkeypatch.setattr(Progress, "_run", lambda self: None)


@pytest.mark.usefixtures("no_thread")
def test_without_a_terminal_a_line_after_one_second_and_then_every_five() -> None:
    clock, out, seen = Clock(), io.StringIO(), list[ProgressState]()
    with Progress(SafeStream(out), lambda: state(int(clock.now)), keep=seen.append, clock=clock) as shown:
        for tick in range(1, 41):  # 20 s, two looks a second
            clock.now = tick / 2
            shown.tick()
    lines = out.getvalue().splitlines()
    assert [text.split()[1] for text in lines] == ["1/40", "6/40", "11/40", "16/40", "20/40"]
    assert lines[0] == "judging 1/40 cases | estimating | 0 errors"
    assert lines[-1] == "judging 20/40 cases | stopped after 0:20 | 0 errors"
    assert len(seen) == 42  # the first, the last, and one per look


@pytest.mark.usefixtures("no_thread")
def test_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "45")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(SafeStream(out), lambda: state(0, seconds_left=3725.0)) as shown:
        assert shown.live is not None
        assert "judging ░░░░░ 0/40 | 1:02:05 left | 0 errors" in out.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    out, clock = Terminal(), Clock()
    with Progress(SafeStream(out), lambda: state(20), clock=clock) as shown:
        assert shown.live is None
        clock.now = 1.0
        shown.tick()
        assert out.getvalue() == "judging 20/40 cases | estimating | 0 errors\n"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_thread_ends_and_the_last_line_is_there_after_an_error(error: type[BaseException]) -> None:
    out = io.StringIO()
    with pytest.raises(error), Progress(SafeStream(out), state):
        raise error
    assert out.getvalue() == "judging 12/40 cases | stopped after 0:00 | 0 errors\n"
    assert "ragpipe progress" not in {thread.name for thread in threading.enumerate()}


def test_counters_that_cannot_be_read_end_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails is left out; the next one is shown."""
    monkeypatch.setattr("ragpipe.report.console.TICK_S", 0.01)
    looks: list[int] = []

    def source() -> ProgressState:
        looks.append(len(looks))
        if len(looks) == 2:
            raise RuntimeError("dictionary changed size during iteration")
        return state()

    with Progress(SafeStream(io.StringIO()), source):
        wait_until(lambda: len(looks) >= 4)


class ClosedPipe(io.StringIO):
    """Refuses what is written, and counts the tries."""

    tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise BrokenPipeError("nobody reads")


def test_a_closed_stream_falls_silent() -> None:
    """The line that finds it closed ends no work, and nothing is written to it again; the counters are kept all the same."""
    out, kept = ClosedPipe(), list[ProgressState]()
    stream = SafeStream(out)
    with Progress(stream, state, keep=kept.append) as shown:
        for _ in range(3):
            shown._next_plain = 0.0
            shown.tick()
    assert out.tries == 1
    assert len(kept) >= 5  # at the beginning, three times, at the end
