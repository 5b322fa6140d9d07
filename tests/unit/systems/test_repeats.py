"""`system.repeats`: a live system that is asked several times for each question, from its journal to the statistics."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ragpipe
from ragpipe.cli import main
from ragpipe.core.errors import DataError
from ragpipe.schema.sample import Output, Sample
from ragpipe.stages.collect_outputs import CollectStage
from ragpipe.stages.collected_outputs import collected_outputs
from ragpipe.systems.live_system import open_methods
from ragpipe.systems.settings import PythonSystem

SAMPLES = [Sample(id=f"s{i}", question=f"question {i}") for i in range(3)]
MOODY = """
import os, signal
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample["id"] + "\\n")
        total = file.tell() // 3
    if os.path.exists("stop") and total == 4:
        os.kill(os.getpid(), signal.SIGINT)
    grounded = sample["id"] == "q0" or total % 2 == 0
    return {"answer": "Paris is the capital of France." if grounded else "Lyon has nine bridges.",
            "contexts": ["Paris is the capital of France."], "repeat": 7}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "moody.py").write_text(MOODY)
    (tmp_path / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital {i}?"}}\n' for i in range(3)))
    yield tmp_path
    sys.modules.pop("moody", None)


async def collect(settings: PythonSystem, journal: Path) -> dict[str, list[Output]]:
    await CollectStage(open_methods(settings, ("moody",)), journal).run(lambda: iter(SAMPLES))
    return collected_outputs(journal)


async def test_every_question_is_asked_so_often_and_what_a_system_calls_its_repeat_counts_for_nothing(
    here: Path,
) -> None:
    found = await collect(PythonSystem(kind="python", callable="moody:answer", repeats=3), here / "j.jsonl")
    assert {name: [output.repeat for output in outputs] for name, outputs in found.items()} == {
        name: [1, 2, 3] for name in ("s0", "s1", "s2")
    }
    assert len((here / "asked.txt").read_text().split()) == 9


async def test_only_the_repeats_that_are_missing_or_failed_are_asked_again(here: Path) -> None:
    settings, journal = PythonSystem(kind="python", callable="moody:answer", repeats=3), here / "j.jsonl"
    await collect(settings, journal)
    lines = journal.read_text().splitlines()
    kept = [line for line in lines if not ('"s1"' in line and json.loads(line)["repeat"] == 2)]
    failed = Output(sample_id="s2", repeat=3, error="down").model_dump_json()
    kept.append(json.dumps({"sample_id": "s2", "method": "default", "repeat": 3, "failed": True, "output": failed}))
    journal.write_text("".join(f"{line}\n" for line in kept))
    (here / "asked.txt").unlink()

    found = await collect(settings, journal)
    assert sorted((here / "asked.txt").read_text().split()) == ["s1", "s2"]
    assert all(output.error is None for outputs in found.values() for output in outputs)


async def test_a_line_that_holds_no_output_is_named_with_its_repeat(here: Path) -> None:
    journal = here / "j.jsonl"
    settings = PythonSystem(kind="python", callable="moody:answer", repeats=2)
    await collect(settings, journal)
    bad = {"sample_id": "s1", "method": "default", "repeat": 2, "failed": False, "output": '{"answer": null}'}
    with journal.open("a") as file:
        file.write(json.dumps(bad) + "\n")
    with pytest.raises(DataError, match=r"sample 's1', method 'default', repeat 2: output"):
        await collect(settings, journal)


def moody_run(*extra: str) -> int:
    return main([
        "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=moody", "system=python", "plugins=[moody]",
        "system.callable=moody:answer", "system.concurrency=1", "system.repeats=2", *extra,
    ])  # fmt: skip


@pytest.mark.slow
def test_the_answers_of_one_question_are_cases_in_one_cluster(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """q0 is grounded both times; of q1 and q2 (asked 3rd, 4th, 5th and 6th) the even askings: the mean is 4 of 6, over
    three questions."""
    assert moody_run() == 0
    run = ragpipe.load("outputs/moody/latest")
    assert list(zip(run.records["sample_id"], run.records["repeat"], run.records["faithfulness"], strict=True)) == [
        ("q0", 1, 1.0), ("q0", 2, 1.0), ("q1", 1, 0.0), ("q1", 2, 1.0), ("q2", 1, 0.0), ("q2", 2, 1.0),
    ]  # fmt: skip
    assert (run.metrics["n_cases"], run.metrics["n_samples"]) == (6, 3)
    assert run.metrics["overall"]["scores"]["faithfulness"]["mean"] == pytest.approx(4 / 6)
    for table in ("scores", "judge_inputs"):
        assert set(zip(*(getattr(run, table)[name] for name in ("sample_id", "repeat")), strict=True)) == {
            (f"q{i}", repeat) for i in range(3) for repeat in (1, 2)
        }
    assert run.manifest["identity"]["system"]["repeats"] == 2
    capsys.readouterr()

    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "metric=faithfulness", "repeat=2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("case q1/default repeat 2\n")
    assert "faithfulness = 1" in said
    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "metric=faithfulness"]) == 0
    assert "faithfulness = 0" in capsys.readouterr().out
    assert main(["task=explain", "run=outputs/moody/latest", "case=q1", "repeat=3"]) == 2
    assert "one of 1, 2" in capsys.readouterr().err
    assert main(["task=verify", "run=outputs/moody/latest"]) == 0


@pytest.mark.slow
def test_a_stopped_collection_asks_each_repeat_once(here: Path) -> None:
    (here / "stop").touch()
    assert moody_run() == 130
    assert (here / "asked.txt").read_text().split() == ["q0", "q0", "q1", "q1"]
    (here / "stop").unlink()
    assert moody_run() == 0
    assert (here / "asked.txt").read_text().split() == ["q0", "q0", "q1", "q1", "q2", "q2"]
    outputs = pq.read_table("outputs/moody/latest/outputs.parquet").select(["sample_id", "repeat", "sample_row"])
    assert [tuple(row.values()) for row in outputs.to_pylist()] == [
        (f"q{i}", repeat, i) for i in range(3) for repeat in (1, 2)
    ]
