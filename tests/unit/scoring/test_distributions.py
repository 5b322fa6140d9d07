"""Grades, classes and extremes by hand, the GraphRAG document's tables among them, and a judge of one grade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.results_section import distributions_section
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.run_warning import warning_texts
from ragpipe.schema.score import ScoreSpec, whole_grades
from ragpipe.scoring.value_distributions import add_grades, merge_extremes
from tests.support.reports import markdown_of, page_of, report_of
from tests.support.run_tables import Row, score, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

LETTERS = (("A", 80.0), ("B", 60.0), ("C", 40.0), ("D", 20.0), ("E", 0.0))
ACCURACY = ScoreSpec("factual_accuracy", 0, 100, grades=LETTERS)
CORRECT = ScoreSpec("correctness", 1, 5, grades=whole_grades(1, 5))
CLASSES = [
    ScoreSpec(name, binary=True, in_class=("answer_class", label))
    for name, label in (("correct_answers", "correct"), ("wrong_answers", "wrong"), ("dont_know_answers", "don't know"))
]
RAGAS, FAITHFUL, NOISE = (
    ScoreSpec("ragas", 0, 100),
    ScoreSpec("faithfulness"),
    ScoreSpec("noise", higher_is_better=False),
)


def of(name: str, values: list[Any], method: str = "a") -> list[Row]:
    return [Row(f"q{n}", method, {name: value}) for n, value in enumerate(values)]


def test_grades_are_counted(tmp_path: Path) -> None:
    """graphrag-metrics.md 6: A 12, B 1, C 3, D 4, E 4 of 24 results; a failed and a skipped one have no grade."""
    values = [100.0] * 11 + [80.0, 79.9, 59.0, 40.0, 45.0, 20.0, 39.0, 30.0, 20.5, 19.9, 0.0, 5.0, 1.0]
    write_run(tmp_path, of("factual_accuracy", [*values, ("error", "refused: no"), ("skipped", "no_reference_answer")]))
    found = score(tmp_path, [ACCURACY], block=7)["grades"]["factual_accuracy"]
    assert found["overall"] == {"A": 12, "B": 1, "C": 3, "D": 4, "E": 4}
    assert found["by"] == {"method": {"a": found["overall"]}}, "no question has a type"


def test_a_value_between_two_grades_counts_as_the_lower(tmp_path: Path) -> None:
    write_run(tmp_path, of("correctness", [1.0, 4.0, 4.5, 4.99, 5.0]))
    found = score(tmp_path, [CORRECT])["grades"]["correctness"]["overall"]
    assert found == {"5": 1, "4": 3, "3": 0, "2": 0, "1": 1}


def classed(method: str, question: int, kind: str, **row: Any) -> Row:
    return Row(f"q{question}", method, {spec.name: float(spec.in_class[1] == kind) for spec in CLASSES}, **row)  # type: ignore[index]


@pytest.mark.slow
def test_classes_are_counts_beside_shares(tmp_path: Path) -> None:
    """graphrag-metrics.md 9: two methods 6 correct and 2 wrong of 8 questions, the third 5, 2 and 1: 17, 6 and 1 of 24."""
    rows = []
    for method, kinds in (("local_search", "ccccccww"), ("basic_search", "ccccccww"), ("llm_with_context", "cccccwwd")):
        for n, kind in enumerate(kinds):
            name = {"c": "correct", "w": "wrong", "d": "don't know"}[kind]
            rows.append(classed(method, n, name, labels={"question_type": "creative" if n == 7 else "fact"}))
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
    values = {
        "a": [99.0, 50.0, 90.0, ("skipped", "x")],
        "b": [("error", "refused: no"), 20.0, 60.0, 1.0],
        "c": [("skipped", "x")] * 4,
    }
    rows = [
        Row(f"q{n}", method, {"ragas": value, "noise": 0.1 * n})
        for method, some in values.items() for n, value in enumerate(some)
    ]  # fmt: skip
    write_run(tmp_path, rows)
    found = score(tmp_path, [RAGAS, NOISE])
    assert found["extremes"]["ragas"] == {
        "n_questions": 2,
        "methods": {
            "a": {"n": 2, "mean": 70.0, "best": 90.0, "worst": 50.0}, "b": {"n": 2, "mean": 40.0, "best": 60.0, "worst": 20.0},
        },
    }  # fmt: skip
    noise = found["extremes"]["noise"]["methods"]["c"]
    assert (noise["best"], noise["worst"], noise["n"]) == (0.0, pytest.approx(0.3), 4)
    page = markdown_of(report_of(distributions_section(ReportData(found, {}))))
    assert "| `ragas` | `a` | 70.00 | 90.00 | 50.00 | 2 | 2 |" in page
    settings = ReportSettings(percent=["noise"])
    page = markdown_of(report_of(distributions_section(ReportData(found, {}, settings))))
    assert "| `noise x100` | `a` | 15.0 |" in page


def test_binary_scores_and_counts_have_no_extremes(tmp_path: Path) -> None:
    rows = [Row("q1", "a", {"correct_answers": 1.0, "n": 3.0})]
    write_run(tmp_path, rows)
    assert score(tmp_path, [CLASSES[0], ScoreSpec("n", None, None)])["extremes"] == {}


@pytest.mark.thorough(tried=3)
@pytest.mark.slow
@pytest.mark.parametrize(("spec", "values", "warned"), [
    (CORRECT, [5.0] * 19 + [4.0], True),  # 19 of 20 are 95 %
    (CORRECT, [5.0] * 37 + [4.0] * 3, False),  # 92.5 %
    (CORRECT, [5.0] * 19, False),  # fewer than 20 judged cases
    (CORRECT, [5.0] * 19 + [("error", "refused: no")] * 9, False),
    (ACCURACY, [85.0, 95.0] * 20, False),  # one letter, two grades of the judge
    (FAITHFUL, [1.0] * 40, False),  # a share of verdicts is no grade
    (CLASSES[0], [1.0] * 40, False),
])  # fmt: skip
def test_a_judge_that_gives_one_grade_is_warned_of(
    tmp_path: Path, spec: ScoreSpec, values: list[Any], warned: bool
) -> None:
    write_run(tmp_path, of(spec.name, values))
    warnings = [line for line in warning_texts(score(tmp_path, [spec])) if "the judge gave" in line]
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("correctness: the judge gave 5 in 19 of 20 cases (95%)")


def test_over_iterations_counts_add_up_and_extremes_are_those_of_all() -> None:
    one = {"correctness": {"overall": {"5": 2, "4": 0}, "by": {"method": {"a": {"5": 2, "4": 0}}}}}
    other = {"correctness": {"overall": {"5": 1, "4": 1}, "by": {"method": {"a": {"5": 1, "4": 1}}}}}
    assert add_grades([one, other]) == {
        "correctness": {"overall": {"5": 3, "4": 1}, "by": {"method": {"a": {"5": 3, "4": 1}}}}
    }
    assert one["correctness"]["overall"]["5"] == 2, "the parts stay as they are"
    first = {"noise": {"n_questions": 2, "methods": {"a": {"n": 2, "mean": 0.2, "best": 0.1, "worst": 0.3}}}}
    second = {"noise": {"n_questions": 1, "methods": {"a": {"n": 1, "mean": 0.4, "best": 0.4, "worst": 0.4}}}}
    assert merge_extremes([first, second], {"noise": {"higher_is_better": False}}) == {
        "noise": {"n_questions": 2, "methods": {"a": {"n": 3, "mean": pytest.approx(0.3), "best": 0.1, "worst": 0.4}}}
    }
