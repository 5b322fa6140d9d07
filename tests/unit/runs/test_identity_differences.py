"""What differs between two runs, in phrases."""

from typing import Any

import pytest

from ragpipe.runs.identity import run_differences

A, B = "a" * 64, "b" * 64


def metric(version: str = "1", **prompts: str) -> dict[str, Any]:
    return {"class": "X", "version": version, "parameters": {"k": 5}, "prompts": prompts}


def identity(metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"data": A, "judge": {"model": "m1"}, "metrics": metrics, "metric_order": ", ".join(metrics), **more}


OLD = identity({"faithfulness": metric(extract=A, verify=A), "rubric": metric(grade=A)})
OLD_MINE = identity({"mine": {**metric(), "source": {"mod.a": A, "mod.b": A}, "files": {"words.txt": A}}})
RULES, MODEL = {"rules": "rules-v1", "window": 3}, {"model": "openai/m-2026-01-01", "season": ""}


@pytest.mark.parametrize(("old", "new", "said"), [
    # the keys of a metric that came or went are no news of their own, and neither is the order
    (OLD, identity({"faithfulness": metric(extract=A, verify=A), "correctness": metric(grade=A, extract=B)}),
     ["metrics +correctness -rubric"]),
    (OLD, identity({"faithfulness": metric(extract=A, verify=B), "rubric": metric(grade=A)}),
     ["1 prompt (faithfulness.verify)"]),
    (OLD, identity({"faithfulness": metric(extract=B, verify=B), "rubric": metric(grade=B)}),
     ["3 prompts (faithfulness.extract, faithfulness.verify, ...)"]),
    (identity(OLD["metrics"], judge=RULES, judge_identity=RULES),
     identity(OLD["metrics"], judge={**MODEL, "seed": 1}, judge_identity=MODEL, data=B),
     ["judge: rules-v1 -> openai/m-2026-01-01", "other data"]),
    (OLD_MINE, identity({"mine": {**metric(), "source": {"mod.a": B, "mod.b": B}, "files": {"words.txt": B}}}),
     ["files of metric mine", "code of metric mine"]),
    (OLD, identity({"rubric": metric(grade=A), "faithfulness": metric(extract=A, verify=A)}),
     ["other order of metrics"]),
    (OLD, OLD, []),
    ({**OLD, "judge_identity": {"implementation": {"mine.judge": A}}}, {**OLD, "judge_identity": {"implementation": {"mine.judge": B}}},
     ["code of the judge"]),
    (OLD, identity({"faithfulness": metric(extract=A, verify=B)}, judge={"model": "m2"}),
     ["metrics -rubric", "1 prompt (faithfulness.verify)", "judge.model: m1 -> m2"]),
])  # fmt: skip
def test_what_differs(old: dict[str, Any], new: dict[str, Any], said: list[str]) -> None:
    assert run_differences(old, new) == said


def test_the_rest_is_without_digests() -> None:
    new = identity(
        {"faithfulness": metric("2", extract=A, verify=A), "rubric": metric(grade=A)},
        data=B,
        judge={"model": "m2"},
        judge_identity={"model": "m2"},
        system={"source": {"bot": B}},
        seed=2,
    )
    old = {**OLD, "judge_identity": {"model": "m1"}, "system": {"source": {"bot": A}}, "seed": 1}
    assert run_differences(old, new) == [
        "code of the system", "other data", "judge.model: m1 -> m2", "metrics.faithfulness.version: 1 -> 2", "seed: 1 -> 2",
    ]  # fmt: skip
    # an identity of another form is compared key by key
    assert run_differences({"evil": "x", "metrics": 3}, {"evil": "y", "metrics": 3}) == ["evil: x -> y"]
