"""`task=spot_check`: a second judge of some cases at a local server; calls are counted from the server's own log."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import environment, write_cases
from tests.support.place import output_of

pytestmark = pytest.mark.slow
CASES = 30


def _grade(model: str, score: int, match: str) -> dict[str, str]:
    return {"match": match, "model": model, "reply": json.dumps({"reason": "r", "score": score})}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, OpenAIServer]]:
    """A run by a first judge who gives 5. A second one differs on cases that end in 0 to 3, a third on those in 0: planted
    rates of 40 % and 10 %."""
    folder = tmp_path_factory.mktemp("spot")
    script = [
        _grade("m-first", 5, "."), _grade("m-often", 2, "[0-3] say"), _grade("m-often", 5, "."),
        _grade("m-seldom", 2, "0 say"), _grade("m-seldom", 5, "."),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as monkey, serving(script=script) as server:
        monkey.chdir(folder)
        monkey.setenv("RAGPIPE_TEST_KEY", environment()["RAGPIPE_TEST_KEY"])
        data = write_cases(folder / "cases.jsonl", CASES)
        words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[rubric]", "name=spot", "report.formats=[]"]
        assert main([*words, "scoring.thresholds.rubric=4", *_judge("first", server)]) == 0
        assert len(server.log) == CASES
        yield folder / "outputs" / "spot" / "latest", server


def _judge(name: str, server: OpenAIServer) -> list[str]:
    return [
        "judge=llm", f"judge.model=openai/m-{name}-2026-01-01", f"judge.api_base={server.url}", "judge.endpoint=test",
        "judge.api_key_env=RAGPIPE_TEST_KEY",
    ]  # fmt: skip


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("judge", "rate", "warned"), [("often", 0.4, True), ("seldom", 0.1, False)])
def test_a_planted_disagreement_is_found(finished: tuple[Path, OpenAIServer], capfd, judge: str, rate: float, warned: bool) -> None:
    run, server = finished
    before = len(server.log)
    words = ["task=spot_check", f"run={run}", *_judge(judge, server)]
    assert main(words) == 0
    assert len(server.log) - before == CASES
    assert main(words) == 0
    assert main([*words, "spot_check.n=20"]) == 0, "drawn of the same cases: their replies are stored"
    assert len(server.log) - before == CASES
    documents = [json.loads(path.read_text()) for path in (run / "calibration").glob("spot_check.*.json")]
    found = {d["settings"]["n"]: d for d in documents if d["judge"].startswith(f"openai/m-{judge}")}
    assert set(found) == {20, 30}
    assert found[30]["judge_reliability"] == {"spot_check_n": CASES, "disagreement_rate": rate}
    (rubric,) = found[30]["results"]
    assert rubric["interval"]["low"] < rate < rubric["interval"]["high"]
    assert ("label these cases" in " ".join(capfd.readouterr().err.split())) is warned
    assert main(["task=verify", f"run={run}"]) == 0


def test_the_same_judge_and_prompts_are_refused(finished: tuple[Path, OpenAIServer], capfd: pytest.CaptureFixture[str]) -> None:
    run, server = finished
    before = len(server.log)
    words = ["task=spot_check", f"run={run}", *_judge("first", server), "spot_check.n=10"]
    assert "another judge or prompt" in output_of(words, 2, capfd).err
    assert "a judge that you name" in output_of(["task=spot_check", f"run={run}"], 2, capfd).err
    assert len(server.log) == before
    assert main([*words, "metrics.rubric.prompts.grade=v1"]) == 0, "another prompt is a second opinion too"
    assert len(server.log) - before == 10
