"""`task=history`: three runs of a name, what is compared with what, the files, and that nothing else changes."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.comparing.history_rows import HISTORY
from tests.support.rejudged import content

pytestmark = pytest.mark.slow  # whole runs, several per test

WORDS = [
    "dataset=jsonl",
    "dataset.path=data.jsonl",
    "name=nightly",
    "metrics=[retrieval,faithfulness]",
    "report.formats=[]",
]
METRICS = ["metrics.retrieval.k=[1]", "judge=evidence"]


def write_data(found: int, cases: int = 12) -> None:
    """Questions of which the first `found` have their gold chunk among those retrieved."""
    records = [
        {"id": f"q{i}", "question": f"What does case {i} say?", "answer": f"Case {i} says {i} things.", "relevant_chunks": ["gold"],
         "chunks": [{"id": "gold" if i < found else "other", "text": f"Case {i} says {i} things."}]}
        for i in range(cases)
    ]  # fmt: skip
    Path("data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """Ten of twelve found, then two, then two with another threshold of the judge."""
    monkeypatch.chdir(tmp_path)
    for found, words in ((10, []), (2, []), (2, ["judge.window=2"])):
        write_data(found)
        assert main([*WORDS, *METRICS, *words]) == 0
    capsys.readouterr()
    return tmp_path / "outputs" / "nightly"


def history(folder: Path) -> list[dict]:
    return pq.read_table(folder / "history" / "history.parquet").to_pylist()


def test_each_score_is_compared_with_the_run_before_that_measured_it_so(runs: Path, capsys) -> None:
    before = {name: entry for name, entry in content(runs).items() if not name.startswith("history/")}
    assert main(["task=history", "name=nightly"]) == 0
    shown = capsys.readouterr().out
    assert {name: entry for name, entry in content(runs).items() if not name.startswith("history/")} == before
    table = pq.read_table(runs / "history" / "history.parquet")
    assert table.schema.names == HISTORY.names
    rows = table.to_pylist()
    hits = [row for row in rows if row["score"] == "hit@1"]
    first, second, third = hits
    assert (first["before_run"], first["before_state"], first["first_run"]) == (None, None, None)
    assert [row["mean"] for row in hits] == pytest.approx([10 / 12, 2 / 12, 2 / 12])
    assert (second["before_run"], second["first_run"]) == (first["run_id"], first["run_id"])
    assert second["before_difference"] == pytest.approx(-8 / 12)
    assert (second["before_state"], second["before_n"]) == ("worse", 12)
    assert second["first_difference"] == second["before_difference"]
    assert (third["before_run"], third["before_difference"]) == (second["run_id"], 0.0), "no judge decides this score"
    assert third["first_difference"] == pytest.approx(-8 / 12)
    faithfulness = [row for row in rows if row["score"] == "faithfulness"]
    assert [row["series"] == faithfulness[0]["series"] for row in faithfulness] == [True, True, False]
    assert faithfulness[2]["before_run"] is None, "another judge: not the same measurement"
    assert [row["noise_floor"] for row in faithfulness] == [None] * 3
    assert third["run_id"] in shown
    first_files = content(runs / "history")
    assert main(["task=history", "name=nightly"]) == 0
    assert content(runs / "history") == first_files, "nothing is written again"


def test_the_files_of_a_history(runs: Path, capsys) -> None:
    assert main(["task=history", "name=nightly", "history.formats=[csv]", "history.runs=2"]) == 0
    assert sorted(path.name for path in (runs / "history").iterdir() if not path.name.startswith(".")) == [
        "history.csv", "history.parquet",
    ]  # fmt: skip
    with (runs / "history" / "history.csv").open(encoding="utf-8-sig", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["score"] for row in written] == [row["score"] for row in history(runs)]
    assert len({row["run_id"] for row in history(runs)}) == 2
    assert main(["task=history", "history.newest_only=true"]) == 0, "every name below output_dir"
    newest = history(runs)[-1]["run_id"]
    text = (runs / "history" / "history.prom").read_text()
    assert f'run_id="{newest}"' in text
    assert text.count("ragpipe_run_info{") == 1
    assert "# History of `nightly`" in (runs / "history" / "history.md").read_text()


@pytest.mark.thorough
def test_self_tests_and_derived_runs_stay_out(runs: Path, capsys) -> None:
    newest = sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink())[0]
    assert main(["task=selftest", f"run={newest}", "selftest.n=2"]) == 0
    assert main(["task=rescore", f"run={newest}", "scoring.thresholds.faithfulness=0.91"]) == 0
    assert main(["task=history", "name=nightly"]) == 0
    assert len({row["run_id"] for row in history(runs)}) == 3
    assert main(["task=history", "name=nightly", "history.derived=true"]) == 0
    rows = history(runs)
    assert len({row["run_id"] for row in rows}) == 4
    assert {row["source_run"] for row in rows} == {None, newest.name}


def test_a_name_without_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["task=history", "name=nothing"]) == 2
    assert "there are no runs" in capsys.readouterr().err
    assert main(["task=history", "history.formats=[excel]"]) == 2
    assert "history.formats" in capsys.readouterr().err
