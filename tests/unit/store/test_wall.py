"""The wall clock of an iteration: kept through starts, and never in the way of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.store.run import progress_state
from ragpipe.store.run.progress_state import WallClock, judged_seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock as a list of one number that a test may change."""
    times = [100.0]
    monkeypatch.setattr(progress_state.time, "monotonic", lambda: times[0])
    return times


def test_the_time_of_a_killed_start_is_kept(tmp_path: Path, now: list[float]) -> None:
    """12 s in a start that was killed at its 14th second, then 3 s in the one that goes on."""
    path = tmp_path / ".wall.json"
    clock = WallClock(path)
    for now[0] in (102.0, 107.0, 109.0, 112.0, 114.0):  # written at 7 and at 12
        clock.tick()
    assert json.loads(path.read_text()) == {"judging_s": 12.0}
    now[0] = 900.0
    again = WallClock(path)
    now[0] = 903.0
    again.write()
    assert judged_seconds(path) == 15.0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"judging_s": "x"}', '{"judging_s": -1}', '{"judging_s": true}'])
def test_a_file_that_says_nothing_starts_from_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".wall.json"
    assert judged_seconds(path) is None
    path.write_text(text)
    assert judged_seconds(path) is None
    assert WallClock(path).seconds < 1


def test_a_file_that_cannot_be_written_costs_the_time_alone(tmp_path: Path) -> None:
    WallClock(tmp_path / "gone" / ".wall.json").write()
