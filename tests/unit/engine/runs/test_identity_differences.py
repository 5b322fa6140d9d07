"""What differs between two runs, in at most three lines."""

from typing import Any

from ragpipe.engine.runs.run_identity import run_differences

A, B = "a" * 64, "b" * 64


def metric(version: str = "1", **prompts: str) -> dict[str, Any]:
    return {"class": "X", "version": version, "parameters": {"k": 5}, "prompts": prompts}


def identity(metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"data": A, "judge": {"model": "m1"}, "metrics": metrics, "metric_order": ", ".join(metrics), **more}


OLD = identity({"faithfulness": metric(extract=A, verify=A), "rubric": metric(grade=A)})


def lines(new: dict[str, Any], old: dict[str, Any] = OLD) -> list[str]:
    return run_differences(old, new).lines("83a94c0e1234")


def test_another_choice_of_metrics_is_one_line() -> None:
    """The keys of a metric that came or went are no news of their own, and neither is the order."""
    new = identity({"faithfulness": metric(extract=A, verify=A), "correctness": metric(grade=A, extract=B)})
    assert lines(new) == ["other metrics than run 83a94c0e1234: +correctness -rubric"]


def test_prompts_are_counted_and_named() -> None:
    one = identity({"faithfulness": metric(extract=A, verify=B), "rubric": metric(grade=A)})
    assert lines(one) == ["differs from run 83a94c0e1234: 1 prompt (faithfulness.verify)"]
    three = identity({"faithfulness": metric(extract=B, verify=B), "rubric": metric(grade=B)})
    assert lines(three) == ["differs from run 83a94c0e1234: 3 prompts (faithfulness.extract, faithfulness.verify, ...)"]


def test_the_rest_is_one_line_without_digests() -> None:
    new = identity(
        {"faithfulness": metric("2", extract=A, verify=A), "rubric": metric(grade=A)},
        data=B,
        judge={"model": "m2"},
        judge_identity={"model": "m2"},
        system={"source": {"bot": B}},
        seed=2,
    )
    old = {**OLD, "judge_identity": {"model": "m1"}, "system": {"source": {"bot": A}}, "seed": 1}
    assert lines(new, old) == ["differs from run 83a94c0e1234: code of the system; other data; judge.model: m1 -> m2; 2 more"]
    assert run_differences(old, new).phrases() == [
        "code of the system", "other data", "judge.model: m1 -> m2", "metrics.faithfulness.version: 1 -> 2", "seed: 1 -> 2",
    ]  # fmt: skip


def test_the_code_and_the_files_of_a_metric() -> None:
    old = identity({"mine": {**metric(), "source": {"mod.a": A, "mod.b": A}, "files": {"words.txt": A}}})
    new = identity({"mine": {**metric(), "source": {"mod.a": B, "mod.b": B}, "files": {"words.txt": B}}})
    assert lines(new, old) == ["differs from run 83a94c0e1234: files of metric mine; code of metric mine"]


def test_another_order_alone_and_nothing_at_all() -> None:
    turned = identity({"rubric": metric(grade=A), "faithfulness": metric(extract=A, verify=A)})
    assert lines(turned) == ["differs from run 83a94c0e1234: other order of metrics"]
    assert lines(OLD) == []


def test_an_identity_of_another_form_is_compared_key_by_key() -> None:
    assert run_differences({"evil": "x", "metrics": 3}, {"evil": "y", "metrics": 3}).phrases() == ["evil: x -> y"]


def test_all_kinds_are_three_lines() -> None:
    new = identity({"faithfulness": metric(extract=A, verify=B)}, judge={"model": "m2"})
    assert lines(new) == [
        "other metrics than run 83a94c0e1234: -rubric",
        "differs from run 83a94c0e1234: 1 prompt (faithfulness.verify)",
        "differs from run 83a94c0e1234: judge.model: m1 -> m2",
    ]
