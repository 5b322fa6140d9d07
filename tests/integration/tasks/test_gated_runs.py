"""Gates from the command line: exit code, gates.json, terminal and page, on the demonstration set and on failing replies."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

QUICK = [
    "+experiment=quickstart",
    "metrics=[retrieval]",
    "dataset.limit=20",
    "report.formats=[terminal,markdown]",
    "report.detail=full",
]


def gates_of(run: Path) -> dict[str, Any]:
    return json.loads((run.resolve() / "gates.json").read_text())


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("gates", "code", "verdicts"),
    [
        ({"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point}"}, 3, ["failed"]),
        pytest.param(
            {"slice": "{score: mrr, where: {method: baseline}, min: 0.99, by: point, tier: quality}"}, 0, ["failed"],
        ),
        ({"slice": "{score: mrr, where: {method: baseline}, min: 0.8}"}, 0, ["inconclusive"]),  # .70 of 19 cannot tell
        pytest.param(
            {"mode": "{failure_mode: retrieval_miss, max_rate: 0, where: {method: baseline}}"}, 3, ["failed"],
        ),
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
        assert gate["sentence"] in page


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
        ("source_policy", "critical"), ("context_relevance", "quality"), ("answer_relevance", "quality"), ("faithfulness", "quality"),
        ("rejection_calibration", "quality"), ("retrieval", "diagnostic"),
    ]  # fmt: skip
    assert (found[0]["verdict"], found[0]["outcome"]) == ("not_applicable", "reported"), "the metric is not in the run"


TIERS = [
    "scoring=tiers", "scoring.gates.policy_compliance=null", "scoring.gates.groundedness=null",
    "scoring.accept_uncalibrated=true", "report.formats=[]",
]  # fmt: skip


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("dataset", "policy", "passed"), [("quoted", "quote_only", True), ("paraphrased", "no_use", False)]
)
def test_one_use_that_the_source_does_not_allow_fails_its_case_under_the_documents_tiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, policy: str, passed: bool
) -> None:
    """The answer is right, and supported by what was retrieved: by its mean alone the case passes. Its only source may not
    be used; the answer quotes it word for word, so that no judge is needed to see it."""
    text = "The auditors found no path by which a single signer can release the funds."
    case = {
        "id": "ql-2", "question": "What did the auditors find?", "answer": f'"{text}"', "relevant_docs": ["d"],
        "contexts": [{"id": "d-1", "doc_id": "d", "text": text, "policy": policy}],
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text(json.dumps(case) + "\n")
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", f"name={dataset}", *TIERS]
    code = main([*words, "metrics=[source_policy,faithfulness]"])
    folder = (tmp_path / f"outputs/{dataset}/latest").resolve()
    (row,) = pq.read_table(folder / "iteration-1/records.parquet").to_pylist()
    gate = next(gate for gate in gates_of(folder)["gates"] if gate["name"] == "source_policy")
    assert (row["source_policy"], row["overall_passed"]) == (float(passed), passed)
    assert row["overall_score"] >= 0.66, "(.10 x source_policy + .20 x faithfulness) / .30"
    assert (gate["verdict"], code) == (("passed", 0) if passed else ("failed", 3))


def test_without_a_restricted_chunk_there_is_nothing_to_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three free sources, and one case that the system failed on: nothing says that it had a restricted one."""
    monkeypatch.chdir(tmp_path)
    case = {"question": "What is it?", "answer": "It is one.", "contexts": [{"id": "d-1", "text": "It is one."}]}
    failed = {"question": "And this?", "answer": "", "error": "ConnectionError: the index is down"}
    lines = [{"id": f"q{i}", **case} for i in range(3)] + [{"id": "q3", **failed}]
    Path("data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=evidence", "name=free", "metrics=[source_policy]"]
    assert main([*words, *TIERS]) == 0
    gate = next(one for one in gates_of(tmp_path / "outputs/free/latest")["gates"] if one["name"] == "source_policy")
    assert (gate["verdict"], gate["outcome"]) == ("not_applicable", "reported")
    assert "no_restricted_chunks" in gate["sentence"]


LLM = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="run"),
        pytest.param(["task=plan"], id="plan"),
        pytest.param(["task=plan", *LLM], id="plan of a language model"),
    ],
)
def test_gates_that_no_uncalibrated_judge_can_pass_are_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A language model is no more calibrated than the embedded judge."""
    monkeypatch.chdir(tmp_path)
    gates = [
        "+scoring.gates.grounded={score: faithfulness, min: 0.5}", "+scoring.gates.rank={score: mrr, min: 0.1}",
        "+scoring.gates.soft={score: faithfulness, min: 0.5, tier: quality}",
    ]  # fmt: skip
    words = [*QUICK, "metrics=[retrieval,faithfulness]", "dataset.limit=2", *words, *gates]
    line = (
        "scoring.gates.grounded: a critical gate that rests on a judge which is not calibrated against human labels, and "
        "cannot pass (exit code 3). Label some of its answers (task=label), run task=calibrate and name the file "
        "(scoring.calibration=PATH); or trust the judge as it is (scoring.accept_uncalibrated=true)"
    )
    main(words)
    assert f"warning: {line}" in capsys.readouterr().err.replace("\n", " ")
    main([*words, "scoring.accept_uncalibrated=true"])
    assert "not calibrated against" not in capsys.readouterr().err.replace("\n", " ")


def test_ninety_percent_coverage_blocks_as_not_enough_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    data = write_cases(tmp_path / "data.jsonl", 20)
    good = {"match": "What does case", "reply": json.dumps({"reason": "so it is", "score": 5})}
    bad = [{"match": rf"What does case {case} say", "reply": "no idea"} for case in (3, 7)]
    gate = "+scoring.gates.right={score: correctness, min: 0.5}"
    accepted = "scoring.accept_uncalibrated=true"
    repaired = {"match": ".", "reply": "still none"}
    with serving(script=[*bad, good, repaired]) as server:
        words = arguments(data, tmp_path / "out", server.url, metrics="correctness")
        assert main([*words, gate]) == 3
        (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
        assert (found["value"], found["coverage"], found["verdict"]) == (1.0, 0.9, "not_enough_evidence")
        asked = len(server.log)
        loose = "+scoring.gates.right={score: correctness, min: 0.5, coverage_floor: 0.9}"
        assert main([*words, loose]) == 3, "a language model that nobody compared with people passes no critical gate"
        assert gates_of(tmp_path / "out/torture/latest")["gates"][0]["verdict"] == "uncalibrated"
        assert main([*words, loose, accepted]) == 4
        assert len(server.log) == asked, "a gate asks nothing"
    (found,) = gates_of(tmp_path / "out/torture/latest")["gates"]
    assert found["verdict"] == "passed"


def test_what_a_gate_can_tell_is_said_before_and_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first run by the questions alone, then by the spread that the run measured; nothing of a gate by point."""
    monkeypatch.chdir(tmp_path)
    gates = [
        "+scoring.gates.slice={score: mrr, where: {method: baseline}, min: 0.8}",
        "+scoring.gates.none={failure_mode: retrieval_miss, max_rate: 0}",
    ]
    assert main([*QUICK, *gates, "task=plan"]) == 0
    before = " ".join(capsys.readouterr().out.split())
    # 20 questions, one case of the method each: .8 - 1.96 sqrt(.16 / 20), then Wilson's lower bound at .84; 20 / 23.84 = .84
    assert (
        'gate slice: with 20 cases "at least 0.8" fails 8 of 10 runs of a system at 0.53 or below and passes 8 of 10 at 0.99 '
        "or above (by no earlier run: with scores between 0 and 1 it tells more)"
    ) in before
    assert "gate none" not in before
    assert main([*QUICK, *gates]) in (0, 3)
    run = (tmp_path / "outputs/quickstart/latest").resolve()
    assert "with 19 cases this gate cannot tell 0.70 from 0.8: that takes about" in capsys.readouterr().out
    assert 'with 19 cases "at least 0.8" fails 8 of 10 runs of a system at' in (run / "report.md").read_text()
    assert main([*QUICK, *gates, "task=plan"]) == 0
    assert f"(by the spread in run {run.name})" in " ".join(capsys.readouterr().out.split())
