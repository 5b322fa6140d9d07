"""Over several iterations: the figures of small tables worked by hand, and of larger ones by trusted libraries."""

import random
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from ragpipe.core.errors import DataError
from ragpipe.core.score import ScoreSpec, warning_texts, whole_grades
from ragpipe.report.report_data import ReportData
from ragpipe.report.results_section import distributions_section
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.combine_iterations import combine_iterations, is_combined
from ragpipe.runs.manifest import scored_iterations
from ragpipe.score import iterations as module
from ragpipe.score.iterations import final_cost
from ragpipe.score.settings import ScoringSettings, shipped
from ragpipe.store.run_folder import RunFolder
from tests.support.reports import markdown_of, page_of, report_of
from tests.support.run_tables import Result, Row, score, score_iterations, stored, write_run

pytestmark = pytest.mark.slow
FAITHFUL = ScoreSpec("faithfulness")
CHUNKY = ScoreSpec("chunk_faithfulness", binary=True)
SETTINGS = ScoringSettings(thresholds={"faithfulness": 0.5, "overall_score": 0.5})
Table = Sequence[tuple[str, str, Sequence[Result]]]  # sample, method, a result for each iteration


def final(
    root: Path, table: Table, specs: Sequence[ScoreSpec] = (FAITHFUL,), settings: ScoringSettings = SETTINGS, **labels: Any
) -> dict[str, Any]:
    """Write and score as many iterations as the table has columns, of the first spec's score, and sum them up."""
    name, count = specs[0].name, len(table[0][2])
    tables = [[Row(sample, method, {name: results[n]}, labels) for sample, method, results in table] for n in range(count)]
    score_iterations(root, tables, specs, settings)
    return combine_iterations(RunFolder(root), range(1, count + 1), settings)


SMALL: Table = [
    ("q1", "a", (1.0, 0.4, 1.0)), ("q2", "a", (0.2, 0.2, 0.2)), ("q3", "b", (0.6, ("error", "refused: no"), 0.8)),
    ("q4", "b", (("skipped", "no_answer"),) * 3),
]  # fmt: skip


def test_a_small_table_worked_by_hand(tmp_path: Path) -> None:
    found = final(tmp_path, SMALL)
    one = found["overall"]["scores"]["faithfulness"]
    assert one["means"] == pytest.approx([1.8 / 3, 0.6 / 2, 2.0 / 3])
    assert one["mean"] == pytest.approx((0.6 + 0.3 + 2 / 3) / 3)
    assert one["spread"] == pytest.approx({"sd": statistics.stdev([0.6, 0.3, 2 / 3]), "min": 0.3, "max": 2 / 3})
    assert one["pass_rates"] == pytest.approx([2 / 3, 0.0, 2 / 3])
    assert one["pass_rate"] == pytest.approx(4 / 9)
    assert one["pass_spread"]["sd"] == pytest.approx(statistics.stdev([2 / 3, 0, 2 / 3]))
    assert [one[key] for key in ("n_ok", "n_error", "n_skipped")] == [8, 1, 3]
    assert "n_missing" not in one, "a count of 0 is left out"
    assert one["coverage"] == pytest.approx(8 / 9)
    assert (one["errors"], one["skipped"]) == ({"refused": 1}, {"no_answer": 3})
    # q1 passes twice of three times, so 2 of its 3 pairs of judgings differ; q2 never, q3 always (twice): none
    assert one["flips"] == {"rate": pytest.approx(2 / 9), "n_cases": 3}
    # q1: 0.2² + 0.4² + 0.2² = 0.24 around 0.8; q2: 0; q3: 2 · 0.1² = 0.02 around 0.7; 2 + 2 + 1 degrees of freedom
    # cases of 3, 3 and 2 judgings: mean of 1/r is 7/18; the means .8, .2, .7 have a variance of .31 / 3
    noise = one["noise"]
    assert (noise["n_cases"], noise["repeats"]) == (3, pytest.approx(18 / 7))
    assert noise["judge_variance"] == pytest.approx(0.26 / 5)
    assert noise["item_variance"] == pytest.approx(0.31 / 3 - 0.26 / 5 * 7 / 18)
    assert noise["judge_share"] == pytest.approx(0.052 / (0.052 + 0.31 / 3 - 0.052 * 7 / 18))
    assert noise["floor"] == pytest.approx(1.959964 * (2 * 0.052 * 7 / 18 / 3) ** 0.5, rel=1e-6)
    assert noise["second_judging_from"] == pytest.approx(2 * (0.31 / 3 - 0.052 * 7 / 18) / 0.052)
    assert found["flips"]["n"] == 1  # faithfulness of q1; of a single part there is no overall score
    assert found["flips"]["cases"][0] == {"sample_id": "q1", "method": "a", "repeat": 1, "score": "faithfulness", "passed": 2, "of": 3}
    assert (found["iterations"], found["signature"]) == ([1, 2, 3], "ragpipe 0 | test | iterations 1-3")
    assert (found["n_cases"], found["n_samples"]) == (4, 4)


@pytest.mark.parametrize(
    ("table", "reasons"),
    [
        (
            [("q1", "a", (1.0, ("error", "network: x"))), ("q2", "a", (("skipped", "x"), ("error", "network: x")))],
            {
                "spread": "values_in_fewer_than_two_iterations", "pass_spread": "values_in_fewer_than_two_iterations",
                "flips": "no_case_with_two_verdicts", "noise": "no_case_with_two_values", "interval": "one_value",
            },
        ),
        ([("q1", "a", (0.1, 0.9)), ("q1", "b", (0.3, 0.4))], {"interval": "one_sample", "pass_interval": "one_sample"}),
    ],
    ids=["no pair", "one sample"],
)  # fmt: skip
def test_what_cannot_be_said_is_null_with_its_reason(tmp_path: Path, table: Table, reasons: dict[str, str]) -> None:
    one = final(tmp_path, table)["overall"]["scores"]["faithfulness"]
    for key, reason in reasons.items():
        assert (one[key], one[f"{key}_reason"]) == (None, reason)


def test_without_a_threshold_nothing_passes_and_nothing_flips(tmp_path: Path) -> None:
    settings = ScoringSettings(thresholds={"faithfulness": None, "overall_score": None})
    one = final(tmp_path, SMALL, settings=settings)["overall"]["scores"]["faithfulness"]
    assert not {"pass_rate", "pass_interval", "pass_rates", "pass_spread", "flips", "n_judged"} & one.keys()
    assert one["noise"] is not None


def test_one_iteration_says_what_its_own_metrics_say(tmp_path: Path) -> None:
    draw = random.Random(3)
    table = [(f"q{i // 2}", "ab"[i % 2], (float(draw.random() < 0.6),)) for i in range(40)]
    for spec in (FAITHFUL, CHUNKY):
        root = tmp_path / spec.name
        root.mkdir()
        combined, own = final(root, table, [replace(spec, metric=spec.name)]), score(root, [spec], SETTINGS)
        for of in (lambda found: found["overall"], *(lambda found, m=m: found["by"]["method"][m] for m in "ab")):
            assert of(combined)["scores"][spec.name] == of(own)["scores"][spec.name]
        assert combined["declared"] == own["declared"]


def test_a_rate_keeps_the_width_of_its_cases(tmp_path: Path) -> None:
    """Wilson 1927 for 7 of 10, by scipy: three equal iterations are no thirty cases."""
    table = [(f"q{i}", "a", (float(i < 7),) * 3) for i in range(10)]
    settings = ScoringSettings(thresholds={"chunk_faithfulness": 1})
    one = final(tmp_path, table, [CHUNKY], settings)["overall"]["scores"]["chunk_faithfulness"]
    bounds = stats.binomtest(7, 10).proportion_ci(0.95, method="wilson")
    for key in ("interval", "pass_interval"):
        assert (one[key]["low"], one[key]["high"]) == (pytest.approx(bounds.low), pytest.approx(bounds.high))
    assert one["flips"] == {"rate": 0.0, "n_cases": 10}
    assert (one["spread"]["sd"], one["noise"]["judge_variance"], one["noise"]["floor"]) == (0.0, 0.0, 0.0)


def test_the_list_of_flipping_cases_is_bounded_and_in_data_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLIPS_SHOWN", 3)
    alone = {name: 0.0 for name in shipped()["weights"] if name != "faithfulness"}  # so that it is the overall score, too
    settings = ScoringSettings(thresholds={"faithfulness": 0.5, "overall_score": 0.5}, weights=alone)
    found = final(tmp_path, [(f"q{i}", "a", (0.1, 0.9)) for i in range(5)], settings=settings)
    assert found["flips"]["n"] == 10
    assert [(one["sample_id"], one["score"]) for one in found["flips"]["cases"]] == [
        ("q0", "faithfulness"), ("q0", "overall_score"), ("q1", "faithfulness"),
    ]  # fmt: skip


def test_iterations_of_other_cases_are_refused(tmp_path: Path) -> None:
    final(tmp_path, [("q1", "a", (0.1, 0.9)), ("q2", "a", (0.1, 0.9))])
    other = tmp_path / "other"
    other.mkdir()
    final(other, [("q1", "a", (0.1,)), ("q9", "a", (0.1,))])
    shutil.copy(other / "iteration-1/records.parquet", tmp_path / "iteration-2/records.parquet")
    with pytest.raises(DataError, match=r"iteration-2/records.parquet(.|\n)*other cases"):
        combine_iterations(RunFolder(tmp_path), [1, 2], SETTINGS)


def test_files_that_would_not_change_are_left_alone(tmp_path: Path) -> None:
    final(tmp_path, SMALL)
    folder = RunFolder(tmp_path)
    before = [path.stat().st_mtime_ns for path in (folder.final.metrics, folder.final.cost)]
    assert scored_iterations(folder) == [1, 2, 3]
    assert is_combined(folder, [1, 2, 3])
    combine_iterations(folder, [1, 2, 3], SETTINGS)
    assert [path.stat().st_mtime_ns for path in (folder.final.metrics, folder.final.cost)] == before
    assert not is_combined(folder, [1, 2])
    metrics = tmp_path / "iteration-3/metrics.json"
    metrics.write_text(metrics.read_text().replace('"n_cases": 4', '"n_cases": 5'))
    assert not is_combined(folder, [1, 2, 3]), "an iteration that was scored anew"
    metrics.unlink()
    assert scored_iterations(folder) == [1, 2]


def _bill(calls: int, usd: float | None, known: float, **unknown: int) -> dict[str, Any]:
    used = {
        "calls": calls, "usd": usd, "usd_known": known, "unpriced_reasons": unknown,
        "latency_ms": {"n": calls, "p50": 1.0, "p95": 2.0, "sum": 10.0 * calls},
        "by_metric": {"faithfulness": {"calls": calls, "usd": usd}},
    }  # fmt: skip
    return {
        "used": used, "spent": {"calls": calls - 1, "usd": 0.5}, "saved": {"calls": 1, "usd": None},
        "wasted": {"replies": 1, "usd": 0.25}, "repriced": {"usd": 0.0}, "prices": {"m": calls},
    }  # fmt: skip


def test_cost_over_iterations() -> None:
    found = final_cost({1: _bill(3, 0.25, 0.25), 2: _bill(4, None, 0.5, no_price=2)})
    assert found["iterations"]["2"]["used"]["calls"] == 4
    used = found["total"]["used"]
    assert (used["calls"], used["usd"], used["usd_known"], used["unpriced_reasons"]) == (7, None, 0.75, {"no_price": 2})
    assert used["latency_ms"] == {"n": 7, "sum": 70.0}
    assert used["by_metric"] == {"faithfulness": {"calls": 7, "usd": None}}
    assert found["total"]["spent"] == {"calls": 5, "usd": 1.0}
    assert found["total"]["saved"] == {"calls": 2, "usd": None}
    assert found["total"]["wasted"] == {"replies": 2, "usd": 0.5}
    assert found["prices"] == {"m": 4}, "those of the newest iteration"


def test_crossed_labels_that_read_alike_are_two_groups(tmp_path: Path) -> None:
    rows = [
        Row("q1", "a", {"faithfulness": 1.0}, {"category": "a * b", "difficulty": "c"}),
        Row("q2", "a", {"faithfulness": 0.0}, {"category": "a", "difficulty": "b * c"}),
    ]
    write_run(tmp_path, rows)
    settings = SETTINGS.model_copy(update={"slices": ["category*difficulty"]})
    groups = score(tmp_path, [FAITHFUL], settings)["by"]["category*difficulty"]
    assert {name: group["scores"]["faithfulness"]["mean"] for name, group in groups.items()} == {"a \\* b * c": 1.0, "a * b \\* c": 0.0}
    after = combine_iterations(RunFolder(tmp_path), [1], settings)["by"]["category*difficulty"]
    assert {name: group["n_cases"] for name, group in after.items()} == dict.fromkeys(groups, 1)
    assert score(tmp_path, [FAITHFUL], settings)["by"]["category"].keys() == {"a * b", "a"}, "not crossed: as it stands"


LETTERS = (("A", 80.0), ("B", 60.0), ("C", 40.0), ("D", 20.0), ("E", 0.0))
ACCURACY = ScoreSpec("factual_accuracy", 0, 100, grades=LETTERS)
CORRECT = ScoreSpec("correctness", 1, 5, grades=whole_grades(1, 5))
CLASSES = [
    ScoreSpec(name, binary=True, in_class=("answer_class", label))
    for name, label in (("correct_answers", "correct"), ("wrong_answers", "wrong"), ("dont_know_answers", "don't know"))
]
RAGAS, NOISE = ScoreSpec("ragas", 0, 100), ScoreSpec("noise", higher_is_better=False)


def of(name: str, values: list[Any], method: str = "a") -> list[Row]:
    return [Row(f"q{n}", method, {name: value}) for n, value in enumerate(values)]


def test_grades_are_counted(tmp_path: Path) -> None:
    """graphrag-metrics.md 6: A 12, B 1, C 3, D 4, E 4 of 24 results; a failed and a skipped one have no grade."""
    values = [100.0] * 11 + [80.0, 79.9, 59.0, 40.0, 45.0, 20.0, 39.0, 30.0, 20.5, 19.9, 0.0, 5.0, 1.0]
    write_run(tmp_path, of("factual_accuracy", [*values, ("error", "refused: no"), ("skipped", "no_reference_answer")]))
    found = score(tmp_path, [ACCURACY], block=7)["grades"]["factual_accuracy"]
    assert found["overall"] == {"A": 12, "B": 1, "C": 3, "D": 4, "E": 4}
    assert found["by"] == {"method": {"a": found["overall"]}}, "no question has a type"
    write_run(tmp_path, of("correctness", [1.0, 4.0, 4.5, 4.99, 5.0]))  # between two grades: the lower
    assert score(tmp_path, [CORRECT])["grades"]["correctness"]["overall"] == {"5": 1, "4": 3, "3": 0, "2": 0, "1": 1}


def test_classes_are_counts_beside_shares(tmp_path: Path) -> None:
    """graphrag-metrics.md 9: two methods 6 correct and 2 wrong of 8 questions, the third 5, 2 and 1: 17, 6 and 1 of 24."""
    rows = []
    for method, kinds in (("local_search", "ccccccww"), ("basic_search", "ccccccww"), ("llm_with_context", "cccccwwd")):
        for n, kind in enumerate(kinds):
            results = {spec.name: float(spec.in_class[1][0] == kind) for spec in CLASSES}
            rows.append(Row(f"q{n}", method, results, {"question_type": "creative" if n == 7 else "fact"}))
    write_run(tmp_path, rows)
    found = score(tmp_path, CLASSES)
    counts = found["grades"]["answer_class"]
    assert counts["overall"] == {"correct": 17, "wrong": 6, "don't know": 1}
    assert counts["by"]["method"] == {
        "local_search": {"correct": 6, "wrong": 2, "don't know": 0}, "basic_search": {"correct": 6, "wrong": 2, "don't know": 0},
        "llm_with_context": {"correct": 5, "wrong": 2, "don't know": 1},
    }  # fmt: skip
    assert counts["by"]["question_type"]["creative"] == {"correct": 0, "wrong": 2, "don't know": 1}
    crossed = counts["by"]["method*question_type"]
    assert crossed["llm_with_context * fact"] == {"correct": 5, "wrong": 2, "don't know": 0}
    assert crossed["llm_with_context * creative"] == {"correct": 0, "wrong": 0, "don't know": 1}
    assert len(crossed) == 6
    page = page_of(found, stored(tmp_path, "cost.json"))
    assert "### Cases by `answer_class`" in page
    assert "| `method*question_type: local_search * creative` | 0 (0.0%) | 1 (100.0%) | 0 (0.0%) | 1 |" in page
    assert "| `all` | 17 (70.8%) | 6 (25.0%) | 1 (4.2%) | 24 |" in page  # the document's percentages
    assert found["overall"]["scores"]["correct_answers"]["mean"] == pytest.approx(17 / 24)


def test_best_worst_and_mean_are_of_the_shared_questions(tmp_path: Path) -> None:
    """q0 has no value of b, q3 none of a; on q1 and q2 a has 50 and 90, b 20 and 60. `c` never has the score: it would
    leave no question. Where lower is better the best is the least."""
    values = {"a": [99.0, 50.0, 90.0, ("skipped", "x")], "b": [("error", "refused: no"), 20.0, 60.0, 1.0], "c": [("skipped", "x")] * 4}
    rows = [Row(f"q{n}", method, {"ragas": value, "noise": 0.1 * n}) for method, some in values.items() for n, value in enumerate(some)]
    write_run(tmp_path, rows)
    found = score(tmp_path, [RAGAS, NOISE])
    assert found["extremes"]["ragas"] == {
        "n_questions": 2,
        "methods": {"a": {"n": 2, "mean": 70.0, "best": 90.0, "worst": 50.0}, "b": {"n": 2, "mean": 40.0, "best": 60.0, "worst": 20.0}},
    }
    noise = found["extremes"]["noise"]["methods"]["c"]
    assert (noise["best"], noise["worst"], noise["n"]) == (0.0, pytest.approx(0.3), 4)
    page = markdown_of(report_of(distributions_section(ReportData(found, {}))))
    assert "| `ragas` | `a` | 70.00 | 90.00 | 50.00 | 2 | 2 |" in page
    page = markdown_of(report_of(distributions_section(ReportData(found, {}, ReportSettings(percent=["noise"])))))
    assert "| `noise x100` | `a` | 15.0 |" in page


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(("spec", "values", "warned"), [
    (CORRECT, [5.0] * 19 + [4.0], True),  # 19 of 20 are 95 %
    (CORRECT, [5.0] * 37 + [4.0] * 3, False),  # 92.5 %
    (CORRECT, [5.0] * 19, False),  # fewer than 20 judged cases
    (CORRECT, [5.0] * 19 + [("error", "refused: no")] * 9, False),
    (ACCURACY, [85.0, 95.0] * 20, False),  # one letter, two grades of the judge
    (FAITHFUL, [1.0] * 40, False),  # a share of verdicts is no grade
    (CLASSES[0], [1.0] * 40, False),
])  # fmt: skip
def test_a_judge_that_gives_one_grade_is_warned_of(tmp_path: Path, spec: ScoreSpec, values: list[Any], warned: bool) -> None:
    write_run(tmp_path, of(spec.name, values))
    warnings = [line for line in warning_texts(score(tmp_path, [spec])) if "the judge gave" in line]
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("correctness: the judge gave 5 in 19 of 20 cases (95%)")
