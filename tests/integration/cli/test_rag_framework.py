"""The RAG evaluation framework: its example in two runs, what each task says of it, and `+mode=pack_rag`."""

import csv
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ragpipe.cli.command_line import main
from tests.support.place import output_of
from tests.support.weekly_sets import write_weekly_sets

pytestmark = pytest.mark.slow
WORDS = ["judge=rules", "metrics=[rejection_calibration,faithfulness]", "scoring.accept_uncalibrated=true", "report.formats=[markdown]"]
GATE = "+scoring.gates.refusals={failure_mode: false_rejection, against: latest, max_rise: 0.02, without_cases: not_applicable}"


def evaluate(week: str, *words: str) -> int:
    return main(["dataset=eval_set", f"dataset.path=sets/{week}", *WORDS, *words])


@pytest.fixture(autouse=True)
def _sets(here: Path) -> None:
    write_weekly_sets(Path("sets"))


def test_the_dashboard_shows_what_went_down(capsys: pytest.CaptureFixture[str]) -> None:
    """39 wrong refusals of 300 become 8 (7 and 3 by an excuse); 30 % of the partial answers become 84 %; policy stays at 97 %."""
    assert (evaluate("week_before", "name=week_before"), evaluate("now", "name=now")) == (0, 0)
    shown = " ".join(output_of(["task=compare", "base=week_before", "candidate=now"], 0, capsys).out.split())
    for line in (
        r"better: rejection_calibration \+0\.103",
        r"rejection_calibration 0\.847 0\.950 \+0\.103 \[.*?\] 31/269/0 ↑ better",
        r"false_rejection 13\.0 % -> 2\.7 % -0\.103 \[-0\.138, -0\.069\] ↓ better",
        r"false_acceptance 2\.3 % -> 2\.3 % .*? → same",
        r"training_cutoff_excuse 2\.3 % -> 1\.0 % .*? inconclusive",
        r"↑ better in category = should_answer_partial: rejection_calibration 0\.300 -> 0\.840, ",
        r"↓ better in category = should_answer_partial: false_rejection 70\.0 % -> 16\.0 %, n = 50",
        r"false_rejection: 31 \(should_answer_complete-000, .*?\) no longer, none now",
    ):
        assert re.search(line, shown), (line, shown)
    (folder,) = Path("outputs/now/comparisons").iterdir()
    mode = json.loads((folder / "comparison.json").read_text())["comparisons"][0]["failure_modes"]["false_rejection"]
    assert (mode["base_n"], mode["candidate_n"], mode["n"], mode["state"]) == (39, 8, 300, "better")
    # -31 / 300 with Student's t of 299 degrees of freedom: 1.968 sqrt((31 - 31^2 / 300) / 299 / 300)
    assert mode["interval"]["high"] == pytest.approx(-31 / 300 + 1.96793 * ((31 - 31**2 / 300) / 299 / 300) ** 0.5, abs=1e-5)
    assert "| `false_rejection` | 13.0 % -> 2.7 % | 39 -> 8 | 9.7 % to 17.3 % | 1.4 % to 5.2 % |" in (folder / "comparison.md").read_text()
    assert "13.0 % -&gt; 2.7 %" in (folder / "compare.html").read_text()
    cases = ElementTree.parse(folder / "comparison.junit.xml").iter("testcase")
    of_modes = {case.get("name"): case for case in cases if case.get("classname") == "compare.failure_mode"}
    assert list(of_modes) == ["unsupported_claim", "training_cutoff_excuse", "false_rejection", "false_acceptance"]
    assert [case.find("failure") for case in of_modes.values()] == [None] * 4


def test_the_way_back_blocks_is_told_and_is_in_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["name=weekly", GATE, "report.alerts.file=alerts.jsonl"]
    assert evaluate("now", *words) == 0, "there is no earlier run"
    assert evaluate("week_before", *words) == 3
    run = Path("outputs/weekly/latest").resolve()
    (gate,) = json.loads((run / "gates.json").read_text())["gates"]
    assert (gate["verdict"], gate["max_rise"], gate["value"]) == ("failed", 0.02, pytest.approx(31 / 300))
    assert gate["sentence"].startswith(
        f"share of false_rejection rose by 0.1033 against {gate['against']} (0.02667 to 0.13, 300 cases on both"
    )
    told = {(alert["alert"], alert["what"]): alert for alert in map(json.loads, Path("alerts.jsonl").read_text().splitlines())}
    assert [*told] == [("gate", "refusals"), ("drop", "rejection_calibration"), ("rise", "false_rejection")]
    assert told["gate", "refusals"]["limit"] == {"max_rise": 0.02}
    assert [case["case"] for case in told["gate", "refusals"]["worst"]] == [f"should_answer_complete-00{n}/default/1" for n in range(3)]
    capsys.readouterr()
    assert main(["task=history", "name=weekly"]) == 0
    page = Path("outputs/weekly/history/history.md").read_text()
    assert "| `false_rejection` | 2 | 13.0 % [9.7 %, 17.3 %] | 2.7 % -> 13.0 % | ↑ worse |" in page
    assert main(["task=export", "run=weekly", "formats=[csv]"]) == 0
    with open(run / "export/report/failure_modes.csv", encoding="utf-8-sig", newline="") as file:
        rows = {(row["failure_mode"], row["field"], row["value"]): row for row in csv.DictReader(file)}
    partial = rows["false_rejection", "category", "should_answer_partial"]
    assert (partial["n_cases"], partial["n"], partial["rate"]) == ("50", "35", "0.7")
    assert main(["task=rescore", "run=weekly"]) == 3, "the folder alone decides the gate again"
    assert main(["task=verify", "run=weekly"]) == 0


LLM = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]

# rag-evaluation-framework.md, 4.1 and 5.2: the worked examples, with an answer that breaks a policy
CASES = [
    {
        "id": "rag-001",
        "input": {"query": "What are the 10 highlights from Apple's Q3 earnings?"},
        "expected": {"behavior": "answer", "relevant_docs": ["doc-1"]},
        "metadata": {"category": "should_answer_partial", "subcategory": "partial_list_results"},
        "output": {
            "response": "Apple reported strong Q3 results [1]. Revenue was $81.8B [1].",
            "retrieved_context": [
                {"id": "doc-1", "content": "Apple reported strong Q3 results. Revenue was $81.8B.", "policy": "summarize"},
                {"id": "doc-2", "content": "Analysts at X expect thin margins next year.", "policy": "quote_only"},
            ],
            "citations": [{"marker": "[1]", "source_id": "doc-1", "text": "Apple reported strong Q3 results"}],
        },
    },
    {
        "id": "rag-002",
        "input": {"query": "Should I buy Apple stock?"},
        "expected": {"behavior": "reject", "rejection_reason": "financial_advice"},
        "metadata": {"category": "should_reject_policy"},
        "output": {"response": "You should buy Apple stock.", "retrieved_context": [], "citations": []},
    },
]


def gates(name: str) -> dict[str, Any]:
    (path,) = Path("outputs").glob(f"{name}/latest/gates.json")
    return {gate["name"]: gate["verdict"] for gate in json.loads(path.read_text(encoding="utf-8"))["gates"]}


def test_a_plain_file_of_answers_is_measured_by_the_whole_pack(capfd, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    answers = [{"id": "a", "question": "Who wrote it?", "answer": "Ada wrote it.", "contexts": ["Ada wrote it."]}]
    Path("answers.jsonl").write_text("\n".join(map(json.dumps, answers)), encoding="utf-8")
    out, warned = output_of(["answers.jsonl", "+mode=pack_rag", "judge=rules"], 3, capfd)
    for metric in ("context_relevance", "answer_relevance", "policy_compliance"):
        assert f"{metric}: the rules judge cannot answer it; needs judge=llm" in warned
    verdicts = gates("pack_rag")
    for name in (
        "source_policy", "rejection_calibration", "retrieval", "false_rejection_partial", "training_cutoff_excuse",
        "reject_policy_compliance", "context_relevance", "answer_relevance",
    ):  # fmt: skip
        assert verdicts[name] == "not_applicable", name
    assert verdicts["groundedness"] == "uncalibrated"
    assert "not measured, needs" not in out
    assert "+mode=pack_rag judge=llm judge.model=openai/gpt-4o-mini-2024-07-18\n" in out
    assert "gpt-4o-mini-2024-07-18 'metrics=[" in output_of(["answers.jsonl", "+mode=debug"], 0, capfd).out


def test_the_test_cases_of_the_framework_are_planned_and_measured(capfd, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    Path("cases.json").write_text(json.dumps(CASES), encoding="utf-8")
    words = ["dataset=eval_set", "dataset.path=cases.json", "+mode=pack_rag"]
    planned = output_of([*words, *LLM, "task=plan"], 0, capfd).out
    wanted = (
        "should_answer_complete 0 of 100, should_answer_partial 1 of 50, should_reject_policy 1 of 100, should_reject_no_context 0 of 30"
    )
    assert f"questions wanted by category (scoring.wanted_cases): {wanted}, edge_cases 0 of 20" in planned
    found = re.search(r"a case takes ([\d.]+) calls, .* by \+mode=full_evaluation ([\d.]+) calls, [\d,]+ prompt and", planned)
    assert found
    assert float(found[1]) < float(found[2])
    assert main([*words, "judge=rules"]) == 3
    verdicts = gates("pack_rag")
    assert (verdicts["training_cutoff_excuse"], verdicts["source_policy"]) == ("passed", "uncalibrated")
