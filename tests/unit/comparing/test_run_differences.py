"""What two runs differ in: refused with what differs, and let through where it is accepted."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.store.run.run_folder import RunFolder
from tests.support.compared_runs import IDENTITY, compared, graded, scored_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

VALUES = {"q1": 0.25, "q2": 0.5, "q3": 0.75}


def changed(**parts: Any) -> dict[str, Any]:
    identity = deepcopy(dict(IDENTITY))
    metric = identity["metrics"]["grade"]
    for key, value in parts.items():
        (metric if key in metric else identity)[key] = value
    return identity


@pytest.fixture
def base(tmp_path: Path) -> RunFolder:
    return scored_run(tmp_path / "base", graded(VALUES))


JUDGE = {"judge_identity": {"model": "m-2", "temperature": 0}}
PROMPT = {"prompts": {"ask": "b" * 64}}


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(("parts", "part", "says"), [
    (JUDGE, "judge", "judge.model"),
    (JUDGE, "judge", "m-1 -> m-2"),
    (PROMPT, "prompts", "grade/ask.v1@aaaaaaaa -> grade/ask.v1@bbbbbbbb"),
    ({"version": 2}, "metrics", "grade.version"),
    ({"parameters": {"history": False}}, "metrics", "grade.parameters.history"),
    ({"parser": 4}, "parser", "3 -> 4"),
    ({"embedder": {"kind": "minilm"}}, "embedder", "embedder.kind"),
])  # fmt: skip
def test_what_differs_is_refused_and_named(
    base: RunFolder, tmp_path: Path, parts: dict[str, Any], part: str, says: str
) -> None:
    prompts = {"grade/ask.v1@bbbbbbbb": "b" * 64}
    other = scored_run(tmp_path / "other", graded(VALUES), identity=changed(**parts), prompts=prompts)
    with pytest.raises(ConfigError) as refused:
        compared(base, other)
    assert says in str(refused.value)
    assert f"compare.accept=[{part}]" in str(refused.value)
    assert refused.value.exit_code == 2
    document = compared(base, other, accept=[part]).document
    assert {(row["part"], row["accepted"]) for row in document["differs"]} == {(part, True)}


def test_every_part_that_differs_is_in_the_word_that_accepts_it(base: RunFolder, tmp_path: Path) -> None:
    other = scored_run(tmp_path / "other", graded(VALUES), identity=changed(**JUDGE, **PROMPT))
    with pytest.raises(ConfigError, match=r"compare.accept=\[judge,prompts\]"):
        compared(base, other)
    with pytest.raises(ConfigError, match=r"compare.accept=\[judge,prompts\]") as refused:
        compared(base, other, accept=["judge"])
    assert "m-1 -> m-2" not in str(refused.value)


def test_another_system_and_another_scoring_are_no_refusal(base: RunFolder, tmp_path: Path) -> None:
    identity = changed(system={"kind": "http"}, scoring={"weights": {"grade": 2.0}})
    document = compared(base, scored_run(tmp_path / "other", graded(VALUES), identity=identity)).document
    assert {(row["part"], row["key"]) for row in document["differs"]} == {
        ("answers", "system.kind"),
        ("scoring", "scoring.weights.grade"),
        ("scoring", "scoring"),
    }


def test_a_metric_of_one_run_only_is_no_difference_of_the_other(base: RunFolder, tmp_path: Path) -> None:
    identity = changed()
    identity["metrics"] = {
        **identity["metrics"],
        "tone": {"class": "Tone", "version": 9, "parameters": {}, "prompts": {}},
    }
    assert compared(base, scored_run(tmp_path / "other", graded(VALUES), identity=identity)).document["differs"] == []


@pytest.mark.parametrize(("rows", "says"), [
    (graded({"q1": 0.25, "q2": 0.5}), "1 in the base only -> 0 in the candidate only"),
    (graded({**VALUES, "q4": 0.5}), "0 in the base only -> 1 in the candidate only"),
    (graded(VALUES, labels={"references": ["Paris"]}), "references"),
    (graded(VALUES, labels={"question": "Why?"}), "3 of 3 shared samples, first q1"),
])  # fmt: skip
def test_other_data_is_refused(base: RunFolder, tmp_path: Path, rows: list[Any], says: str) -> None:
    other = scored_run(tmp_path / "other", rows)
    with pytest.raises(ConfigError) as refused:
        compared(base, other)
    assert says in str(refused.value)
    assert "compare.accept=[data]" in str(refused.value)
    assert compared(base, other, accept=["data"]).document["differs"][0]["part"] == "data"


def test_the_same_samples_in_another_order_are_the_same_data(base: RunFolder, tmp_path: Path) -> None:
    other = scored_run(tmp_path / "other", graded(dict(reversed(VALUES.items()))))
    assert compared(base, other).document["differs"] == []


def test_other_answers_are_what_one_compares(base: RunFolder, tmp_path: Path) -> None:
    other = scored_run(tmp_path / "other", graded(VALUES, output={"answer": "Another."}))
    assert compared(base, other).document["differs"] == []
