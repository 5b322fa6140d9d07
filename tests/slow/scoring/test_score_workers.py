"""Scoring by worker processes: the bytes of one process, whatever their number and whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from ragpipe.core.errors import RagpipeError
from ragpipe.engine import evaluation
from ragpipe.engine.workers import score_workers, worker_processes
from ragpipe.engine.workers.score_messages import ScoreStart
from ragpipe.engine.workers.score_workers import score_by_workers
from ragpipe.engine.workers.worker_processes import WorkerPool
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from tests.support.divided_scoring import RESULTS, divided_run, results
from tests.support.harness import ROOT
from tests.support.slice_runs import lives, until

CASES = 2300  # three row groups


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_workers, "FEWEST_CASES", 1)


def write_cases(path: Path) -> None:
    with path.open("w") as file:
        for n in range(CASES):
            chunks = [{"id": f"d{n + i}-0", "doc_id": f"d{n + i}", "text": f"text {i}"} for i in range(n % 5)]
            record = {"id": f"q{n}", "question": f"what is {n}?", "answer": f"it is {n}", "chunks": chunks}
            file.write(json.dumps(record | {"category": f"c{n % 3}", "relevant_docs": [f"d{n + n % 4}"]}) + "\n")


def sealed(run: Path) -> dict[str, Any]:
    """What the seal says of the files of a run; its configuration names the runner."""
    seal = json.loads((run / "seal.json").read_text())
    return {name: digest for name, digest in {**seal["files"], **seal["tables"]}.items() if name != "config.yaml"}


def by_workers(inputs: ScoreInputs, say: Callable[[str], None]) -> dict[str, Any] | None:
    with WorkerPool() as workers:
        return score_by_workers(inputs, workers, width=2, say=say)


def test_a_run_is_sealed_alike_whoever_scores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cases(tmp_path / "cases.jsonl")
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=s", "report.formats=[]"]
    assert main(words) == 0
    run = (tmp_path / "outputs" / "s" / "latest").resolve()
    alone = {name: (run / "iteration-1" / name).read_bytes() for name in RESULTS}
    seal = sealed(run)
    assert {f"iteration-1/{name}" for name in RESULTS} <= set(seal)
    for width in (1, 2, 4):
        for name in RESULTS:
            (run / "iteration-1" / name).unlink()
        if width > 1:
            monkeypatch.setattr(evaluation, "score_iteration", None)  # nothing is left to one process
        assert main([*words, "runner=processes", f"runner.workers={width}"]) == 0
        assert {name: (run / "iteration-1" / name).read_bytes() for name in RESULTS} == alone
        assert sealed(run) == seal
        assert len(started) == (0 if width == 1 else width)
        started.clear()


@pytest.mark.thorough
def test_a_killed_worker_leaves_scoring_to_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    inputs, calls, lines = divided_run(tmp_path, 200), list[bytes](), list[str]()
    answer_of = worker_processes.answer_of

    def killed_at_the_fifth(process: subprocess.Popen[bytes], message: bytes) -> Any:
        calls.append(message)
        if len(calls) == 5:
            os.kill(process.pid, signal.SIGKILL)
        return answer_of(process, message)

    monkeypatch.setattr(worker_processes, "answer_of", killed_at_the_fifth)
    assert by_workers(inputs, lines.append) is None
    assert len(lines) == 1
    assert "a worker that scored died" in lines[0]
    assert "this process scores alone" in lines[0]
    assert not any((inputs.folder / name).exists() for name in RESULTS)
    assert all(process.returncode is not None for process in started)


@pytest.mark.thorough
def test_what_is_wrong_with_the_scores_is_said_by_one_process(tmp_path: Path) -> None:
    inputs, lines = divided_run(tmp_path, 40), list[str]()
    metrics = by_workers(inputs, lines.append)
    by_two = results(inputs)
    assert score_iteration(inputs) == metrics
    assert results(inputs) == by_two
    lacking = replace(inputs, specs=inputs.specs[:1])
    assert by_workers(lacking, lines.append) is None
    with pytest.raises(RagpipeError, match="which no metric of this configuration declares"):
        score_iteration(lacking)
    assert lines == []


DRIVER = """
import json, sys, time
from ragpipe.engine.workers import worker_processes
from ragpipe.engine.workers.score_messages import RowGroupTask
new_process = worker_processes.new_process

def new(module):
    process = new_process(module)
    print(process.pid, flush=True)
    return process

worker_processes.new_process = new
start = json.loads(sys.argv[1])
with worker_processes.WorkerPool() as workers:
    with workers.answering("score", start, 2) as ask:
        print(len(ask(RowGroupTask(0, None).message())[0]["blocks"]), flush=True)
        if sys.argv[2] == "answering":
            time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("state", ["answering", "waiting"])
def test_no_worker_outlives_its_driver(tmp_path: Path, state: str) -> None:
    start = json.dumps(ScoreStart.of(divided_run(tmp_path, 40)).values())
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, start, state],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert driver.stdout is not None
    first, second, blocks = (int(driver.stdout.readline()) for _ in range(3))
    assert blocks == 1
    assert lives(first)
    assert lives(second)
    driver.kill()
    driver.communicate()
    until(lambda: not (lives(first) or lives(second)))
