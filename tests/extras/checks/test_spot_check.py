"""Two judges of the same cases: what counts as a disagreement, by hand; `task=spot_check` at a local server that counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.score import ScoreSpec
from ragpipe.extras.checks.spot_check import judge_reliability, sections
from ragpipe.report.model import Note, Table, plain_text
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import environment, write_cases
from tests.support.place import output_of

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
@pytest.mark.slow
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


@pytest.mark.slow
def test_the_same_judge_and_prompts_are_refused(finished: tuple[Path, OpenAIServer], capfd: pytest.CaptureFixture[str]) -> None:
    run, server = finished
    before = len(server.log)
    words = ["task=spot_check", f"run={run}", *_judge("first", server), "spot_check.n=10"]
    assert "another judge or prompt" in output_of(words, 2, capfd).err
    assert "a judge that you name" in output_of(["task=spot_check", f"run={run}"], 2, capfd).err
    assert len(server.log) == before
    assert main([*words, "metrics.rubric.prompts.grade=v1"]) == 0, "another prompt is a second opinion too"
    assert len(server.log) - before == 10


GRADE = ScoreSpec("grade", 1, 5)


def records(path: Path, cases: dict[str, tuple[float | None, bool | None]]) -> Path:
    names = ("sample_id", "method", "repeat", "grade", "grade.passed")
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.bool_())
    rows = [dict(zip(names, (name, "m", 1, *cells), strict=True)) for name, cells in cases.items()]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([*zip(names, kinds, strict=True)])), path)
    return path


def reliability(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return judge_reliability(records(tmp_path / "1", first), records(tmp_path / "2", second), [GRADE])


def notes(found: dict[str, Any]) -> list[str]:
    return [plain_text(part.text) for part in sections(found)[0].parts if isinstance(part, Note)][1:]


def test_with_a_threshold_the_verdicts_count(tmp_path: Path) -> None:
    first = {"a": (5.0, True), "b": (4.0, True), "c": (2.0, False), "d": (3.9, False), "not drawn": (5.0, True)}
    second = {"a": (4.0, True), "b": (3.9, False), "c": (1.0, False), "d": (None, None)}
    found = reliability(tmp_path, first, second)
    (grade,) = found["results"]
    assert (found["judge_reliability"]["spot_check_n"], grade["n"], grade["one_sided"], grade["rule"]) == (4, 3, 1, "verdict")
    assert found["judge_reliability"]["disagreement_rate"] == grade["share"] == pytest.approx(1 / 3)
    assert grade["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))  # by chance 2/3 x 1/3 + 1/3 x 2/3
    assert grade["difference"] == pytest.approx((-1 - 0.1 - 1) / 3)
    assert [case["sample_id"] for case in found["cases"]] == ["b"]
    *listed, result = notes(found)
    assert listed == ["b / m grade: 4, then 3.9"]
    (table,) = (part for part in sections(found)[0].parts if isinstance(part, Table))
    expected = ["as it was", "grade", "same", "1 of 3", "33 [6, 79]", "-0.70", "kappa 0.40, 1 left out, few questions"]
    assert [*map(plain_text, table.rows[0].cells)] == expected
    assert "more than 0.2" in result
    assert "label these cases" in result


def test_without_a_threshold_a_tenth_of_the_range_and_nothing_to_compare(tmp_path: Path) -> None:
    first = {"a": (5.0, None), "b": (4.0, None), "c": (2.0, None)}
    (grade,) = reliability(tmp_path, first, {"a": (4.6, None), "b": (3.5, None), "c": (2.0, None)})["results"]
    assert (grade["rule"], grade["kappa"]) == ("distance", None)
    assert grade["share"] == pytest.approx(1 / 3)
    found = reliability(tmp_path, {"a": (None, None)}, {"a": (4.0, True)})
    assert found["judge_reliability"]["disagreement_rate"] is None
    assert notes(found) == ["spot check: no score has a value from both judges in 1 case"]
