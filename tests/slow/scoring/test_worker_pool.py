"""Processes that read, score and seal one after the other: started once, the bytes of one process, and none with answers due is used
again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.engine.workers import load_workers, score_workers, seal_workers, worker_processes
from ragpipe.engine.workers.plain_messages import HEAD, packed_message
from ragpipe.engine.workers.seal_workers import digests_by_workers
from ragpipe.engine.workers.worker_processes import WorkerLost, WorkerPool
from ragpipe.store.run.seals import seal_table

CASES = 2300  # three row groups


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_workers, "FEWEST_PARTS", 0)
    monkeypatch.setattr(score_workers, "FEWEST_CASES", 1)
    monkeypatch.setattr(seal_workers, "FEWEST_ROWS", 1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of forty row groups."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": range(80), "text": [f"text {n}" for n in range(80)]}), path, row_group_size=2)
    return path


def test_a_run_reads_scores_and_seals_by_the_same_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("cases.jsonl", "w") as file:
        for n in range(CASES):
            chunks = [{"id": f"d{n + i}", "text": f"text {i}"} for i in range(n % 5)]
            record = {"id": f"q{n}", "question": f"what is {n}?", "answer": f"it is {n}", "chunks": chunks}
            file.write(json.dumps(record | {"relevant_docs": [f"d{n + n % 4}"]}) + "\n")
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=s", "report.formats=[]"]
    roles, send = list[tuple[int, str]](), worker_processes.send

    def noted(process: subprocess.Popen[bytes], message: bytes) -> None:
        values = json.loads(message[HEAD.size :])
        if values and "role" in values:
            roles.append((process.pid, values["role"]))
        send(process, message)

    monkeypatch.setattr(worker_processes, "send", noted)
    seals = {}
    for runner, chosen in (("local", ["runner=local"]), ("processes", ["runner=processes", "runner.workers=2"])):
        assert main([*words, f"output_dir={runner}", *chosen]) == 0
        seal = json.loads(Path(runner, "s", "latest", "seal.json").read_text())
        seals[runner] = (seal["files"] | {"config.yaml": "names the runner"}, seal["tables"])
    assert seals["processes"] == seals["local"]
    assert {"samples.parquet", "outputs.parquet"} <= set(seals["local"][1])
    assert len(started) == 2
    for process in started:
        assert [role for pid, role in roles if pid == process.pid] == ["load", "score", "seal", "seal"]
        assert process.returncode == -signal.SIGKILL


@pytest.mark.thorough
def test_a_worker_killed_in_the_midst_leaves_sealing_to_one_process(
    table: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    calls, lines, answer_of = list[bytes](), list[str](), worker_processes.answer_of

    def killed_at_the_ninth(process: subprocess.Popen[bytes], message: bytes) -> Any:
        calls.append(message)
        if len(calls) == 9:
            os.kill(process.pid, signal.SIGKILL)
        return answer_of(process, message)

    monkeypatch.setattr(worker_processes, "answer_of", killed_at_the_ninth)
    with WorkerPool() as workers:
        seal = seal_table(table, digested=lambda path: digests_by_workers(path, workers, width=2, say=lines.append))
        assert all(process.returncode is not None for process in started)
    assert seal == seal_table(table)
    assert len(lines) == 1
    assert "a worker that sealed died" in lines[0]
    assert 9 <= len(calls) <= 12


@pytest.mark.thorough
def test_what_is_wrong_with_a_table_is_said_by_one_process(table: Path) -> None:
    data = bytearray(table.read_bytes())
    start = pq.read_metadata(table).row_group(20).column(0).data_page_offset
    data[start : start + 12] = b"\xff" * 12
    table.write_bytes(data)
    lines = list[str]()
    with WorkerPool() as workers, pytest.raises((OSError, pa.ArrowException)):
        seal_table(table, digested=lambda path: digests_by_workers(path, workers, width=2, say=lines.append))
    assert lines == []


def test_a_worker_that_died_while_it_waited_is_replaced(table: Path, started: list[subprocess.Popen[bytes]]) -> None:
    with WorkerPool() as workers:
        for alive in (2, 1):
            with workers.answering("seal", {"path": str(table)}, 2) as ask:
                assert [ask(packed_message({"group": group}))[0] for group in range(4)] == [{"columns": 2}] * 4
            if alive == 2:
                os.kill(started[0].pid, signal.SIGKILL)
                started[0].wait()
        assert len(started) == 3
    assert all(process.returncode is not None for process in started)


@pytest.mark.thorough
def test_workers_whose_work_was_broken_off_are_not_used_again(
    table: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    def ask_in_vain(workers: WorkerPool) -> None:
        with workers.answering("seal", {"path": str(table)}, 2) as ask:
            ask(packed_message({"group": 1}))
            raise KeyboardInterrupt

    with WorkerPool() as workers:
        with pytest.raises(KeyboardInterrupt):
            ask_in_vain(workers)
        assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
        with workers.answering("seal", {"path": str(table)}, 1) as ask:
            assert ask(packed_message({"group": 39}))[0] == {"columns": 2}
        with workers.answering("seal", {"path": "nowhere"}, 1) as ask, pytest.raises(WorkerLost):
            ask(packed_message({"group": 0}))
    assert len(started) == 3
