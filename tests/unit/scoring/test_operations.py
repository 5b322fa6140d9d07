"""How the systems and the judge ran: counts, rates and latencies by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ragpipe.judging.pricing import own_rates
from ragpipe.judging.settings import Price
from ragpipe.reports.model import plain_text
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.cost_section import cost_per_case, judge_line, operations_section
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import is_timeout
from ragpipe.scoring.iterations.over_iterations import final_cost
from ragpipe.scoring.system_usage import figures
from tests.support.pages import DOCS
from tests.support.reports import line_of, page_of, report_of, terminal_of
from tests.support.run_tables import Chunk, Citation, Row, records, score, spent, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

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
    counts = {k: v for k, v in found["overall"]["operations"].items() if k not in ("latency_ms", "usage")}
    assert counts == {
        "n_error": 2, "n_timeout": 1, "n_empty": 1, "n_abstained": 1, "n_retried": 0,
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
        "latency_ms": ms, "attempts": attempts, "paid_by": "me/1" if attempts else None, "paid_usd": 0.0,
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


def test_a_reply_that_cannot_be_parsed_is_no_failed_call(tmp_path: Path) -> None:
    """The case failed, the call did not: it was answered and paid. docs/latency.md and docs/file-formats.md say so alike."""
    calls = [
        {**call("k1", "q1"), "flags": ["unparsable"]},
        {**call("k2", "q1"), "turn": "repair", "flags": ["unparsable"]},
    ]
    write_run(tmp_path, [Row("q1", "a", {"faithfulness": ("error", "unparsable: no JSON")})], calls)
    metrics = score(tmp_path, [FAITHFUL])
    used = stored(tmp_path, "cost.json")["used"]
    assert (used["calls"], used["calls_failed"], used["failures"], used["error_rate"]) == (2, 0, {}, 0.0)
    assert metrics["overall"]["scores"]["faithfulness"]["errors"] == {"unparsable": 1}


def test_the_page_of_formats_names_every_key_of_used(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS, CALLS)
    score(tmp_path, [FAITHFUL])
    page = (DOCS / "file-formats.md").read_text(encoding="utf-8")
    section = page.partition("\n## cost.json\n")[2].partition("\n## ")[0]
    used = stored(tmp_path, "cost.json")["used"]
    assert [key for key in used if f"`{key}`" not in section] == []
    in_total_only = re.search(r"`used` has further \((.*?) in total only", section)
    assert in_total_only is not None
    assert set(re.findall(r"`(\w+)`", in_total_only[1])) == used.keys() - used["by_judge"]["m"].keys() - {
        "by_metric",
        "by_judge",
    }


def test_both_pages_say_the_same_of_failed_calls() -> None:
    pages = [(DOCS / page).read_text(encoding="utf-8") for page in ("latency.md", "file-formats.md")]
    for keys in ("`calls_failed`, `failures`", "`error_rate`, `timeout_rate`, `empty_rate`"):
        assert len({re.search(rf"^\| {keys} \|.*$", page, re.M)[0] for page in pages}) == 1


def test_a_case_that_goes_on_in_the_next_batch_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragpipe.scoring.case_blocks._BATCH", 1)
    write_run(tmp_path, ROWS, CALLS)
    score(tmp_path, [FAITHFUL])
    assert stored(tmp_path, "cost.json")["used"]["case_latency_ms"]["sum"] == 1500.0
    assert stored(tmp_path, "cost.json")["used"]["case_latency_ms"]["n"] == 3


def test_what_a_case_costs_on_average(tmp_path: Path) -> None:
    """Two calls of 1,000 and 500 tokens in and 100 out each at $200 and $500 a million: $0.25 and $0.15, over the five
    cases; two cases took 100 and 300 ms."""
    calls = [
        {**call("k1", "q1"), "tokens_in": 1000, "tokens_out": 100},
        {**call("k2", "q2", ms=300.0), "tokens_in": 500, "tokens_out": 100},
    ]
    write_run(tmp_path, ROWS, calls)
    rates = own_rates("m", Price(input=200.0, output=500.0), "judge.prices")
    found = score(tmp_path, [FAITHFUL], rates={"m": rates}, spent=spent(2))
    expected = (
        "A case on average: 0.4 calls, 300.0 tokens in, 40.0 out, 200 ms (of the cases with a measured time), $0.0800."
    )
    assert cost_per_case(stored(tmp_path, "cost.json")["used"]) == expected
    assert expected in page_of(found, stored(tmp_path, "cost.json"))


def system_line(metrics: dict[str, Any]) -> str:
    """What the terminal says of the system."""
    return line_of(terminal_of(report_of(operations_section(ReportData(metrics, {}))), 200), "system: ")


def test_the_time_of_a_case_and_its_citations_stand_in_its_record(tmp_path: Path) -> None:
    """q1: 100 + 300; q2: 900 + 100; q3 was asked without a measured call; q4 shares the reply of q1's first call."""
    write_run(tmp_path, ROWS, CALLS, group=2)
    score(tmp_path, [FAITHFUL], block=2)
    assert [row["judge_duration_ms"] for row in records(tmp_path)][:4] == [400.0, 1000.0, None, 100.0]
    given = [{"citations": [Citation(marker="[1]", chunk_id="c1")]}, {"citations": []}, {}]
    write_run(tmp_path, [Row(f"q{n}", "a", {"faithfulness": 1.0}, output=one) for n, one in enumerate(given)])
    score(tmp_path, [FAITHFUL])
    assert [row["citations"] for row in records(tmp_path)] == ['[{"marker":"[1]","chunk_id":"c1"}]', "[]", None]


def used_by(root: Path, usages: list[dict[str, float]], **more: Any) -> dict[str, Any]:
    """`metrics.json` of cases q0, q1 ... of methods a, b, a, b ... with these usages, scored two at once."""
    rows = [Row(f"q{n}", "ab"[n % 2], {"faithfulness": 1.0}, output={"usage": one}) for n, one in enumerate(usages)]
    write_run(root, rows)
    return score(root, [FAITHFUL], block=2, **more)


def test_tokens_and_money_of_the_system(tmp_path: Path) -> None:
    """Four answers of 100, 200, 300, 400 tokens in and 10 out each, at $1 and $10 per million: the first costs 100 + 100
    millionths, the last 400 + 100. Mean 250 + 100 = 350 millionths, sum 1,400."""
    usages = [{"tokens_in": 100.0 * n, "tokens_out": 10.0} for n in (1, 2, 3, 4)]
    found = used_by(tmp_path, [*usages, {}], system_price=Price(input=1, output=10).usd)
    used = found["overall"]["operations"]["usage"]
    assert (used["n_cases"], used["n_unpriced"]) == (4, 0)
    # numpy's linear percentiles of 1, 2, 3, 4: the median is 2.5, p95 stands at 3 * .95 = 2.85 steps from the first
    assert used["tokens_in"] == {"n": 4, "sum": 1000, "mean": 250, "p50": 250, "p95": pytest.approx(385)}
    assert used["tokens_total"]["sum"] == 1040
    assert used["cost_usd"] == {
        "n": 4, "sum": pytest.approx(1400e-6), "mean": pytest.approx(350e-6), "p50": pytest.approx(350e-6),
        "p95": pytest.approx(485e-6),
    }  # fmt: skip
    by = {name: group["operations"]["usage"] for name, group in found["by"]["method"].items()}
    assert {name: one["tokens_in"]["mean"] for name, one in by.items()} == {"a": 200, "b": 300}


def test_an_unknown_price_is_null_and_the_tokens_are_told(tmp_path: Path) -> None:
    usages = [{"tokens_in": 100.0, "tokens_out": 10.0}, {"tokens_in": 100.0, "tokens_out": 10.0, "cost_usd": 0.5}]
    used = used_by(tmp_path, usages)["overall"]["operations"]["usage"]
    assert (used["tokens_in"]["sum"], used["cost_usd"], used["n_unpriced"]) == (200, None, 1)
    # a price of its own goes before the list's; a total alone cannot be priced
    price = Price(input=1, output=1).usd
    used = used_by(tmp_path, usages, system_price=price)["overall"]["operations"]["usage"]
    assert used["cost_usd"]["sum"] == pytest.approx(0.5 + 110e-6)
    used = used_by(tmp_path, [{"total_tokens": 7.0}], system_price=price)["overall"]["operations"]["usage"]
    assert used == {
        "n_cases": 1, "tokens_total": {"n": 1, "sum": 7, "mean": 7, "p50": 7, "p95": 7}, "cost_usd": None, "n_unpriced": 1,
    }  # fmt: skip
    assert used_by(tmp_path, [{}, {}])["overall"]["operations"]["usage"] == {}


@pytest.mark.parametrize(("given", "expected"), [
    ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 8}, {"tokens_in": 5, "tokens_out": 2, "tokens_total": 8}),
    ({"input_tokens": 5, "output_tokens": 2}, {"tokens_in": 5, "tokens_out": 2, "tokens_total": 7}),
    ({"tokens_in": 5, "cached_tokens": 3}, {"tokens_in": 5, "tokens_cached": 3}),
    ({"searches": 2}, {"searches": 2}),
])  # fmt: skip
def test_the_names_of_providers_are_one_vocabulary(given: dict[str, float], expected: dict[str, float]) -> None:
    assert figures(given, None) == expected


def test_cached_tokens_have_their_price() -> None:
    """1,000 in, 400 of them cached at half the price, 100 out: 600 + 200 + 1,000 millionths."""
    price = Price(input=1, output=10, cached_input=0.5).usd
    found = figures({"tokens_in": 1000, "tokens_out": 100, "tokens_cached": 400}, price)
    assert found["cost_usd"] == pytest.approx(1800e-6)


def test_reasoning_tokens_have_their_price() -> None:
    """1,000 in, 100 out, 40 of them thought at 2 instead of 10: 1,000 + 600 + 80 millionths."""
    price = Price(input=1, output=10, reasoning=2).usd
    found = figures({"tokens_in": 1000, "tokens_out": 100, "reasoning_tokens": 40}, price)
    assert found["cost_usd"] == pytest.approx(1680e-6)
    assert found["tokens_reasoning"] == 40


@pytest.mark.slow
def test_reports_tell_what_the_system_used(tmp_path: Path) -> None:
    usages = [{"tokens_in": 1200.0, "tokens_out": 50.0, "cost_usd": 0.014}] * 2
    found = used_by(tmp_path, usages)
    page = page_of(found, stored(tmp_path, "cost.json"))
    assert "### Tokens and money of the system" in page
    assert "| `a` | 1 | 1,200.0 | 50.0 | 1,250 / 1,250 | 1,250 | $0.0140 | $0.0140 |" in page
    assert system_line(found) == "system: 1,200.0 tokens in, 50.0 out per answer, $0.0140 per answer"
    assert "| `b` | 1 | 1,200.0 |" in page
    unknown = used_by(tmp_path, [{"tokens_in": 1200.0, "tokens_out": 50.0}, {}])
    assert system_line(unknown).endswith("50.0 out per answer, price unknown")
    assert "system.prices" in page_of(unknown, stored(tmp_path, "cost.json"))
    assert "Tokens and money" not in page_of(used_by(tmp_path, [{}]), stored(tmp_path, "cost.json"))


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
    line = system_line(found)
    assert line.startswith("system: 2 errors, 1 timeouts, 1 empty answers; ")
    assert "retrieval 150 / 195" in line
    assert "total 500 / 27,050" in line
    assert "error rate 60.0%, timeout rate 20.0%, empty rate 20.0%" in plain_text(judge_line(cost["used"]))
    page = page_of(found, cost)
    assert "| `a` | 4 | 2 (50.0%) | 1 (25.0%) | 1 (25.0%) | 0 |" in page
    assert "| `pdf` | 2 | 0 | 0 | 1 (50.0%) | 0 |" in page
    assert "`<b>odd</b>` 1" in page
