"""Runs over cases with several references: what the plan, the details and `task=explain` say, and what names the run."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main

pytestmark = pytest.mark.slow  # several whole runs

TEA = "Tea is grown in Assam and in Ceylon."
COAL = "Coal is mined in Wales."


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "several", "question": "What is grown?", "answer": TEA, "contexts": [TEA, "Bees make honey."], "references": [COAL, TEA]},
        {"id": "single", "question": "What is grown?", "answer": TEA, "contexts": [TEA], "reference": TEA},
    ]  # fmt: skip
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[context_recall,context_precision]"]


def scores(case: str) -> dict[str, dict[str, object]]:
    folder = Path("outputs/run/latest/iteration-1/scores.parquet")
    found = {row["score_name"]: row for row in pq.read_table(folder).to_pylist() if row["sample_id"] == case}
    return {name: {**row, "details": json.loads(row["details"] or "{}")} for name, row in found.items()}


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("rule", "counts", "recall", "precision"),
    [
        ("any", "any one counts", 100, 50),
        ("first", "the first alone counts", 0, 0),
        ("all", "all of them count", 50, 25),  # one of two statements; the mean of 0 and 50
    ],
)
def test_the_data_set_says_which_reference_counts(words, rule, counts, recall, precision, capsys):
    assert main([*words, f"dataset.references={rule}"]) == 0
    said = capsys.readouterr()
    assert f"1 case has several references: {counts} (references: {rule})\n" in said.out + said.err
    several, single = scores("several"), scores("single")
    assert (several["context_recall"]["value"], several["context_precision"]["value"]) == (recall, precision)
    assert (single["context_recall"]["value"], single["context_precision"]["value"]) == (100, 100)
    assert "reference" not in single["context_recall"]["details"]
    assert main([*words, f"dataset.references={rule}", "task=plan"]) == 0
    assert f"(references: {rule})\n" in capsys.readouterr().out
    assert main(["task=verify", "run=outputs/run/latest"]) == 0


def test_explain_names_the_reference_that_a_value_rests_on(words, capsys):
    assert main([*words, "metrics.context_precision.references=all"]) == 0
    capsys.readouterr()
    assert main(["task=explain", "run=outputs/run/latest", "case=several", "messages=false"]) == 0
    said = capsys.readouterr().out
    assert f"  reference 1:\n  | {COAL}\n  reference 2:\n  | {TEA}\n" in said
    recall, precision = said.partition("score context_precision ")[::2]
    assert '  reference: "2 of 2"\n' in recall
    assert "how: 100 x 1 supported / 1 claims\n" in recall
    assert '  reference: "mean of 2 of 2"\n' in precision
    assert "how: (0 + 50) / 2 references\n" in precision
    assert main(["task=explain", "run=outputs/run/latest", "case=single", "messages=false"]) == 0
    assert f"  reference:\n  | {TEA}\n" in capsys.readouterr().out


def test_the_rule_names_the_run_by_the_metrics_that_follow_it(words):
    assert main(words) == 0
    runs = set(Path("outputs/run").glob("*/manifest.json"))
    assert main([*words, "dataset.references=any"]) == 0  # what is so anyway
    assert set(Path("outputs/run").glob("*/manifest.json")) == runs
    assert main([*words, "dataset.references=first"]) == 0
    (new,) = set(Path("outputs/run").glob("*/manifest.json")) - runs
    manifest = json.loads(new.read_text(encoding="utf-8"))
    assert manifest["identity"]["metrics"]["context_recall"]["parameters"]["references"] == "first"
    assert "references" not in manifest["identity"]["dataset"]


def test_another_word_is_refused(words, capsys):
    assert main([*words, "dataset.references=best"]) == 2
    said = capsys.readouterr().err
    assert "dataset.references" in said
    assert "expected: one of any, first, all" in said
    assert main([*words, "metrics.context_recall.references=best"]) == 2
    assert "metrics.context_recall.references" in capsys.readouterr().err
