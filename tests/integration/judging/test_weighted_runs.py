"""Whole runs with grades weighted by their probabilities, at a local server that gives `logprobs`, or refuses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import environment, rows, write_cases

pytestmark = pytest.mark.slow

CASES = 6
RUBRIC = "Criteria of the rubric"
MODEL = "openai/m-2026-01-01"
WEIGHTED = round((3 * 0.08 + 4 * 0.7 + 5 * 0.2) / 0.98, 6)


class Bench:
    """A place with data and a server that grades with 4, of which it is sure by 0.7."""

    def __init__(self, folder: Path, server: OpenAIServer):
        self.folder, self.server = folder, server
        self.data = write_cases(folder / "cases.jsonl", CASES)

    def run(self, *words: str, metrics: str = "rubric,faithfulness", model: str = MODEL) -> int:
        code = main([
            "dataset=jsonl", f"dataset.path={self.data}", f"metrics=[{metrics}]", "name=bench", "output_dir=out", "judge=llm",
            f"judge.model={model}", f"judge.api_base={self.server.url}", "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY",
            *words,
        ])  # fmt: skip
        assert isinstance(code, int)
        return code

    def done(self, task: str, *words: str) -> int:
        code = main([f"task={task}", f"run={self.latest}", *words])
        assert isinstance(code, int)
        return code

    @property
    def latest(self) -> Path:
        return self.folder / "out" / "bench" / "latest"

    def values(self) -> set[float]:
        return {
            row["value"]
            for row in rows(self.latest / "iteration-1" / "scores.parquet")
            if row["score_name"] == "rubric"
        }

    def questions(self, metric: str) -> list[dict[str, Any]]:
        return [row for row in rows(self.latest / "iteration-1" / "judge_inputs.parquet") if row["metric"] == metric]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", environment()["RAGPIPE_TEST_KEY"])
    monkeypatch.chdir(tmp_path)
    reply = json.dumps({"reason": "r", "score": 4})
    script = [{"match": RUBRIC, "reply": reply, "probabilities": {"4": 0.7, "5": 0.2, "3": 0.08, "N": 0.02}}]
    with serving(script=script) as server:
        server.keep_bodies = True
        yield Bench(tmp_path, server)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("client", ["direct", "litellm"])
def test_grades_are_weighted_and_every_task_repeats_it_without_a_call(
    bench: Bench, capsys: pytest.CaptureFixture[str], client: str
) -> None:
    assert bench.run(f"judge.client={client}") == 0
    assert bench.values() == {4}
    plain = len(bench.server.log)
    assert not any("logprobs" in body for body in bench.server.bodies.values())

    weighing = ("judge.weighted_scores=true", f"judge.client={client}")
    assert bench.run("task=plan", *weighing) == 0
    assert f"up to {CASES} new calls" in capsys.readouterr().out
    assert bench.run(*weighing) == 0
    assert len(bench.server.log) == plain + CASES, "only the grades are asked again"
    asked = [bench.server.bodies[line["body"]] for line in bench.server.log[plain:]]
    assert {(body["logprobs"], body["top_logprobs"]) for body in asked} == {(True, 20)}
    assert {round(value, 6) for value in bench.values()} == {WEIGHTED}
    document = json.loads((bench.latest / "iteration-1" / "metrics.json").read_text())
    assert document["weighted_grades"] == {"rubric": {"weighted": CASES, "not_weighted": 0}}
    assert {tuple(row["flags"]) for row in bench.questions("rubric")} == {("weighted",)}
    assert {row["digits"] for row in bench.questions("faithfulness")} == {None}

    assert bench.run(*weighing) == 0
    assert bench.done("rescore", "scoring.thresholds.rubric=4.1") == 0
    assert {round(value, 6) for value in bench.values()} == {WEIGHTED}
    assert bench.done("verify") == 0
    capsys.readouterr()
    assert bench.done("explain", "case=q00003", "metric=rubric") == 0
    assert "probabilities of score: 4 with 0.700, 5 with 0.200, 3 with 0.080" in capsys.readouterr().out
    assert bench.done("rejudge", "transport=stored") == 0
    assert len(bench.server.log) == plain + CASES
    # off again: the replies of the first run, the same run
    assert bench.run(f"judge.client={client}") == 0
    assert bench.values() == {4}
    assert len(bench.server.log) == plain + CASES


def test_a_provider_without_probabilities_leaves_the_grades_and_the_run_says_so(bench: Bench) -> None:
    bench.server.script[0]["probabilities"] = {"4": 0.5, "N": 0.5}  # half of it is off the scale
    assert bench.run("judge.weighted_scores=true", metrics="rubric") == 0
    assert bench.values() == {4}
    assert {tuple(row["flags"]) for row in bench.questions("rubric")} == {("not_weighted",)}
    warnings = json.loads((bench.latest / "iteration-1" / "metrics.json").read_text())["warnings"]
    said = [warning["text"] for warning in warnings if "weighted" in warning["text"]]
    assert said == [
        f"rubric: {CASES} of {CASES} grades are not weighted: the reply has no probabilities of its grade, or less than 0.9 on the scale"
    ]


def test_a_provider_that_refuses_is_named_with_the_setting_to_change(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"error": {"message": "logprobs is not supported with this model", "param": "logprobs"}}
    bench.server.script.insert(0, {"match": ".", "status": 400, "body": refusal})
    assert bench.run("judge.weighted_scores=true", metrics="rubric") == 5
    said = " ".join(capsys.readouterr().err.split())
    assert "judge.weighted_scores: false" in said
    assert len(bench.server.log) == 1


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("anthropic/claude-3-5-haiku-20241022", (), "gives no probabilities of tokens"),
        ("openai/o3-2025-04-16", (), "gives no probabilities of tokens"),
        (MODEL, ("judge.capabilities.top_logprobs=0",), "gives no probabilities of tokens"),
        (MODEL, ("judge.reasoning_effort=low",), "after its thoughts a model is sure of its grade"),
    ],
)
def test_what_cannot_be_weighted_is_refused_before_anything_is_asked(
    bench: Bench, capsys: pytest.CaptureFixture[str], model: str, words: tuple[str, ...], said: str
) -> None:
    assert bench.run("judge.weighted_scores=true", *words, model=model) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not bench.server.log
