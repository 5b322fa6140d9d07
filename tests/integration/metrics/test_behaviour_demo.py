"""A whole run over the demonstration data: the planted failures that the metrics of behaviour find, and what passes."""

import json

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import PACKAGE

pytestmark = pytest.mark.slow
ON = "citation,source_policy,policy_compliance,rejection_calibration,abstention,must_quote,expected_citation_recall,recency_conflict"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("behaviour")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        words = [f"metrics=[{ON}]", "metrics.policy_compliance.method=patterns", "report.formats=[]"]
        assert main(["+experiment=quickstart", *words]) == 0
    return (root / "outputs" / "quickstart" / "latest" / "iteration-1").resolve()


@pytest.fixture(scope="module")
def records(run):
    rows = pq.read_table(run / "records.parquet").to_pylist()
    return {(row["sample_id"], row["method"]): row for row in rows}


@pytest.fixture(scope="module")
def planted():
    lines = (PACKAGE / "data" / "demo" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        (line["id"], output["method"]): set(line["meta"].get("planted", {}).get(output["method"], ()))
        for line in map(json.loads, lines)
        for output in line["outputs"]
    }


# Failure mode: planted cases, found among them, found beside them.
FOUND = {
    "policy_violation": (3, 3, 0),
    "quote_only_violation": (2, 2, 0),
    "training_cutoff_excuse": (2, 2, 0),
    "hallucinated_unanswerable": (4, 4, 0),
    "stale_source": (3, 2, 0),  # the third: whether both notes are acknowledged is no question for the rules judge
    "false_rejection": (7, 7, 0),
    "false_acceptance": (6, 6, 0),
    "missing_citation": (2, 2, 3),  # refusals that were not due, of cases that require citations
}


@pytest.mark.parametrize("mode", FOUND)
def test_planted_failures(mode, records, planted):
    told = {key for key, row in records.items() if mode in row["failure_modes"]}
    there = {key for key, modes in planted.items() if mode in modes}
    assert (len(there), len(told & there), len(told - there)) == FOUND[mode], told ^ there


def test_dangling_citations_are_those_that_were_planted(records, planted):
    dangling = {key for key, row in records.items() if (row["citation_valid"] or 0) < 1 and row["n_citations"]}
    judged = {key for key in dangling if records[key]["citation.status"] == "ok"}
    assert judged == {key for key, modes in planted.items() if "dangling_citation" in modes}


def test_explain_adds_up_and_says_why_a_good_value_does_not_pass(run, records, monkeypatch, capsys):
    case = next(k for k, r in records.items() if (r["citation"] or 0) >= 0.7 and r["citation.passed"] is False)
    monkeypatch.chdir(run.parents[3])
    assert main(["task=explain", f"run={run.parent}", f"case={case[0]}", f"method={case[1]}", "metric=citation"]) == 0
    said = capsys.readouterr().out
    assert "0.3 x " in said
    assert "at least 0.7 is not enough by itself" in said
    assert "not passed, passes exactly when citation, citation_coverage_met do" in said
