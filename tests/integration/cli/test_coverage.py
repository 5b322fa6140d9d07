"""Coverage is one figure: what the judge, the system and the data set did not give, in every file and on every page."""

import json
from pathlib import Path
from typing import Any

import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.score import warning_texts
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments

pytestmark = pytest.mark.slow  # whole runs, several per test

RECORD = {
    "question": "Who wrote the notes on the engine?", "reference": "Ada Lovelace wrote the notes.", "method": "x",
    "answer": "Ada Lovelace wrote the notes in 1843.", "contexts": ["Ada Lovelace wrote the notes on the engine in 1843."],
}  # fmt: skip
METRICS = "metrics=[faithfulness,context_recall,context_precision]"


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    """Every run stands in the empty folder."""


def write(*records: dict[str, Any]) -> None:
    lines = (json.dumps({"id": f"q{i:03}", **record}) + "\n" for i, record in enumerate(records, 1))
    Path("d.jsonl").write_text("".join(lines))


def without(*names: str, **other: Any) -> dict[str, Any]:
    return {**{name: value for name, value in RECORD.items() if name not in names}, **other}


def run(*words: str) -> int:
    return main(["dataset=jsonl", "dataset.path=d.jsonl", "name=x", *words])


def read(name: str) -> dict[str, Any]:
    return json.loads(Path("outputs/x/latest", name).read_text())


def test_contexts_that_some_records_lack_are_no_zeros(capsys: pytest.CaptureFixture[str]) -> None:
    """12 records, 6 without the key: the mean is that of the six that have it, and every place says so."""
    write(*(without("contexts") if i % 2 else RECORD for i in range(12)))
    line = "contexts: not recorded in 6 of 12 cases of method x, first q002"
    assert run(METRICS, "task=plan") == 0
    assert line in " ".join(capsys.readouterr().err.split())
    assert run(METRICS, "+scoring.gates.true={score: faithfulness, min: 0.5}") == 3
    metrics = read("iteration-1/metrics.json")
    for name in ("faithfulness", "context_recall", "context_precision", "ragas_score"):
        for score in (metrics["overall"]["scores"][name], metrics["by"]["method"]["x"]["scores"][name], read("final/metrics.json")["overall"]["scores"][name]):  # fmt: skip
            assert (score["mean"], score["n_ok"], score["n_not_recorded"], score["coverage"]) == (
                1.0 if name == "faithfulness" else 100.0, 6, 6, 0.5,
            ), name  # fmt: skip
    assert metrics["overall"]["scores"]["faithfulness"]["skipped"] == {"not_recorded: contexts": 6}
    assert line in warning_texts(metrics)
    (gate,) = read("gates.json")["gates"]
    assert (gate["coverage"], gate["verdict"]) == (0.5, "not_enough_evidence")
    assert line in Path("outputs/x/latest/report.md").read_text()
    records = ragpipe.load("outputs/x/latest").records
    assert records["n_chunks"].isna().tolist() == [False, True] * 6
    assert set(records["faithfulness.reason"][1::2]) == {"not_recorded: contexts"}


def test_an_answer_that_is_not_recorded_has_no_lowest_grade() -> None:
    """With a judge of chat replies: `correctness` of an empty answer is 1, of one that is not recorded nothing."""
    write(RECORD, without("answer"), {**RECORD, "answer": ""})
    with serving(script=[{"match": ".", "reply": json.dumps({"reason": "so it is", "score": 4})}]) as server:
        assert main(arguments(Path("d.jsonl"), Path("out"), server.url, metrics="correctness")) == 0
        assert len(server.log) == 1
    found = ragpipe.load("out/torture/latest").records
    assert found["correctness"].tolist()[::2] == [4.0, 1.0]
    assert found["correctness.status"].tolist() == ["ok", "skipped", "ok"]
    assert found["correctness.reason"].tolist()[1:] == ["not_recorded: answer", "no_answer"]
    score = json.loads(Path("out/torture/latest/iteration-1/metrics.json").read_text())["overall"]["scores"]["correctness"]
    assert (score["mean"], score["n_not_recorded"], score["coverage"]) == (2.5, 1, 2 / 3)


def test_failures_of_the_system_are_in_the_coverage_of_every_place() -> None:
    write(*(without("answer", "contexts", error="500") if i < 6 else RECORD for i in range(10)))
    assert run(METRICS, "+scoring.gates.true={score: faithfulness, min: 0.5}", "iterations=2") == 3
    (found,) = read("gates.json")["gates"]
    assert (found["coverage"], found["n_system_error"], found["n_error"]) == (0.4, 12, 0)
    for name in ("faithfulness", "ragas_score"):
        score, final = (read(file)["overall"]["scores"][name] for file in ("iteration-2/metrics.json", "final/metrics.json"))
        assert (score["n_ok"], score["n_system_error"], score["coverage"]) == (4, 6, 0.4), name
        assert (final["n_ok"], final["n_system_error"], final["coverage"]) == (8, 12, 0.4), name
    said = "too few judgements came out: 4 of 10 (40.0%) for faithfulness, "
    assert any(
        line.startswith(said) and line.endswith(" (floor 95%; system errors 6)") for line in warning_texts(read("iteration-1/metrics.json"))
    )


def test_what_a_whole_method_does_not_record_does_not_apply_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """No coverage there, and none lost elsewhere: not by the gap, nor by the system errors of that method."""
    other = {"method": "answers_only"}
    write(RECORD, RECORD, without("contexts", **other), without("contexts", "answer", **other, error="500"))
    assert run(METRICS, "task=plan") == 0
    said = " ".join(capsys.readouterr().out.split())
    gap = "contexts: not recorded in method answers_only: faithfulness, context_recall, context_precision not applicable there"
    assert gap in said
    assert run(METRICS) == 0
    metrics = read("iteration-1/metrics.json")
    score = metrics["overall"]["scores"]["faithfulness"]
    assert (score["coverage"], score["n_ok"], score.get("n_not_recorded"), score.get("n_system_error")) == (1.0, 2, None, None)
    assert "faithfulness" not in metrics["by"]["method"]["answers_only"]["scores"]
    assert not [line for line in warning_texts(metrics) if "not recorded" in line]


def test_data_without_any_answer_is_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    write(without("answer"), without("answer"))
    assert run("metrics=[faithfulness]") == 4
    assert "no case has an answer, so nothing was measured" in " ".join(capsys.readouterr().err.split())
