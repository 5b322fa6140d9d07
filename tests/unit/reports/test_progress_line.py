"""The line of live progress: its parts at several widths, and when it is drawn."""

import io
import threading
from datetime import datetime
from typing import Any

import pytest

from ragpipe.reports.console import Progress, SafeStream, progress_line
from ragpipe.reports.runs_page import RunLine, run_list_text
from ragpipe.store.files.processes import Process
from ragpipe.store.run.progress_state import CallCounts, CaseCounts, ProgressState, TextCounts
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
    shown = state(**values)
    return progress_line(shown, label="judging", elapsed=elapsed, is_ended=is_ended, width=width, now=NOW)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (20, "12/40 | 1:20 left"),
        (45, "judging 12/40 cases | 1:20 left | waits 12 s"),
        (60, "judging 12/40 cases | 1:20 left | waits 12 s (429) | 1 error"),
        (80, "judging 12/40 cases | 1:20 left | waits 12 s (429) | 4.5/s | $0.1234 | 1 error"),
        (100, "judging 12/40 cases | 1:20 left | waits 12 s (429) | 96 sent, 90 answered, 2 failed | 1 error"),
        (
            160,
            "judging 12/40 cases | 1:20 left | waits 12 s (429) | 96 sent, 90 answered, 2 failed | 4 in flight | 4.5/s | "
            "12,345 tokens | $0.1234 | 1 error",
        ),
    ],
)
def test_a_busy_line_at_every_width(width: int, expected: str) -> None:
    assert line(width, **BUSY) == expected


@pytest.mark.parametrize("width", range(12, 161))
def test_cases_and_time_left_are_at_every_width_and_nothing_is_cut(width: int) -> None:
    shown = line(width, **BUSY)
    assert len(shown) <= max(width, len("12/40 | 1:20 left"))
    assert "12/40" in shown
    assert "1:20 left" in shown
    assert "…" not in shown


def test_a_longer_wait_and_one_of_less_than_a_second() -> None:
    hour = {**BUSY, "waiting_until": "2026-11-23T09:00:00.000Z", "waiting_for": "no answer"}
    assert "| waits 3,600 s (no answer) |" in line(**hour)
    assert "| 3 waiting (rpm) |" in line(**{**BUSY, "waiting_until": "2026-11-23T08:00:00.400Z", "waiting_for": "rpm"})


def test_the_end_has_the_duration_and_nothing_under_way() -> None:
    """What is in flight or waits at the end of an interrupted run is no news: it was given up."""
    whole = {**BUSY, "calls": CallCounts(sent=120, answered=120), "seconds_left": 0.0, "done": 40}
    assert line(elapsed=62.4, is_ended=True, **whole) == (
        "judging 40/40 cases | 1:02 | 120 sent, 120 answered | 4.5/s | 12,345 tokens | $0.1234 | 1 error"
    )
    assert line(elapsed=24.0, is_ended=True, **BUSY) == (
        "judging 12/40 cases | stopped after 0:24 | 96 sent, 90 answered, 2 failed | 4.5/s | 12,345 tokens | $0.1234 | 1 error"
    )


def test_an_unknown_price_is_said_and_embedded_texts_are_counted() -> None:
    assert "| price unknown |" in line(**{**BUSY, "usd": None})
    shown = line(texts=TextCounts(embedded=1024, waiting=256))
    assert shown == "judging 12/40 cases | estimating | 1,024 texts computed here, 256 waiting | 0 errors"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

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
def test_a_terminal_has_the_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "45")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(SafeStream(out), lambda: state(0, seconds_left=3725.0)) as shown:
        assert shown.live is not None
        assert "judging 0/40 cases | 1:02:05 left | 0 errors" in out.getvalue()


@pytest.mark.usefixtures("no_thread")
@pytest.mark.parametrize(("columns", "has_bar"), [("66", False), ("67", True)])
def test_the_bar_needs_room(monkeypatch: pytest.MonkeyPatch, columns: str, has_bar: bool) -> None:
    """The line has 45 characters; the bar, a space and the last column, which stays free, need 22."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(SafeStream(out), lambda: state(20, seconds_left=3725.0)):
        assert ("━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ judging 20/40" in out.getvalue()) == has_bar


@pytest.mark.usefixtures("no_thread")
def test_a_terminal_that_cannot_draw_a_line_again_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("ragpipe.reports.console.TICK_S", 0.01)
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
    assert (out.tries, stream.silent) == (1, True)
    assert len(kept) >= 5  # at the beginning, three times, at the end


SCORES = {"overall_score": "0.812 (40)", "faithfulness": "0.855 (39, coverage 97.5%)", "retrieval_score": "0.640 (40)"}
FIRST = RunLine(
    "83a94c0e1234", created="2026-11-20 09:15", state="complete", cases="40", judge="gpt-4o-2024-08-06 (uncalibrated)",
    scores=SCORES, gates="2 pass", cost="$0.1234",
)  # fmt: skip
SECOND = RunLine(
    "0f4e2d7a9b11", created="2026-11-21 17:02", state="complete", cases="40", judge="gpt-4o-2024-08-06 (uncalibrated)",
    scores={**SCORES, "overall_score": "0.790 (40)"}, gates="1 of 2 block", cost="$0.1301", before="83a94c0e1234",
    differences=("metrics +correctness -rubric", "2 prompts (a.grade, b.verify)", "judge.model: x -> y", "other data"),
)  # fmt: skip
BROKEN = RunLine("aaaaaaaaaaaa", broken="manifest.json: no readable JSON (Expecting value: line 1 column 1 (char 0))")
RUNS = [FIRST, SECOND, BROKEN]

AT_60 = """\
run           created           overall_score         gates
83a94c0e1234  2026-11-20 09:15     0.812 (40)        2 pass
0f4e2d7a9b11  2026-11-21 17:02     0.790 (40)  1 of 2 block
  against 83a94c0e1234: metrics +correctness -rubric; 3 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Ex ...
6 columns do not fit; runs.md has all"""

AT_80 = """\
run           created           state     cases  overall_score         gates
83a94c0e1234  2026-11-20 09:15  complete     40     0.812 (40)        2 pass
0f4e2d7a9b11  2026-11-21 17:02  complete     40     0.790 (40)  1 of 2 block
  against 83a94c0e1234: metrics +correctness -rubric; 3 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Expecting value: line ...
not shown in 80 columns: judge, faithfulness, retrieval_score, cost"""

AT_100 = """\
run           created           state     cases  overall_score         gates     cost
83a94c0e1234  2026-11-20 09:15  complete     40     0.812 (40)        2 pass  $0.1234
0f4e2d7a9b11  2026-11-21 17:02  complete     40     0.790 (40)  1 of 2 block  $0.1301
  against 83a94c0e1234: metrics +correctness -rubric; 2 prompts (a.grade, b.verify); 2 more
aaaaaaaaaaaa broken: manifest.json: no readable JSON (Expecting value: line 1 column 1 (char 0))
not shown in 100 columns: judge, faithfulness, retrieval_score"""


@pytest.mark.parametrize(("width", "expected"), [(60, AT_60), (80, AT_80), (100, AT_100)])
def test_the_list_at_a_width(width: int, expected: str) -> None:
    text = run_list_text(RUNS, width)
    assert max(map(len, text)) <= width
    assert text == expected.splitlines()


@pytest.mark.parametrize("width", range(30, 200, 7))
def test_no_word_of_a_head_and_no_number_is_broken(width: int) -> None:
    heads, first = run_list_text([FIRST], width)[:2]
    assert set(heads.split()) <= {"run", "created", "state", "cases", "judge", *SCORES, "gates", "cost"}
    assert {"run", "overall_score"} <= set(heads.split())
    assert first.startswith("83a94c0e1234")
    assert "0.812 (40)" in first


def test_where_all_fits_nothing_is_left_out() -> None:
    text = run_list_text([FIRST], 200)
    assert len(text) == 2
    assert text[0].split() == ["run", "created", "state", "cases", "judge", *SCORES, "gates", "cost"]


def test_a_run_like_the_one_before_it_says_so() -> None:
    same = RunLine("bbbbbbbbbbbb", created="2026-11-21 17:02", state="not scored", before="83a94c0e1234")
    assert "  nothing against 83a94c0e1234" in run_list_text([same], 80)


def test_control_characters_of_a_strangers_folder_are_shown_as_text() -> None:
    evil = RunLine("cccccccccccc", created="\x1b[2J now", state="complete")
    assert "\x1b" not in "\n".join(run_list_text([evil], 80))
