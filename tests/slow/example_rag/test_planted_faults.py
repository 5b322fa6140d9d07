"""The example RAG, evaluated: each planted fault is named with the cases that it spoils, and none without a fault."""

import json
import re
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import PACKAGE
from ragpipe.core.sample import Sample
from ragpipe.example_rag.__main__ import main as serve

METHODS = ("folders_off", "folders_on", "folders_fallback")
NAMED = {
    "wrong_scope": "scope_too_narrow", "missing_document": "not_indexed", "over_refusal": "over_refusal", "stale_note": "stale_source_used",
    "no_citations": "citations_missing",
}  # fmt: skip
Cases = frozenset[tuple[str, str]]


@cache
def samples() -> list[Sample]:
    path = PACKAGE / "data" / "handbook_cases.jsonl"
    return [Sample.model_validate_json(line) for line in path.open(encoding="utf-8")]


def _diagnosed(run: Path) -> dict[str, Cases]:
    table = pq.read_table(run / "iteration-1" / "records.parquet", columns=["sample_id", "method", "diagnosis"])
    cases: dict[str, set[tuple[str, str]]] = {}
    for row in table.to_pylist():
        for name in row["diagnosis"]:
            cases.setdefault(name, set()).add((row["sample_id"], row["method"]))
    return {name: frozenset(keys) for name, keys in cases.items()}


def _evaluate(folder: Path, *words: str) -> Path:
    assert main(["+experiment=example_rag", f"output_dir={folder}", "report.formats=[]", *words]) == 0
    return folder / "example_rag" / "latest"


def _of_all_methods(*names: str) -> Cases:
    return frozenset((name, method) for name in names for method in METHODS)


def test_without_a_fault_none_is_named(tmp_path: Path) -> None:
    run = _evaluate(tmp_path)
    metrics = json.loads((run / "iteration-1" / "metrics.json").read_text())
    assert (metrics["n_cases"], sorted(metrics["by"]["method"])) == (3 * 82, sorted(METHODS))
    assert not set(NAMED.values()) & set(_diagnosed(run))
    modes = metrics["overall"]["failure_modes"]
    assert (modes["not_indexed"]["n"], modes["not_indexed"]["n_judged"]) == (0, 3 * 64)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("fault", NAMED)
def test_each_fault_is_named_with_its_cases(tmp_path: Path, fault: str) -> None:
    """The expected cases follow from the labels: what a fault can spoil, and nothing else."""
    manifest = tmp_path / "index.jsonl"
    assert serve(["--fault", fault, "--manifest", str(manifest)]) == 0
    run = _evaluate(tmp_path, f"+system.params.faults=[{fault}]", f"system.index_manifest={manifest}")
    found = _diagnosed(run)
    named = found[NAMED[fault]]
    if fault == "missing_document":
        gold = [case.id for case in samples() if "products/heron.md" in (case.relevant_docs or ())]
        assert len(gold) == 7
        assert named == _of_all_methods(*gold)
        first = pq.read_table(run / "iteration-1" / "records.parquet", columns=["sample_id", "diagnosis"]).to_pylist()
        assert {row["diagnosis"][0] for row in first if row["sample_id"] in gold} == {"not_indexed"}
    elif fault == "stale_note":
        assert named == _of_all_methods(*(case.id for case in samples() if case.recency_conflict_rule))
    elif fault == "wrong_scope":
        words = re.compile(r"\b(?:warrant(?:y|ies)|repairs?|returns?)\b", re.IGNORECASE)
        led = [case.id for case in samples() if words.search(case.question) and case.meta["folder"] != "company" and case.answerable]
        assert {key for key in named if key[1] == "folders_on"} == {(name, "folders_on") for name in led}
        assert not any(method == "folders_off" for _, method in named)
    elif fault == "over_refusal":
        assert len(named) >= 30
        assert {name for name, _ in named} <= {case.id for case in samples() if case.answerable}
    else:
        answerable = {case.id for case in samples() if case.answerable}
        assert {name for name, _ in named} == answerable
    clean = _diagnosed(_evaluate(tmp_path / "clean"))
    new = {name: len(cases) for name, cases in found.items() if name not in clean}
    assert new[NAMED[fault]] == max(new.values()), new
    others = {NAMED[name] for name in NAMED if name != fault} & set(found)
    assert others <= CONSEQUENCES.get(fault, set())


CONSEQUENCES = {
    "wrong_scope": {"over_refusal"},  # it declines what it may not look up
    "missing_document": {"over_refusal"},  # and what is not there
}
"""What follows from a fault beside its own diagnosis."""
