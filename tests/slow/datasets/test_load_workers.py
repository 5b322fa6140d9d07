"""Data read by worker processes: the tables of one process, whatever the parts and workers, and its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import DataError
from ragpipe.datasets.dataset import Dataset, open_dataset
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.engine.workers import worker_processes
from ragpipe.engine.workers.load_messages import load_start, part_message
from ragpipe.engine.workers.load_workers import FEWEST_PARTS, load_by_workers
from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.engine.workers.worker_processes import WorkerPool
from ragpipe.stages.load_dataset import DatasetCounts, load_dataset
from tests.support.waiting import HANGS_AFTER_S

PART = 4000


def records(count: int) -> Iterator[dict[str, Any]]:
    """Two methods per question; the second one of the question before comes first. One in seven has graded labels."""
    for number in range(count):
        for method, place in (("a", number), ("b", max(0, number - 300))):
            if method == "a" or number >= 300:
                record: dict[str, Any] = {"id": f"q{place}", "question": f"what is {place} \u20ac?", "method": method}
                if place % 7 == 0:
                    record |= {"gains": {"d2": 1.5, f"d{place}": 2}, "meta": {"n": place, "m": [method[:0]]}}
                chunks = [{"id": f"d{place + i}", "text": "x" * (place % 50), "score": i / 3} for i in range(5)]
                yield record | {"answer": f"{place}\nby {method}", "chunks": chunks}


def written(path: Path, rows: Iterator[dict[str, Any]]) -> Dataset:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return open_dataset(DatasetSettings(path=path.name), path.parent)


def by_workers(dataset: Dataset, folder: Path, width: int, say: Callable[[str], None] = print) -> DatasetCounts | None:
    paths = {name: folder / f"{name}{width}.parquet" for name in ("samples", "outputs")}
    with WorkerPool() as workers:
        return load_by_workers(dataset, workers, width=width, say=say, part_size=PART, **paths)


def test_two_and_four_workers_write_what_one_process_writes(tmp_path: Path) -> None:
    dataset = written(tmp_path / "d.jsonl", records(1500))
    assert dataset.size > FEWEST_PARTS * PART
    alone = load_dataset(dataset, samples=tmp_path / "samples1.parquet", outputs=tmp_path / "outputs1.parquet")
    assert (alone.samples, alone.cases, alone.methods) == (1500, 2700, ("a", "b"))
    for width in (2, 4):
        assert by_workers(dataset, tmp_path, width) == alone
        for name in ("samples", "outputs"):
            assert (tmp_path / f"{name}{width}.parquet").read_bytes() == (tmp_path / f"{name}1.parquet").read_bytes()


@pytest.mark.thorough
def test_a_part_without_a_new_sample_is_read_too(tmp_path: Path) -> None:
    """All of one method first: the parts of the second half hold samples of the first half alone."""

    def by_method() -> Iterator[dict[str, Any]]:
        for method in ("a", "b"):
            for number in range(1000):
                yield {"id": f"q{number}", "question": f"what is {number}?", "method": method, "answer": "x" * 60}

    dataset = written(tmp_path / "d.jsonl", by_method())
    alone = load_dataset(dataset, samples=tmp_path / "samples1.parquet", outputs=tmp_path / "outputs1.parquet")
    assert (alone.samples, alone.cases, alone.methods) == (1000, 2000, ("a", "b"))
    assert by_workers(dataset, tmp_path, 2) == alone
    for name in ("samples", "outputs"):
        assert (tmp_path / f"{name}2.parquet").read_bytes() == (tmp_path / f"{name}1.parquet").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"answer": 7}, "d.jsonl:900"),
        ({"id": "q1", "question": "what is 1 \u20ac?", "method": "a"}, "a second time"),
        ({"id": "q1", "question": "another one", "method": "c"}, "with another sample content"),
        ({"answer": None, "chunks": None, "method": None}, "neither an answer nor retrieved chunks"),
    ],
)
def test_what_is_wrong_is_left_to_one_process(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    rows = list(records(1500))
    rows[899] |= change
    dataset = written(tmp_path / "d.jsonl", iter(rows))
    assert by_workers(dataset, tmp_path, 2) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl"]
    with pytest.raises(DataError, match=fault):
        load_dataset(dataset, samples=tmp_path / "s.parquet", outputs=tmp_path / "o.parquet")


@pytest.mark.thorough
def test_a_dead_worker_leaves_the_reading_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, lines = list[subprocess.Popen[bytes]](), list[str]()
    new_process, answer_of = worker_processes.new_process, worker_processes.answer_of

    def new(module: str) -> subprocess.Popen[bytes]:
        started.append(new_process(module))
        return started[-1]

    def killed_at_the_fifth(process: subprocess.Popen[bytes], message: bytes) -> Any:
        calls.append(message)
        if len(calls) == 5:
            os.kill(process.pid, signal.SIGKILL)
        return answer_of(process, message)

    calls = list[bytes]()
    monkeypatch.setattr(worker_processes, "new_process", new)
    monkeypatch.setattr(worker_processes, "answer_of", killed_at_the_fifth)
    dataset = written(tmp_path / "d.jsonl", records(1500))
    assert by_workers(dataset, tmp_path, 2, lines.append) is None
    assert len(lines) == 1
    assert "a worker that read the data died" in lines[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl"]
    assert all(process.returncode == -signal.SIGKILL for process in started)


def test_a_worker_ends_with_its_driver(tmp_path: Path) -> None:
    """Its input ends while it reads: it neither goes on nor waits for somebody to take its answer."""
    dataset = written(tmp_path / "d.jsonl", records(1500))
    parts = dataset.parts(1 << 20)
    assert parts is not None
    with worker_processes.new_process("ragpipe.engine.workers.answering_process") as process:
        worker_processes.send(process, packed_message({"role": "load", "start": load_start(dataset)}))
        for part in parts:
            worker_processes.send(process, part_message(part))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=HANGS_AFTER_S) == 0
