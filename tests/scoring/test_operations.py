"""How the systems and the judge ran: counts, rates and latencies by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_tables import Chunk, Row, score, stored, write_run

from ragpipe.reports.console import operations_line
from ragpipe.reports.markdown import markdown
from ragpipe.reports.sections import asked_line
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.final_cost import final_cost
from ragpipe.scoring.ledger import is_timeout

FAITHFUL = ScoreSpec("faithfulness")
PDF, MARKDOWN = (Chunk(id="c1", rank=1, doc_type=kind) for kind in ("pdf", "markdown"))
ROWS = [
    Row("q1", "a", {"faithfulness": 1.0}, {}, {"chunks": [PDF], "timings": {"retrieval": 100.0, "generation": 300.0}}),
    Row("q2", "a", {"faithfulness": 1.0}, {}, {"chunks": [PDF], "answer": " \n", "timings": {"retrieval": 200.0, "generation": 300.0}}),
    Row("q3", "a", {}, {}, {"chunks": [MARKDOWN], "answer": "", "error": "timeout after 30 s", "timings": {"total": 30000.0}}),
    Row("q4", "a", {}, {}, {"chunks": [], "answer": "", "error": "HTTP 500 from the service"}),
    Row("q1", "b", {"faithfulness": 0.0}, {}, {"chunks": [MARKDOWN], "abstained": True}),
]  # fmt: skip


def test_rates_are_shares_of_all_cases_and_a_failure_is_no_empty_answer(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    found = score(tmp_path, [FAITHFUL])
    counts = {k: v for k, v in found["overall"]["operations"].items() if k != "latency_ms"}
    assert counts == {
        "n_error": 2, "n_timeout": 1, "n_empty": 1, "n_abstained": 1,
        "error_rate": 0.4, "timeout_rate": 0.2, "empty_rate": 0.2,
    }  # fmt: skip
    assert found["by"]["method"]["a"]["operations"]["error_rate"] == 0.5
    assert found["by"]["method"]["b"]["operations"]["n_abstained"] == 1
    assert found["by"]["doc_type"]["pdf"]["operations"]["n_empty"] == 1
    assert found["by"]["doc_type"]["markdown"]["operations"]["timeout_rate"] == 0.5


def test_latency_is_told_stage_by_stage(tmp_path: Path) -> None:
    """`total` is the system's own where it gives one, else the sum: 400, 500 and 30,000 ms. p95 = 500 + .9 x 29,500."""
    write_run(tmp_path, ROWS)
    times = score(tmp_path, [FAITHFUL])["overall"]["operations"]["latency_ms"]
    assert times["retrieval"] == {"n": 2, "mean": 150.0, "p50": 150.0, "p95": pytest.approx(195.0)}
    assert times["generation"] == {"n": 2, "mean": 300.0, "p50": 300.0, "p95": 300.0}
    assert times["total"] == {"n": 3, "mean": pytest.approx(10300.0), "p50": 500.0, "p95": pytest.approx(27050.0)}


@pytest.mark.parametrize(("error", "expected"), [
    ("timeout after 30 s", True), ("ReadTimeout: no answer", True), ("the request timed out", True), ("HTTP 504 from x", True),
    ("HTTP 408 from x", True), ("DEADLINE EXCEEDED", True), ("HTTP 500 from x", False), ("no route to port 5048", False),
    ("sometimes outside", False), ("", False), (None, False), ("HTTP 503 from x: upstream timeout", False),
    ("HTTP 504 from x: bad gateway", True), ("HTTP 500 from x: deadline exceeded", False),
])  # fmt: skip
def test_which_errors_are_timeouts(error: str | None, expected: bool) -> None:
    assert is_timeout(error) is expected


def call(key: str, sample: str, status: str = "ok", ms: float | None = 100.0, attempts: int = 1) -> dict[str, Any]:
    return {
        "sample_id": sample, "method": "a", "iteration": 1, "metric": "faithfulness", "judge": "m", "key": key, "status": status,
        "latency_ms": ms, "attempts": attempts, "cost_usd": 0.0,
    }  # fmt: skip


CALLS = [
    call("k1", "q1"), call("k2", "q1", ms=300.0, attempts=3), call("k3", "q2", "deadline", 900.0, 2),
    call("k4", "q2", "empty_reply"), call("k5", "q3", "missing_reply", None, 0), call("k1", "q4"),
]  # fmt: skip


def test_the_judge_is_measured_too(tmp_path: Path) -> None:
    """Five different calls, four sent, two of them failed; the cases took 400, 1,000 and (a shared reply) 100 ms."""
    write_run(tmp_path, ROWS, CALLS, group=2)
    score(tmp_path, [FAITHFUL])
    used = stored(tmp_path, "cost.json")["used"]
    assert used["failures"] == {"deadline": 1, "empty_reply": 1, "missing_reply": 1}
    assert (used["error_rate"], used["timeout_rate"], used["empty_rate"], used["retries"]) == (0.5, 0.25, 0.25, 3)
    assert used["by_judge"]["m"]["error_rate"] == 0.5
    assert used["case_latency_ms"] == {"n": 3, "p50": 400.0, "p95": pytest.approx(940.0), "sum": 1500.0}


def test_a_case_that_goes_on_in_the_next_batch_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragpipe.scoring.operations._BATCH", 1)
    write_run(tmp_path, ROWS, CALLS)
    score(tmp_path, [FAITHFUL])
    assert stored(tmp_path, "cost.json")["used"]["case_latency_ms"]["sum"] == 1500.0
    assert stored(tmp_path, "cost.json")["used"]["case_latency_ms"]["n"] == 3


def test_rates_over_iterations_are_those_of_the_sums(tmp_path: Path) -> None:
    """Two failures of four calls sent, and none of one: 2 / 5."""
    write_run(tmp_path / "x", ROWS, CALLS)
    write_run(tmp_path / "y", ROWS, CALLS[:1])
    bills = {}
    for number, name in enumerate("xy", 1):
        score(tmp_path / name, [FAITHFUL])
        bills[number] = stored(tmp_path / name, "cost.json")
    used = final_cost(bills)["total"]["used"]
    assert (used["error_rate"], used["by_judge"]["m"]["timeout_rate"]) == (0.4, 0.2)
    assert used["case_latency_ms"] == {"n": 4, "sum": 1600.0}


def test_reports_tell_it_in_a_few_lines(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS, [*CALLS, call("k9", "q4", "<b>odd</b>")])
    found = score(tmp_path, [FAITHFUL])
    cost = stored(tmp_path, "cost.json")
    line = operations_line(found)
    assert line.startswith("system: 2 errors, 1 timeouts, 1 empty answers; ")
    assert "retrieval 150 / 195" in line
    assert "total 500 / 27,050" in line
    assert "error rate 60.0%, timeout rate 20.0%, empty rate 20.0%" in asked_line(cost["used"])
    page = markdown(found, cost, [], ReportSettings())
    assert "| `a` | 4 | 2 (50.0%) | 1 (25.0%) | 1 (25.0%) | 0 |" in page
    assert "| `pdf` | 2 | 0 | 0 | 1 (50.0%) | 0 |" in page
    assert "`<b>odd</b>` 1" in page
