"""Whole runs with a live system and the rules judge: what is asked, what a stop costs, what a failure becomes."""

import json
import re

import pytest

import ragpipe
from ragpipe.cli.command_line import main

pytestmark = pytest.mark.slow  # whole runs, several per test

RAG = """
import os, signal
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample["id"] + "\\n")
        asked = file.tell() // 3
    if os.path.exists("stop") and asked == 3:
        os.kill(os.getpid(), signal.SIGINT)
    if os.path.exists("fail") and sample["id"] == "q1":
        raise ConnectionError("the index is down")
    return {"answer": "Paris is the capital.", "contexts": ["Paris is the capital of France."]}
"""
ASKED = [f"q{i}" for i in range(6)]


@pytest.fixture
def here(code_here):
    (code_here / "livesystem.py").write_text(RAG)
    (code_here / "q.jsonl").write_text("".join(f'{{"id": "{i}", "question": "Capital?"}}\n' for i in ASKED))
    return code_here


def python_run(*extra):
    return main([
        "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=live", "system=python", "plugins=[livesystem]",
        "system.callable=livesystem:answer", "system.method=mine", "system.concurrency=1", "system.retries=0", *extra,
    ])  # fmt: skip


def asked(here):
    return (here / "asked.txt").read_text().split()


def test_a_stopped_collection_goes_on_and_a_finished_one_is_never_repeated(here, capfd):
    (here / "stop").touch()
    assert python_run() == 130
    assert asked(here) == ASKED[:3]
    assert "to go on where it stopped" in capfd.readouterr().err
    assert python_run() == 0
    assert asked(here) == ASKED  # each once, none again
    found = ragpipe.load("outputs/live/latest")
    assert list(found.records["faithfulness"]) == [1.0] * 6
    assert set(found.records["method"]) == {"mine"}
    assert python_run() == 0  # a third start, another metric, another judge's settings, another iteration: nobody is asked
    assert python_run("metrics=[faithfulness,groundedness]", "judge.threshold=0.5", "iterations=2") == 0
    assert asked(here) == ASKED
    assert len(ragpipe.load("outputs/live/latest/iteration-2").records) == 6
    assert python_run("system.version=2") == 0
    assert asked(here) == ASKED + ASKED


def test_a_system_that_fails_is_an_error_of_that_case_and_ends_the_run_with_4(here, capfd):
    (here / "fail").touch()
    assert python_run() == 4
    found = ragpipe.load("outputs/live/latest")
    record = found.records.set_index("sample_id").loc["q1"]
    assert record["system_error"] == "ConnectionError: the index is down"
    assert (record["faithfulness.status"], record["faithfulness.reason"]) == ("skipped", "system_error")
    score = found.metrics["overall"]["scores"]["faithfulness"]
    assert (score["mean"], score["n_ok"], score["n_skipped"]) == (1.0, 5, 1)
    err = capfd.readouterr().err
    assert "it failed on 1 of 6 (scoring.coverage_floor=0.95), first q1: ConnectionError: the index is down." in err
    assert re.search(r"^to go on where it stopped: .* retry_errors=true$", err, re.MULTILINE), "the command that helps"
    assert python_run() == 4, "and so it stays: the same command asks nobody again"
    assert len(asked(here)) == 6
    gate = "scoring.gates={enough: {score: faithfulness, of: mean, min: 0.5, tier: critical}}"
    assert python_run(gate, "scoring.accept_uncalibrated=true") == 3
    (found,) = json.loads((here / "outputs/live/latest/gates.json").read_text())["gates"]
    assert (found["verdict"], found["value"], found["coverage"]) == ("not_enough_evidence", 1.0, pytest.approx(5 / 6))
    assert python_run(gate, "scoring.accept_uncalibrated=true", "scoring.coverage_floor=0.8") == 0
    (here / "fail").unlink()
    capfd.readouterr()
    assert python_run("retry_errors=true") == 0
    assert asked(here)[6:] == ["q1"]
    assert "to go on" not in capfd.readouterr().err


@pytest.mark.thorough
def test_the_version_of_a_live_system_and_the_price_of_its_tokens(here, capfd):
    """A price asks nobody again, not the system either; 1,000 tokens in at $2 and 500 out at $4 per million are $0.004."""
    (here / "livesystem.py").write_text(RAG.replace('"contexts"', '"usage": {"tokens_in": 1000.0, "tokens_out": 500.0}, "contexts"'))
    assert python_run("system.version=v7") == 0
    assert ", price unknown" in capfd.readouterr().out
    found = ragpipe.load("outputs/live/latest")
    assert set(found.records["version"]) == {"v7"}
    assert re.search(r" \| system mine v7\+source:[0-9a-f]{8} \| ", found.metrics["signature"])
    assert json.loads((found.folder.parent / "manifest.json").read_text())["data"]["versions"] == {"mine": ["v7"]}
    assert found.metrics["by"]["version"]["v7"]["n_cases"] == 6
    prices = "system.prices={input: 2, output: 4}"
    assert python_run("system.version=v7", prices) == 0
    assert "system 9,000 tokens, $0.0240" in capfd.readouterr().out
    assert asked(here) == ASKED, "the outputs are those of the previous run"
    first = json.loads((here / "outputs/live/latest/manifest.json").read_text())["source_run"]
    assert first is None
    assert main(["task=rescore", "run=outputs/live/latest", "system.prices={input: 4, output: 8}"]) == 0
    assert "system 9,000 tokens, $0.0480" in capfd.readouterr().out
    assert main(["task=rescore", "run=outputs/live/latest", "system.version=v8"]) == 2
    assert "system.version" in capfd.readouterr().err
    assert main(["task=verify", "run=outputs/live/latest"]) == 0
    assert asked(here) == ASKED


def test_recorded_outputs_name_their_versions(here):
    """As a mapping brings them in: two system prompts of one method, and a method that names none."""
    rows = [("a", "v1"), ("a", "v2"), ("b", None)]
    (here / "o.jsonl").write_text("".join(
        json.dumps({"id": f"q{n}", "question": "Capital?", "method": m, "answer": "Paris.", "contexts": ["Paris."],
                    "meta": {}} | ({"version": v} if v else {})) + "\n"
        for n, (m, v) in enumerate(rows)
    ))  # fmt: skip
    assert main(["dataset=jsonl", "dataset.path=o.jsonl", "metrics=[faithfulness]", "name=named"]) == 0
    found = ragpipe.load("outputs/named/latest")
    assert list(found.records["version"].fillna("")) == ["v1", "v2", ""]
    assert " | system a v1+v2 | " in found.metrics["signature"]
    assert {name: group["n_cases"] for name, group in found.metrics["by"]["version"].items()} == {"v1": 1, "v2": 1}
