"""Figures as people read them."""

import io
from typing import Any

import pytest

from ragpipe.reports.console import Console
from ragpipe.reports.metrics_view import score_cell
from ragpipe.reports.model import ScoreCell
from ragpipe.reports.styled_text import Grey


def score(mean: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    interval = None if low is None else {"low": low, "high": high, "method": "wilson", **more.pop("bounds", {})}
    return {"n_ok": 40, "mean": mean, "interval": interval, "coverage": 1.0, **more}


@pytest.mark.parametrize(
    ("found", "percent", "lines"),
    [
        (score(0.875, 0.789, 0.93, pass_rate=0.9, n_judged=40), True, ["87.5 [78.9, 93.0]", "90% of 40"]),
        (score(0.875, 0.789, 0.93), False, ["0.88 [0.79, 0.93]", "n = 40"]),
        # the bounds of a mean at an end are on one side of it: no half-width says that
        (score(1.0, 0.91, 1.0, n_ok=36), True, ["100.0 [91.0, 100.0]", "n = 36"]),
        (score(0.0, 0.0, 0.56, n_ok=3, bounds={"too_few": True}), False, ["0.00 [0.00, 0.56]", "n = 3", "too few"]),
        (score(1.0, None, None, n_ok=1, interval_reason="one_value"), False, ["1.00", "n = 1", "too few"]),
        (score(4.0, None, None, n_ok=9, interval_reason="no_spread"), False, ["4.00", "n = 9"]),
        (score(0.5, 0.4, 0.6, coverage=0.9), False, ["0.50 [0.40, 0.60]", "n = 40", "coverage 90.0%"]),
        (score(0.5, 0.4, 0.6, coverage=0.9999), False, ["0.50 [0.40, 0.60]", "n = 40", "coverage 99.9%"]),
        (None, False, ["-", "skipped"]),
    ],
)  # fmt: skip
def test_a_cell_says_mean_interval_count_and_what_is_missing(
    found: dict[str, Any] | None, percent: bool, lines: list[str]
) -> None:
    assert score_cell(found, percent=percent).lines == lines


def test_what_rests_on_too_few_questions_is_grey() -> None:
    assert score_cell(score(0.0, 0.0, 0.56, bounds={"too_few": True})).few
    assert not score_cell(score(0.0, 0.0, 0.56)).few


def test_a_narrow_cell_has_the_interval_below_the_mean() -> None:
    assert ScoreCell("87.5", "[78.9, 93.0]", "90% of 40").narrow_lines == ["87.5", "[78.9, 93.0]", "90% of 40"]


def test_a_grey_text_is_dim_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    Console(out=out, err=io.StringIO()).table(["score", "a", "b"], [["hit", Grey("0.1"), "0.2"]])
    dim = [part for part in out.getvalue().split("\x1b[") if part.startswith("2m")]
    assert [part for part in dim if "0.1" in part]
    assert not [part for part in dim if "0.2" in part]
