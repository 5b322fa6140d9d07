"""Whole runs with several live methods: their tables, their faults in the configuration, and what a change asks again."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragpipe
from ragpipe.cli import main
from tests.support.rows import first_rows

RAG = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample["params"]["name"] + "\\n")
    if sample["params"]["name"] == "closed":
        return "Paris is the capital of France."
    return {"answer": "Paris is the capital of France.", "contexts": ["Paris is the capital of France."]}
"""
METHODS = "{dense: {params: {name: dense}}, closed: {params: {name: closed}, retrieves: false}}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "several.py").write_text(RAG)
    (tmp_path / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital?"}}\n' for i in range(3)))
    yield tmp_path
    sys.modules.pop("several", None)


def several(methods: str, *words: str) -> int:
    return main([
        "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=several", "system=python",
        "plugins=[several]", "system.callable=several:answer", f"system.methods={methods}", *words,
    ])  # fmt: skip


def asked(here: Path) -> Counter[str]:
    path = here / "asked.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.mark.slow
def test_a_changed_or_a_new_method_is_asked_alone(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert several(METHODS) == 0
    assert asked(here) == {"dense": 3, "closed": 3}
    run = ragpipe.load("outputs/several/latest")
    assert list(run.records["method"]) == ["dense", "closed"] * 3
    assert list(run.records["faithfulness.status"]) == ["ok", "skipped"] * 3
    assert run.metrics["by"]["method"]["dense"]["scores"]["faithfulness"]["mean"] == 1.0
    out = capfd.readouterr().out
    assert "collected 3 outputs of dense" in out
    assert "collected 3 outputs of closed" in out

    assert several(METHODS.replace("{name: dense}}", "{name: dense, k: 9}}")) == 0
    assert asked(here) == {"dense": 6, "closed": 3}
    out = capfd.readouterr().out
    assert "outputs of dense are collected again: another system than in run" in out
    assert "3 outputs of closed are those of run" in out

    more = METHODS.replace("{name: dense}}", "{name: dense, k: 9}}")[:-1] + ", new: {params: {name: new}}}"
    assert several(more) == 0
    assert asked(here) == {"dense": 6, "closed": 3, "new": 3}
    assert set(ragpipe.load("outputs/several/latest").records["method"]) == {"dense", "closed", "new"}
    assert several(more, "judge.threshold=0.5") == 0, "another judge's settings ask no system"
    assert asked(here) == {"dense": 6, "closed": 3, "new": 3}
    assert main(["task=verify", "run=outputs/several/latest"]) == 0
    manifest = json.loads((here / "outputs/several/latest/manifest.json").read_text())
    assert set(manifest["identity"]["system"]["methods"]) == {"dense", "closed", "new"}


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "words", "told"),
    first_rows([
        ("{a: {calable: 'x:y'}}", (), "system.methods.a.calable"),
        ("{a: {prices: {input: 1, output: 1}}}", (), "prices in the section, for all methods"),
        ("{a: {repeats: 0}}", (), "system.methods.a.repeats"),
        ("{a: {}}", ("system.method=mine",), "no name, where system.methods names the methods"),
        ("{a: {callable: 'several:nothing'}}", (), "several:nothing"),
    ], keep=2),
)  # fmt: skip
def test_a_wrong_method_is_refused_with_its_key(
    here: Path, capfd: pytest.CaptureFixture[str], methods: str, words: tuple[str, ...], told: str
) -> None:
    assert several(methods, "task=plan", *words) == 2
    assert told in capfd.readouterr().err


@pytest.mark.slow
def test_the_plan_names_the_methods(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert several(METHODS, "task=plan") == 0
    assert "3 samples; 2 methods are asked once for each when the run starts: dense, closed" in capfd.readouterr().out
    assert asked(here) == {}
