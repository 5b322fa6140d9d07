"""A history as OpenMetrics, read by prometheus_client; the page."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ragpipe.comparison.history import HISTORY
from ragpipe.report.exports import open_metrics
from ragpipe.report.history_page import history_headline, history_report, newest_mode_rows, newest_rows
from ragpipe.report.markdown import render_answer

openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")


def row(run: str, day: int, score: str = "faithfulness", **cells: Any) -> dict[str, Any]:
    empty = dict.fromkeys(HISTORY.names)
    given = {
        "run_id": run, "created_at": f"2026-11-{day:02d}T10:00:00.250+00:00", "judge": 'a "judge"\\', "data": "demo\nset",
        "n_cases": 40, "iterations": 1, "kind": "score", "score": score, "series": "s1", "headline": True, "low": 0.0, "high": 1.0,
        "higher_is_better": True, "n": 40, "mean": 0.5, "interval_low": 0.4, "interval_high": 0.6,
    }  # fmt: skip
    return {**empty, **given, **cells}


ROWS = [
    row("a" * 12, 1),
    row("a" * 12, 1, "mrr", mean=0.25),
    row("b" * 12, 2, before_state="worse", before_difference=-0.1, before_low=-0.15, before_high=-0.05, noise_floor=0.02,
        before_run="a" * 12, first_state="worse", first_difference=-0.1, first_low=-0.15, first_high=-0.05),
    row("b" * 12, 2, "mrr", mean=None, interval_low=None, interval_high=None),
    row("c" * 12, 3, mean=0.75, series="s2"),
]  # fmt: skip


def samples(text: str, name: str, parser: Any = openmetrics) -> list[Any]:
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    return list(families[name].samples) if name in families else []


def test_prometheus_reads_every_sample_with_its_time() -> None:
    text = open_metrics(ROWS, name="nightly")
    means = samples(text, "ragpipe_score_mean")
    assert [(s.labels["score"], s.labels["series"], s.value) for s in means] == [
        ("faithfulness", "s1", 0.5), ("faithfulness", "s1", 0.5), ("faithfulness", "s2", 0.75), ("mrr", "s1", 0.25),
    ]  # fmt: skip
    assert all(s.labels["name"] == "nightly" for s in means)
    first = datetime(2026, 11, 1, 10, 0, 0, 250_000, UTC).timestamp()
    assert float(means[0].timestamp) == pytest.approx(first, abs=1e-3)
    verdicts = samples(text, "ragpipe_score_verdict")
    assert {s.labels["verdict"]: s.value for s in verdicts} == {"better": 0, "worse": 1, "same": 0, "inconclusive": 0}
    assert [s.value for s in samples(text, "ragpipe_score_change")] == [-0.1]
    assert [s.value for s in samples(text, "ragpipe_run_cases")] == [40.0] * 3
    assert samples(text, "ragpipe_run_cost_usd") == [], "no price is known: no sample, and no family"
    info = samples(text, "ragpipe_run_info")
    assert [s.labels["run_id"][0] for s in info] == ["a", "b", "c"]
    assert (info[0].labels["judge"], info[0].labels["data"]) == ('a "judge"\\', "demo\nset")
    assert text.endswith("# EOF\n")


def test_the_history_of_scores_and_failure_modes() -> None:
    said = history_headline(ROWS[:4], "worse: faithfulness -0.100")
    assert said == f"2 runs; the newest, {'b' * 12}, against the previous run: worse: faithfulness -0.100"
    assert "has no earlier run" in history_headline(ROWS, None)
    cells = {cells[0]: cells[1:] for cells in newest_rows(ROWS[:4])}
    assert cells["faithfulness"] == ["2", "0.500 [0.400, 0.600]", "-0.100 [-0.150, -0.050] worse", "-0.100 [-0.150, -0.050] worse", "0.020"]
    assert cells["mrr"] == ["2", "-", "-", "-", "-"]
    mode = {"kind": "failure_mode", "headline": False, "higher_is_better": False, "interval_low": 0.014, "interval_high": 0.052}
    change = {"before_run": "a" * 12, "before_mean": 0.13, "before_difference": -0.1033, "before_low": -0.138, "before_high": -0.0687}
    rows = [
        row("a" * 12, 1, "mrr"), row("a" * 12, 1, "mrr", **mode | {"mean": 0.13}),
        row("b" * 12, 2, "mrr"), row("b" * 12, 2, "mrr", **mode | change | {"mean": 0.0267, "before_state": "better"}),
        row("b" * 12, 2, "never", **mode | {"mean": 0.0, "before_mean": 0.0, "before_difference": 0.0, "before_state": "same"}),
    ]  # fmt: skip
    assert newest_mode_rows(rows) == [["mrr", "2", "2.7 % [1.4 %, 5.2 %]", "13.0 % -> 2.7 %", "↓ better"]]
    assert "| `mrr` | 2 | 2.7 % [1.4 %, 5.2 %] | 13.0 % -> 2.7 % | ↓ better |" in render_answer(history_report("nightly", rows, "-"))
    text = open_metrics(rows, name="nightly")
    found = [(s.labels["failure_mode"], s.value) for s in samples(text, "ragpipe_failure_mode_ratio")]
    assert found == [("mrr", 0.13), ("mrr", 0.0267), ("never", 0.0)]
    assert [s.value for s in samples(text, "ragpipe_failure_mode_change")] == [-0.1033, 0.0]
    assert len(samples(text, "ragpipe_score_mean")) == 2
