"""low_scores.json: bands, shares, examples, where low cases cluster, reasons, flags; and what bands cannot be."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.judge.settings import PriceSettings
from ragpipe.report.chunk_section import versions_section
from ragpipe.report.report_data import ReportData
from ragpipe.score.accumulators import is_timeout
from ragpipe.score.settings import ScoringSettings
from ragpipe.score.system_usage import figures
from tests.support.pages import DOCS
from tests.support.reports import markdown_of, report_of
from tests.support.run_tables import Chunk, Citation, Row, records, score, stored, write_run

pytestmark = pytest.mark.slow
FAITHFUL_AXIS, COMPLETE_AXIS = ScoreSpec("answer_faithfulness", 1, 5), ScoreSpec("answer_completeness", 1, 5)
FAITHFUL, CORRECT = ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)
NOISE = ScoreSpec("noise", 0, 1, higher_is_better=False)
YES_NO, COUNT = ScoreSpec("chunk_faithfulness", binary=True), ScoreSpec("n_claims", None, None)


def low(root: Path, specs: list[ScoreSpec], rows: list[Row], **settings: Any) -> dict[str, Any]:
    """`scores` of low_scores.json over these rows, scored in blocks of three."""
    write_run(root, rows)
    score(root, specs, ScoringSettings(slices=[], **settings), block=3)
    found: dict[str, Any] = stored(root, "low_scores.json")
    assert set(found) == {"format", "signature", "iteration", "scores"}
    return dict(found["scores"])


def of(name: str, values: list[Any]) -> list[Row]:
    return [Row(f"q{n}", "a", {name: value}) for n, value in enumerate(values)]


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {band["name"]: band["n"] for band in found["bands"]}


TABLE = [
    # answer-synthesis-evaluation.md: completely false (1), mostly false (2), mixed (3); 4 and 5 are not low
    (FAITHFUL_AXIS, [1, 1, 2, 3, 3, 3, 4, 5], {"completely_false": 2, "mostly_false": 1, "mixed": 3}),
    # completeness failures (1-3), by the labels of the rubric
    (COMPLETE_AXIS, [1, 2, 2, 3, 4, 5, 5], {"fail": 1, "weak": 2, "descriptive_only": 1}),
    (CORRECT, [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.5], {"wrong": 1, "mostly_wrong": 2, "partly_right": 2}),
    # a last band without an end takes what is left of those that did not pass (0.85)
    (FAITHFUL, [0.0, 0.5, 0.51, 0.84, 0.85, 1.0], {"nothing_supported": 1, "half_or_less": 1, "some_unsupported": 2}),
    # the default bands go by `score` among what did not pass
    (YES_NO, [0, 0, 1], {"lowest": 2, "low": 0, "under_threshold": 0}),
    (FAITHFUL, [("skipped", "x"), ("error", "refused: no"), 0.0], {"nothing_supported": 1, "half_or_less": 0, "some_unsupported": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "values", "bands"), TABLE)
def test_bands(tmp_path: Path, spec: ScoreSpec, values: list[Any], bands: dict[str, int]) -> None:
    found = low(tmp_path, [spec], of(spec.name, values))[spec.name]
    n = sum(isinstance(value, int | float) for value in values)
    assert counts(found) == bands
    assert (found["n_ok"], found["n_low"], found["share"]) == (n, sum(bands.values()), sum(bands.values()) / n)
    assert [band["share"] for band in found["bands"]] == [count / n for count in bands.values()]


SIMILAR, BERT = ScoreSpec("semantic_similarity", 0, 100), ScoreSpec("bert_score_f1", 0, 100)
READINGS = [
    # graphrag-metrics.md 7: 100 near-identical, 90-99 equivalent, 80-89 core meaning, under 80 divergent (its own examples)
    (SIMILAR, [100.0, 99.99, 96.72, 90.75, 90.0, 89.99, 87.97, 80.0, 79.99, 12.5],
     {"significantly_divergent": 2, "core_meaning_preserved": 3, "equivalent_with_minor_variations": 3, "near_identical": 2}),
    # 8: 99-100, 70-99, 30-70, 0-30; its edges overlap, and the lower band takes them
    (BERT, [99.99, 99.0, 72.38, 70.0, 30.0, 16.23, 6.62],
     {"very_different": 3, "similar_meaning_other_phrasing": 1, "very_similar": 2, "near_identical": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "values", "bands"), READINGS)
def test_the_graphrag_bands_read_high_values_too_and_call_only_low_ones_low(tmp_path, spec, values, bands) -> None:
    found = low(tmp_path, [spec], of(spec.name, values))[spec.name]
    assert counts(found) == bands
    assert [band["low"] for band in found["bands"]] == [True, True, False, False]
    assert found["n_low"] == sum(list(bands.values())[:2])
    assert [bool(band["examples"]) for band in found["bands"]] == [True, True, False, False]
    # by method: all are of one, so none stands out; reasons are those of the low cases ("fine" is every case's)
    assert found["reasons"] == [{"reason": "fine", "n": found["n_low"]}]


def test_bands_go_down_where_lower_is_better_and_what_is_left_out(tmp_path: Path) -> None:
    values, thresholds = [1.0, 0.9, 0.6, 0.3, 0.0], {"noise": 0.2}
    own = {"bands": {"noise": [{"name": "worst", "up_to": 0.9}, {"name": "bad", "up_to": 0.5}]}}
    assert counts(low(tmp_path, [NOISE], of("noise", values), thresholds=thresholds, low_scores=own)["noise"]) == {"worst": 2, "bad": 1}
    default = low(tmp_path, [NOISE], of("noise", values), thresholds=thresholds)["noise"]
    assert counts(default) == {"lowest": 1, "low": 2, "under_threshold": 1}  # as `score`: 0, 0.1, 0.4, 0.7, 1
    rows = [Row("q", "a", {"n_claims": 7.0, "mrr": 0.0, "faithfulness": 0.1, "correctness": ("skipped", "x")})]
    specs = [COUNT, ScoreSpec("mrr"), FAITHFUL, CORRECT]
    assert set(low(tmp_path, specs, rows)) == {"faithfulness"}
    assert low(tmp_path, specs, rows, low_scores={"bands": {"faithfulness": None}}) == {}
    found = low(tmp_path, [FAITHFUL], of("faithfulness", [0.0] * 7))["faithfulness"]["bands"][0]
    assert [example["sample_id"] for example in found["examples"]] == ["q0", "q1", "q2", "q3", "q4"]
    assert found["examples"][0] == {"sample_id": "q0", "method": "a", "repeat": 1, "value": 0.0, "reason": "fine"}
    assert found["advice"]


def test_clusters_with_their_lift(tmp_path: Path) -> None:
    """12 cases, 6 low (share 0.5). hard: 4 of 5 low, lift 0.8 / 0.5 = 1.6; easy: 2 of 7, 0.57: not named.
    method b: 2 of 2, lift 2, but fewer than three low cases: not named."""
    rows = [
        Row(f"q{n}", "b" if n in (0, 1) else "a", {"correctness": 1.0 if n in (0, 1, 2, 3, 5, 6) else 5.0},
            {"category": "hard" if n < 5 else "easy", "question_type": "x"})
        for n in range(12)
    ]  # fmt: skip
    found = low(tmp_path, [CORRECT], rows)["correctness"]["patterns"]
    assert found == {"category": [{"value": "hard", "n_low": 4, "n": 5, "share": 0.8, "lift": 1.6}]}


def test_reasons_that_differ_in_numbers_quotes_and_case_are_one(tmp_path: Path) -> None:
    said = [
        'Claims  1.5 of 3, "alpha"', 'claims 2 of 10, "beta gamma"', "CLAIMS 7 OF 7, \u201cdelta\u201d", "Wrong date", "wrong date",
        "once only",
    ]  # fmt: skip
    rows = [Row(f"q{n}", "a", {"correctness": 1.0}) for n in range(len(said))]
    folder = write_run(tmp_path, rows)
    table = pq.read_table(folder / "scores.parquet")
    table = table.set_column(table.schema.get_field_index("reason"), "reason", pa.array(said))
    pq.write_table(table, folder / "scores.parquet")
    score(tmp_path, [CORRECT], block=2)
    found = stored(tmp_path, "low_scores.json")["scores"]["correctness"]
    assert found["reasons"] == [{"reason": 'claims # of #, "..."', "n": 3}, {"reason": "wrong date", "n": 2}]
    assert found["bands"][0]["examples"][0]["reason"] == 'Claims 1.5 of 3, "alpha"'


def test_the_overall_score_has_the_bands_that_it_is_given_and_no_others(tmp_path: Path) -> None:
    rows = of("faithfulness", [0.1, 0.3, 0.9, ("error", "refused: no")])
    assert set(low(tmp_path, [FAITHFUL], rows)) == {"faithfulness"}
    bands = {"overall_score": [{"name": "poor", "up_to": 0.2}, {"name": "weak", "up_to": 0.5}]}
    found = low(tmp_path, [FAITHFUL], rows, low_scores={"bands": bands})["overall_score"]
    assert (counts(found), found["n_ok"], found["n_low"]) == ({"poor": 1, "weak": 1}, 3, 2)
    assert [one["sample_id"] for one in found["bands"][0]["examples"]] == ["q0"]
    assert "overall_score" not in low(tmp_path, [FAITHFUL], rows, low_scores={"bands": {"overall_score": None}})


PDF, MARKDOWN = (Chunk(id="c1", rank=1, doc_type=kind) for kind in ("pdf", "markdown"))
ROWS = [
    Row("q1", "a", {"faithfulness": 1.0}, {}, {"chunks": [PDF], "timings": {"retrieval_ms": 100.0, "generation": 300.0}}),
    Row("q2", "a", {"faithfulness": 1.0}, {}, {"chunks": [PDF], "answer": " \n", "timings": {"retrieval": 200.0, "generation": 300.0}}),
    Row("q3", "a", {}, {}, {"chunks": [MARKDOWN], "answer": "", "error": "timeout after 30 s", "timings": {"total": 30000.0}}),
    Row("q4", "a", {}, {}, {"chunks": [], "answer": "", "error": "HTTP 500 from the service"}),
    Row("q1", "b", {"faithfulness": 0.0}, {}, {"chunks": [MARKDOWN], "abstained": True}),
]  # fmt: skip


def test_rates_and_latency_of_the_system(tmp_path: Path) -> None:
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
    # `total` is the system's own where it gives one, else the sum: 400, 500 and 30,000 ms. p95 = 500 + .9 x 29,500.
    times = found["overall"]["operations"]["latency_ms"]
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


def test_the_judge_is_measured_and_the_page_of_formats_names_every_key(tmp_path: Path) -> None:
    """Five different calls, four sent, two of them failed; the cases took 400, 1,000 and (a shared reply) 100 ms."""
    write_run(tmp_path, ROWS, CALLS, group=2)
    score(tmp_path, [FAITHFUL])
    used = stored(tmp_path, "cost.json")["used"]
    assert used["failures"] == {"deadline": 1, "empty_reply": 1, "missing_reply": 1}
    assert (used["error_rate"], used["timeout_rate"], used["empty_rate"], used["retries"]) == (0.5, 0.25, 0.25, 3)
    assert used["by_judge"]["m"]["error_rate"] == 0.5
    assert used["case_latency_ms"] == {"n": 3, "p50": 400.0, "p95": pytest.approx(940.0), "sum": 1500.0}
    page = (DOCS / "file-formats.md").read_text(encoding="utf-8")
    section = page.partition("\n## cost.json\n")[2].partition("\n## ")[0]
    assert [key for key in used if f"`{key}`" not in section] == []
    in_total_only = re.search(r"`used` has further \((.*?) in total only", section)
    assert set(re.findall(r"`(\w+)`", in_total_only[1])) == used.keys() - used["by_judge"]["m"].keys() - {"by_metric", "by_judge"}


def test_a_reply_that_cannot_be_parsed_is_no_failed_call(tmp_path: Path) -> None:
    """The case failed, the call did not: it was answered and paid. docs/systems.md and docs/file-formats.md say so alike."""
    calls = [{**call("k1", "q1"), "flags": ["unparsable"]}, {**call("k2", "q1"), "turn": "repair", "flags": ["unparsable"]}]
    write_run(tmp_path, [Row("q1", "a", {"faithfulness": ("error", "unparsable: no JSON")})], calls)
    metrics = score(tmp_path, [FAITHFUL])
    used = stored(tmp_path, "cost.json")["used"]
    assert (used["calls"], used["calls_failed"], used["failures"], used["error_rate"]) == (2, 0, {}, 0.0)
    assert metrics["overall"]["scores"]["faithfulness"]["errors"] == {"unparsable": 1}


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
    found = used_by(tmp_path, [*usages, {}], system_price=PriceSettings(input=1, output=10).of("system", "system.prices"))
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
    price = PriceSettings(input=1, output=1).of("system", "system.prices")
    used = used_by(tmp_path, usages, system_price=price)["overall"]["operations"]["usage"]
    assert used["cost_usd"]["sum"] == pytest.approx(0.5 + 110e-6)
    used = used_by(tmp_path, [{"total_tokens": 7.0}], system_price=price)["overall"]["operations"]["usage"]
    assert used == {"n_cases": 1, "tokens_total": {"n": 1, "sum": 7, "mean": 7, "p50": 7, "p95": 7}, "cost_usd": None, "n_unpriced": 1}
    assert used_by(tmp_path, [{}, {}])["overall"]["operations"]["usage"] == {}


@pytest.mark.parametrize(("given", "expected"), [
    ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 8}, {"tokens_in": 5, "tokens_out": 2, "tokens_total": 8}),
    ({"input_tokens": 5, "output_tokens": 2}, {"tokens_in": 5, "tokens_out": 2, "tokens_total": 7}),
    ({"tokens_in": 5, "cached_tokens": 3}, {"tokens_in": 5, "tokens_cached": 3}),
    ({"searches": 2}, {"searches": 2}),
])  # fmt: skip
def test_the_names_of_providers_are_one_vocabulary(given: dict[str, float], expected: dict[str, float]) -> None:
    assert figures(given, None) == expected


@pytest.mark.parametrize(("price", "usage", "millionths"), [
    ({"cached_input": 0.5}, {"tokens_cached": 400}, 600 + 200 + 1000),
    ({"reasoning": 2}, {"reasoning_tokens": 40}, 1000 + 600 + 80),
])  # fmt: skip
def test_cached_and_reasoning_tokens_have_their_price(price: dict[str, float], usage: dict[str, float], millionths: float) -> None:
    """1,000 in at 1 and 100 out at 10, of which 400 are cached at half the price, or 40 thought at 2."""
    found = figures(
        {"tokens_in": 1000, "tokens_out": 100, **usage}, PriceSettings(input=1, output=10, **price).of("system", "system.prices")
    )
    assert found["cost_usd"] == pytest.approx(millionths * 1e-6)
    assert found.get("tokens_reasoning") == usage.get("reasoning_tokens")


def answered(version: str | None, method: str, values: dict[str, Any]) -> list[Row]:
    output = {} if version is None else {"version": version}
    return [Row(name, method, {"answer_faithfulness": value}, output=output) for name, value in values.items()]


V1 = {"q1": 1, "q2": 5, "q3": 2, "q4": ("skipped", "x"), "q5": 4}
V2 = {"q1": 4, "q2": 3, "q3": 3, "q4": 1}
V3 = {"q1": 5, "q2": 5, "q3": 5}
OF_V2 = {"n_both": 3, "low_before": 2, "low_after": 2, "repaired": {"n": 1, "samples": ["q1"]}, "broke": {"n": 1, "samples": ["q2"]}}
OF_V3 = {"low_after": 0, "broke": {"n": 0, "samples": []}}


@pytest.mark.parametrize(("rows", "field", "changes"), [
    (
        [*answered("v1", "rag", V1), *answered("v2", "rag_2", V2), *answered("v3", "rag_3", V3)],
        "version",
        [{"from": "v1", "to": "v2", **OF_V2},
         {"from": "v2", "to": "v3", "n_both": 3, "low_before": 2, "repaired": {"n": 2, "samples": ["q2", "q3"]}, **OF_V3}],
    ),
    (
        [*answered(None, "rag", V1), *answered(None, "rag_2", V2), *answered(None, "rag_3", V3)],
        "method",
        [{"from": "rag", "to": "rag_2", **OF_V2},
         {"from": "rag", "to": "rag_3", "n_both": 3, "low_before": 2, "repaired": {"n": 2, "samples": ["q1", "q3"]}, **OF_V3}],
    ),
    ([*answered("v1", "rag", V1), *answered("v2", "rag", {"q9": 1})], "version", []),  # no question in both
])  # fmt: skip
def test_what_a_version_repaired_and_broke(tmp_path: Path, rows: list[Row], field: str, changes: list[dict[str, Any]]) -> None:
    """answer-synthesis-evaluation.md: by systemPromptVersion; 1 to 3 is low."""
    found = low(tmp_path, [FAITHFUL_AXIS], rows)
    assert found["answer_faithfulness"]["versions"] == {"field": field, "changes": changes}
    section = versions_section(ReportData({}, {}, low_scores=found))
    assert (section is None) == (not changes)
    if changes:
        page = markdown_of(report_of(section))
        assert f"| `answer_faithfulness` | `{changes[0]['from']} -> {changes[0]['to']}` | 1: `q1` | 1: `q2` | 3 | 2 -> 2 |" in page


def test_one_version_alone_is_held_against_nothing(tmp_path: Path) -> None:
    assert "versions" not in low(tmp_path, [FAITHFUL_AXIS], answered("v1", "rag", V1))["answer_faithfulness"]
