"""The example of the RAG evaluation framework, two runs: what compare, history, gates, alerts and export say of its failure modes."""

import csv
import json
import re
from pathlib import Path
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
def sets(here: Path) -> None:
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
