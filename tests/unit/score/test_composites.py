"""Composites, whose verdict a score takes over, and several outputs of one method for one question."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.comparison.run_agreement import agreement
from ragpipe.core.score import ScoreSpec, warning_texts
from ragpipe.report.diagnosis_section import diagnosis_section
from ragpipe.report.model import CaseName
from ragpipe.report.report_data import ReportData, measured_parts, missing_overall_score
from ragpipe.report.verdict_section import verdict_of
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.settings import ScoringSettings, shipped
from ragpipe.store.run_folder import RunFolder
from tests.support.reports import markdown_of, report_of, terminal_of
from tests.support.run_tables import Row, records, score, score_iterations, stored, write_run

pytestmark = pytest.mark.slow

PARTS = [
    ScoreSpec("faithfulness"), ScoreSpec("context_precision", 0, 100), ScoreSpec("context_recall", 0, 100),
    ScoreSpec("answer_relevance"),
]  # fmt: skip
NAMES = [spec.name for spec in PARTS]
SKIP, FAIL = ("skipped", "no_context_retrieved"), ("error", "refused: no")


def scored(root: Path, specs: list[ScoreSpec], results: dict[str, Any], **settings: Any) -> dict[str, Any]:
    write_run(root, [Row("q", "a", results)])
    score(root, specs, ScoringSettings(slices=[], **settings))
    return records(root)[0]


@pytest.mark.parametrize(
    ("values", "expected", "reason"),
    [
        ((1.0, SKIP, 100, 0.8327), 93.73, None),  # graphrag-metrics.md, the three rows of its worked table
        ((0.0, 0, 0, 0.8327), 24.98, None),
        ((SKIP, SKIP, SKIP, 0.8229), 82.29, None),
        ((1.0, 100, 100, 1.0), 100.0, None),
        ((0.5, 50, 50, 0.5), 50.0, None),
        ((SKIP, SKIP, SKIP, SKIP), None, "no_parts"),
        ((1.0, FAIL, 100, 0.8), None, "part_error: context_precision"),
        ((FAIL, FAIL, SKIP, 0.8), None, "part_error: faithfulness, context_precision"),
    ],
)
def test_ragas_score(tmp_path: Path, values: tuple[Any, ...], expected: float | None, reason: str | None) -> None:
    row = scored(tmp_path, PARTS, dict(zip(NAMES, values, strict=True)))
    assert row["ragas_score"] == (None if expected is None else pytest.approx(expected, abs=0.005))
    assert row["ragas_score.score"] == (None if expected is None else pytest.approx(expected / 100, abs=5e-5))
    assert row["ragas_score.reason"] == reason
    assert row["ragas_score.status"] == ("ok" if reason is None else "skipped" if reason == "no_parts" else "error")
    assert row["ragas_score.passed"] is None


@pytest.mark.parametrize(("threshold", "passed"), [(93.72, True), (93.73, False), (None, None)])
def test_a_composite_has_a_threshold_on_its_own_scale(tmp_path: Path, threshold: float | None, passed: bool | None) -> None:
    results = {"faithfulness": 1.0, "context_recall": 100, "answer_relevance": 0.8327}  # 93.72625
    specs = [spec for spec in PARTS if spec.name in results]
    row = scored(tmp_path, specs, results, thresholds={"ragas_score": threshold})
    assert row["ragas_score.passed"] is passed
    assert ("ragas_score" in row["failed_by"]) is (passed is False)


def test_a_composite_stands_in_metrics_like_any_score(tmp_path: Path) -> None:
    values = [(1.0, SKIP, 100, 0.8327), (0.0, 0, 0, 0.8327), (SKIP, SKIP, SKIP, 0.8229), (1.0, FAIL, 0, 0)]
    write_run(tmp_path, [Row(f"q{i}", "a", dict(zip(NAMES, row, strict=True))) for i, row in enumerate(values)])
    metrics = score(tmp_path, PARTS, ScoringSettings(slices=[]))
    found = metrics["overall"]["scores"]["ragas_score"]
    assert list(metrics["overall"]["scores"]) == [*NAMES, "ragas_score", "overall_score"]
    assert (found["n_ok"], found["n_error"], found["coverage"]) == (3, 1, 0.75)
    assert found["errors"] == {"part_error": 1}
    assert found["mean"] == pytest.approx((93.72625 + 24.981 + 82.29) / 3)
    assert (metrics["declared"]["ragas_score"]["low"], metrics["declared"]["ragas_score"]["high"]) == (0, 100)
    assert metrics["by"]["method"]["a"]["scores"]["ragas_score"]["n_ok"] == 3


def test_a_part_that_the_run_has_not_is_left_out_and_said(tmp_path: Path) -> None:
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 0.5, "answer_relevance": 1.0})])
    metrics = score(tmp_path, [PARTS[0], PARTS[3]], ScoringSettings(slices=[]))
    assert metrics["overall"]["scores"]["ragas_score"]["mean"] == 75
    assert metrics["overall"]["scores"]["overall_score"]["mean"] == pytest.approx((0.2 * 0.5 + 0.15 * 1.0) / 0.35)
    assert metrics["composite_parts"]["ragas_score"] == {
        "measured": ["faithfulness", "answer_relevance"], "absent": ["context_precision", "context_recall"],
    }  # fmt: skip
    assert measured_parts("ragas_score", metrics) == ("2 of 4 parts", "faithfulness, answer_relevance")
    assert measured_parts("overall_score", metrics) == ("2 of 8 parts", "faithfulness, answer_relevance")
    assert measured_parts("faithfulness", metrics) == ("", "")
    every = ScoringSettings(slices=[], weights={name: 0 for name in shipped()["weights"] if name not in NAMES})
    assert measured_parts("overall_score", score(tmp_path, [PARTS[0], PARTS[3]], every)) == ("", ""), "it has no other part"


def test_single_parts(tmp_path: Path) -> None:
    """The mean of one score is that score; only a composite that has no other part may be one."""
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 0.5})])
    metrics = score(tmp_path, [FAITHFUL], ScoringSettings(slices=[], composites={"mine": {"weights": {"faithfulness": 1}}}))
    assert "ragas_score" not in metrics["overall"]["scores"]
    assert not [warning for warning in warning_texts(metrics) if "ragas_score" in warning]
    assert metrics["overall"]["scores"]["mine"]["mean"] == 0.5
    # overall_score .50 beside faithfulness .50 says that more was measured than was.
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 0.5, "mrr": 1.0})])
    metrics = score(tmp_path, [PARTS[0], ScoreSpec("mrr")], ScoringSettings(slices=[]))
    assert "overall_score" not in metrics["overall"]["scores"]
    assert "overall_score" not in metrics["by"]["method"]["a"]["scores"]
    assert "overall_score" not in metrics["declared"]
    assert missing_overall_score(metrics) == "no overall_score: it takes two of its parts, and this run measured only faithfulness"
    alone = ScoringSettings(weights={name: 0 for name in shipped()["weights"] if name != "faithfulness"})
    metrics = score(tmp_path, [PARTS[0], ScoreSpec("mrr")], alone)
    assert metrics["overall"]["scores"]["overall_score"]["mean"] == 0.5, "who gives one score all the weight wants it"
    assert missing_overall_score(metrics) == ""


def test_why_no_case_has_an_overall_score(tmp_path: Path) -> None:
    specs = [FAITHFUL, RELEVANT]
    write_run(tmp_path, [Row(f"q{n}", "a", {"faithfulness": FAIL, "answer_relevance": 1.0}) for n in range(12)])
    said = [text for text in warning_texts(score(tmp_path, specs)) if text.startswith("no case has an overall_score")]
    assert said == ["no case has an overall_score: where a score with a weight was to be measured, one failed (faithfulness 12)"]
    write_run(tmp_path, [Row("q", "a", {"faithfulness": ("skipped", "no_claims"), "answer_relevance": ("skipped", "x")})])
    said = [text for text in warning_texts(score(tmp_path, specs)) if text.startswith("no case has an overall_score")]
    assert said[0].startswith("no case has an overall_score: none of the scores with a weight was measured (retrieval_score")


def test_a_metric_that_fails_on_a_case_is_one_failed_judgement(tmp_path: Path) -> None:
    """One metric with two scores fails on three of four cases, another on one; composites and overall score are no judgements."""
    specs = [ScoreSpec("citation"), ScoreSpec("citation_coverage"), ScoreSpec("faithfulness")]
    citation = [FAIL] * 3 + [1.0]
    faithful = [FAIL] + [1.0] * 3
    rows = [
        Row(f"q{n}", "a", {"citation": one, "citation_coverage": one, "faithfulness": other})
        for n, (one, other) in enumerate(zip(citation, faithful, strict=True))
    ]
    folder = write_run(tmp_path, rows)
    table = pq.read_table(folder / "scores.parquet")
    owners = ["citation" if name.startswith("citation") else name for name in table["score_name"].to_pylist()]
    place = table.schema.get_field_index("metric")
    pq.write_table(table.set_column(place, table.schema.field(place), [owners]), folder / "scores.parquet")
    metrics = score(tmp_path, specs)
    assert metrics["n_failed_judgements"] == 4
    bill = {"used": {"uses": 0, "calls": 0, "calls_computed": 0, "usd_known": 0.0}}
    assert "4 judgements with an error" in verdict_of(ReportData(metrics, bill)).remarks


FAITHFUL, RETRIEVAL, RELEVANT = ScoreSpec("faithfulness"), ScoreSpec("retrieval_score"), ScoreSpec("answer_relevance")


def of(root: Path, results: list[dict[str, Any]], specs: list[ScoreSpec], **settings: Any) -> dict[str, Any]:
    write_run(root, [Row(f"q{n}", "a", one) for n, one in enumerate(results)])
    return score(root, specs, ScoringSettings(slices=[], **settings))


@pytest.mark.parametrize(
    ("own", "other", "passed"),
    [
        (1.0, 1.0, True),
        (0.0, 1.0, True),  # it is the other one that decides
        (1.0, 0.0, False),
        (1.0, FAIL, None),
        (1.0, SKIP, None),
        (SKIP, 1.0, None),  # what has no value neither passes nor fails
        (SKIP, 0.0, None),
        (FAIL, 0.0, None),
    ],
)
def test_the_verdict_is_that_of_the_others(tmp_path: Path, own: Any, other: Any, passed: bool | None) -> None:
    of(tmp_path, [{"retrieval_score": own, "faithfulness": other}], [RETRIEVAL, FAITHFUL],
       passes_with={"retrieval_score": ["faithfulness"]})  # fmt: skip
    assert records(tmp_path)[0]["retrieval_score.passed"] is passed
    examples = stored(tmp_path, "low_scores.json")["scores"].get("retrieval_score", {"bands": []})["bands"]
    assert all(isinstance(one["value"], float) for band in examples for one in band["examples"])


@pytest.mark.parametrize("others", [["faithfulness"], ["retrieval_score", "faithfulness"]])
def test_a_run_without_one_of_the_others_does_not_judge_it(tmp_path: Path, others: list[str]) -> None:
    settings = {"passes_with": {"retrieval_score": others}}
    metrics = of(tmp_path, [{"retrieval_score": 0.1}, {"retrieval_score": 1.0}], [RETRIEVAL], **settings)
    found = metrics["overall"]["scores"]["retrieval_score"]
    assert found["n_ok"] == 2
    assert not {"pass_rate", "pass_interval", "n_judged", "n_unjudged"} & found.keys()
    said = "retrieval_score neither passes nor misses its threshold: scoring.passes_with.retrieval_score asks for faithfulness"
    assert any(text.startswith(said) for text in warning_texts(metrics))
    before = ScoringSettings(**settings).warnings([RETRIEVAL])
    assert any(text.startswith(said) for text in before), "said before anything is spent"


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        (
            {"retrieval_score": ["answer_relevance"], "answer_relevance": ["retrieval_score"]},
            "scoring.passes_with.retrieval_score",
            "answer_relevance, which itself passes only when retrieval_score does",
        ),
        ({"overall_score": ["faithfulness"]}, "scoring.passes_with.overall_score", "overall_score"),
        ({"faithfulness": ["overall_score"]}, "scoring.passes_with.faithfulness", "overall_score"),
    ],
)
def test_what_cannot_be_judged_is_refused(given: dict[str, Any], key: str, said: str) -> None:
    problems = scoring_faults(ScoringSettings(passes_with=given), [RETRIEVAL, RELEVANT, FAITHFUL])
    assert (problems[0].where, problems[0].key, problems[0].found) == ("scoring", key, said)


SETTINGS = ScoringSettings(thresholds={"faithfulness": 0.5})
VALUES = {"q1": (1.0, 0.0), "q2": (0.4, 0.8), "q3": (0.9, 0.9), "q4": (0.0, 0.0), "q5": (1.0, 0.6)}
ROWS = [
    Row(sample, "a", {"faithfulness": value}, repeat=repeat) for sample, values in VALUES.items() for repeat, value in enumerate(values, 1)
]
"""Both repeats of a question stand beside each other, where nothing but the repeat tells them apart."""


def test_repeats_are_no_more_questions(tmp_path: Path) -> None:
    """Two answers with the same score to each of five questions say as much as one: mean and interval are the same, and the
    interval of the share that passed is no narrower."""
    found = {}
    for times in (1, 2):
        rows = [
            Row(sample, "a", {"faithfulness": first}, repeat=repeat)
            for sample, (first, _) in VALUES.items()
            for repeat in range(1, times + 1)
        ]
        write_run(tmp_path / str(times), rows)
        found[times] = score(tmp_path / str(times), [FAITHFUL], SETTINGS)
    assert [(one["n_cases"], one["n_samples"]) for one in found.values()] == [(5, 5), (10, 5)]
    once, twice = (one["overall"]["scores"]["faithfulness"] for one in found.values())
    assert once["mean"] == twice["mean"] == pytest.approx(0.66)
    for bound in ("low", "high"):
        assert once["interval"][bound] == pytest.approx(twice["interval"][bound])
    width_once, width_twice = (one["pass_interval"]["high"] - one["pass_interval"]["low"] for one in (once, twice))
    assert width_twice >= width_once


def test_a_case_is_named_with_its_repeat_where_it_is_not_the_first(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    metrics = score(tmp_path, [FAITHFUL], SETTINGS)
    band = stored(tmp_path, "low_scores.json")["scores"]["faithfulness"]["bands"][0]
    assert [(one["sample_id"], one["method"], one["repeat"]) for one in band["examples"]] == [
        ("q1", "a", 2), ("q4", "a", 1), ("q4", "a", 2),
    ]  # fmt: skip
    report = report_of(diagnosis_section(ReportData(metrics, {})))
    assert "  q1/a repeat 2" in terminal_of(report, 200)
    assert "`q1` / `a` repeat 2, `q2` / `a`" in markdown_of(report)
    assert CaseName.of({"sample_id": "q1", "method": "a", "repeat": 2}).address == "#v=1&case=q1/a/2"


def test_flips_and_agreement_match_a_repeat_with_itself(tmp_path: Path) -> None:
    """Iteration 2 (and the new run) says the same but of q1, whose second answer passes now."""
    other = [Row(r.sample, r.method, {"faithfulness": 1.0}, repeat=r.repeat) if (r.sample, r.repeat) == ("q1", 2) else r for r in ROWS]
    score_iterations(tmp_path, (ROWS, other), [FAITHFUL], SETTINGS)
    found = combine_iterations(RunFolder(tmp_path), [1, 2], SETTINGS)
    assert [case for case in found["flips"]["cases"] if case["score"] == "faithfulness"] == [
        {"sample_id": "q1", "method": "a", "repeat": 2, "score": "faithfulness", "passed": 1, "of": 2}
    ]
    tables = [{1: tmp_path / f"iteration-{number}" / "records.parquet"} for number in (1, 2)]
    scores = {name: {**found["declared"][name], **one} for name, one in found["overall"]["scores"].items()}
    compared = agreement(*tables, old_scores=scores, new_scores=scores)
    assert compared["cases"] == {"both": 10, "only_old": 0, "only_new": 0}
    shuffled = pq.read_table(tables[1][1]).take([9, 3, 0, 1, 2, 8, 7, 6, 5, 4])  # the same cases in another order
    pq.write_table(shuffled, tmp_path / "shuffled.parquet")
    assert agreement(tables[0], {1: tmp_path / "shuffled.parquet"}, old_scores=scores, new_scores=scores) == compared
    flips = compared["scores"]["faithfulness"]["flips"]
    assert flips["to_failed"]["n"] == 0
    assert flips["to_passed"]["examples"] == [{"sample_id": "q1", "method": "a", "repeat": 2, "iteration": 1, "old": 0.0, "new": 1.0}]


def test_a_composite_loses_the_cases_that_its_parts_lose(tmp_path: Path) -> None:
    """Of 8 cases the system failed in 3, where no score has a value; the other 5 have one, so none of them is lost."""
    names = ("faithfulness", "answer_relevance")
    rows = [
        Row(f"q{n}", "a", dict.fromkeys(names, ("skipped", "system_error") if n < 3 else 1.0), {}, {"error": "500"} if n < 3 else {})
        for n in range(8)
    ]
    write_run(tmp_path, rows)
    found = score(tmp_path, [ScoreSpec(name) for name in names], ScoringSettings(weights=dict.fromkeys(names, 1.0)))["overall"]["scores"]
    for name in (*names, "overall_score"):
        assert (found[name]["n_ok"], found[name]["n_system_error"]) == (5, 3)
