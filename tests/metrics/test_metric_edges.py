"""Where a metric's rule ends: what counts as a citation, as a refusal, as an unknown number, as too long."""

from __future__ import annotations

from scripted import make_case, score_of, shipped_metric


def test_an_answer_too_long_for_patterns_is_an_error_of_its_case_and_no_question_of_the_plan():
    metric, case = shipped_metric("answer_class"), make_case("x " * 100_001, references=["x"])
    assert list(metric.asks(case)) == []
    assert score_of(metric, case)["correct_answers"].reason.startswith("too_long: 200,002 characters")
