"""Gates from the command line: exit code, gates.json, terminal and page, on the demonstration set and on failing replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from tests.openai_server import in_thread
from tests.torture.harness import arguments, write_cases

QUICK = ["+experiment=quickstart", "metrics=[retrieval]", "dataset.limit=20", "report.formats=[terminal,markdown]"]


def gates_of(run: Path) -> dict[str, Any]:
    return json.loads((run.resolve() / "gates.json").read_text())


@pytest.mark.parametrize(
    ("gates", "code", "verdicts"),
    [
        ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99}"}, 3, ["failed"]),
        ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, tier: quality}"}, 0, ["failed"]),
        ({"mode": "{failure_mode: retrieval_miss, max_rate: 0, where: {method: baseline}}"}, 3, ["failed"]),
        ({"mode": "{failure_mode: retrieval_miss, max_rate: 0.5, where: {answerable: true}}", "all": "{score: mrr, min: 0.5}"}, 0, ["passed"] * 2),
    ],
)  # fmt: skip
def test_a_gate_decides_the_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gates: dict[str, str],
    code: int,
    verdicts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, *(f"+scoring.gates.{name}={gate}" for name, gate in gates.items())]) == code
    run = tmp_path / "outputs/quickstart/latest"
    document, page = gates_of(run), (run / "report.md").read_text()
    said = capsys.readouterr()
    assert [gate["verdict"] for gate in document["gates"]] == verdicts
    assert document["passed"] is (code == 0)
    assert "## Gates" in page
    for gate in document["gates"]:
        assert gate["name"] in said.out
        assert (gate["sentence"] in said.err.replace("\n", " ")) is (gate["outcome"] in ("blocked", "warned"))
        assert (gate["sentence"] in page) is (gate["outcome"] in ("blocked", "warned"))


def test_the_documents_tiers_say_what_they_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*QUICK, "scoring=tiers", "scoring.gates.groundedness=null"]
    assert main(words) == 3
    assert "this run does not give policy_compliance" in capsys.readouterr().err
    assert main([*words, "scoring.gates.policy_compliance=null"]) == 0
    found = gates_of(tmp_path / "outputs/quickstart/latest")["gates"]
    assert [(gate["name"], gate["tier"]) for gate in found] == [
        ("context_relevance", "quality"), ("answer_relevance", "quality"), ("faithfulness", "quality"),
        ("rejection_calibration", "quality"), ("retrieval", "diagnostic"),
    ]  # fmt: skip


def test_ninety_percent_coverage_blocks_as_not_enough_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    data = write_cases(tmp_path / "data.jsonl", 20)
    good = {"match": "What does case", "reply": json.dumps({"reason": "so it is", "score": 5})}
    bad = [{"match": rf"What does case {case} say", "reply": "no idea"} for case in (3, 7)]
    gate = "+scoring.gates.right={score: correctness, min: 0.5}"
    repaired = {"match": ".", "reply": "still none"}
    with in_thread(script=[*bad, good, repaired]) as server:
        words = arguments(data, tmp_path / "out", server.url, metrics="correctness")
        assert main([*words, gate]) == 3
        (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
        assert (found["value"], found["coverage"], found["verdict"]) == (1.0, 0.9, "not_enough_evidence")
        asked = len(server.log)
        assert main([*words, "+scoring.gates.right={score: correctness, min: 0.5, coverage_floor: 0.9}"]) == 4
        assert len(server.log) == asked, "a gate asks nothing"
    (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
    assert found["verdict"] == "passed"
