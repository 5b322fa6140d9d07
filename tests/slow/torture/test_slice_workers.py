"""Runs whose cases are measured by worker processes: the same bytes from any number of them, whoever is killed."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.minilm import needs_files
from tests.support.slice_runs import CASES, bytes_of, ended, lives, seals, start, until, workers_of, write_place

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_place(tmp_path)


@pytest.fixture
def local(place: Path) -> dict[str, bytes]:
    """The bytes of the run by one process."""
    ended(place, "output_dir=local")
    (place / "measured").unlink()
    return bytes_of(place, "local")


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("workers", "largest"), [(1, 7), (2, 1), (2, 1000), (4, 9), (8, 13)])
def test_the_same_bytes_from_any_number_of_workers(
    place: Path, local: dict[str, bytes], workers: int, largest: int
) -> None:
    out = ended(place, "output_dir=sliced", "runner=processes", f"runner.workers={workers}", f"runner.slice={largest}")
    assert bytes_of(place, "sliced") == local
    assert seals(place, "sliced") == seals(place, "local")
    measured = [line.split() for line in (place / "measured").read_text().splitlines()]
    assert sorted(name for _, name in measured) == sorted(f"q{i}" for i in range(CASES))
    assert len({pid for pid, _ in measured}) <= workers
    assert "Traceback" not in out


def test_a_killed_worker_is_replaced_and_only_its_slices_are_done_again(place: Path, local: dict[str, bytes]) -> None:
    process = start(place, "output_dir=killed", "runner=processes", "runner.workers=2", "runner.slice=5", SLOW_S="0.05")
    victim = until(lambda: workers_of(place, process.pid))[0]
    os.kill(victim, signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "a worker died (signal 9)" in out
    assert bytes_of(place, "killed") == local
    names = [line.split()[1] for line in (place / "measured").read_text().splitlines()]
    assert set(names) == {f"q{i}" for i in range(CASES)}
    assert len(names) <= CASES + 10  # a worker has two slices of five


@pytest.mark.thorough
def test_a_slice_that_kills_every_worker_ends_the_run_and_names_itself(place: Path) -> None:
    out = ended(
        place, "output_dir=fatal", "runner=processes", "runner.workers=2", "runner.slice=10", FATAL="q34", code=6
    )
    assert "rows 30 to 39 of block 0: 3 workers died over them, by signal 9 (out of memory?" in out
    ended(place, "output_dir=fatal", "runner=processes", "runner.workers=2", "runner.slice=10")


@pytest.mark.thorough
def test_a_slice_that_kills_one_worker_is_measured_by_the_next(place: Path, local: dict[str, bytes]) -> None:
    ended(place, "output_dir=once", "runner=processes", "runner.workers=3", "runner.slice=10", FATAL_ONCE="q34")
    assert bytes_of(place, "once") == local


def test_a_killed_driver_leaves_no_worker_and_the_next_start_gives_the_same_bytes(
    place: Path, local: dict[str, bytes]
) -> None:
    words = ["output_dir=driver", "runner=processes", "runner.workers=3", "runner.slice=4"]
    process = start(place, *words, SLOW_S="0.5")
    workers = until(lambda: len(found := workers_of(place, process.pid)) == 3 and found)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(lives, workers)), seconds=10)
    count = len((place / "measured").read_text().splitlines())
    time.sleep(0.5)
    assert len((place / "measured").read_text().splitlines()) == count
    ended(place, *words)
    assert bytes_of(place, "driver") == local


@pytest.mark.thorough
def test_ctrl_c_ends_the_workers_and_the_run_goes_on_later(place: Path, local: dict[str, bytes]) -> None:
    words = ["output_dir=interrupted", "runner=processes", "runner.workers=2", "runner.slice=4"]
    process = start(place, *words, SLOW_S="0.5")
    workers = until(lambda: len(found := workers_of(place, process.pid)) == 2 and found)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    until(lambda: not any(map(lives, workers)), seconds=10)
    ended(place, *words)
    assert bytes_of(place, "interrupted") == local


@needs_files
@pytest.mark.thorough
def test_what_workers_cannot_do_is_said_and_done_by_this_process(place: Path) -> None:
    words = ["metrics=[semantic_similarity]", "embedder=minilm", "output_dir=embedded", "dataset.limit=2"]
    out = ended(place, *words, "runner=processes")
    assert "runner=processes: a model that computes here takes all cores by itself, and batches across cases" in out


BLOCKS = ["~metrics.faithfulness", "~metrics.groundedness", "runner.workers=2", "runner.slice=1000"]
"""Slices that are whole blocks, of computed metrics alone: their workers write parts."""


@pytest.mark.thorough
def test_whole_blocks_have_the_same_bytes_whoever_is_killed(tmp_path: Path) -> None:
    place = write_place(tmp_path, 2300)
    ended(place, "output_dir=local", "runner=local", *BLOCKS, SLOW_S="0")
    local = bytes_of(place, "local")
    out = ended(place, "output_dir=sliced", "runner=processes", *BLOCKS, SLOW_S="0", FATAL_ONCE="q1100")
    assert "rows 0 to 999 of block 1 are measured again by another" in out
    assert bytes_of(place, "sliced") == local
    assert sorted(journal_of(place, "sliced")) == sorted(journal_of(place, "local"))


@pytest.mark.thorough
def test_a_start_after_a_kill_writes_no_line_of_a_whole_block_again(tmp_path: Path) -> None:
    place = write_place(tmp_path, 2300)
    ended(place, "output_dir=local", "runner=local", *BLOCKS, SLOW_S="0")
    process = start(place, "output_dir=cut", "runner=processes", *BLOCKS, SLOW_S="0.002")
    iteration = place / "cut" / "workers" / "latest" / "iteration-1"
    part = iteration / ".parts" / "scores" / "part-000000.parquet"
    until(lambda: part.with_suffix(".sha256").exists() and len(journal_of(place, "cut")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    part.unlink()  # as after a power cut: its lines are there
    lines = journal_of(place, "cut")
    assert len(lines) in (1000, 1300, 2000)
    ended(place, "output_dir=cut", "runner=processes", *BLOCKS, SLOW_S="0")
    assert journal_of(place, "cut")[: len(lines)] == lines
    assert sorted(journal_of(place, "cut")) == sorted(journal_of(place, "local"))
    assert bytes_of(place, "cut") == bytes_of(place, "local")


def journal_of(place: Path, output_dir: str) -> list[str]:
    """The lines of the journal below its first, without their times."""
    path = place / output_dir / "workers" / "latest" / "iteration-1" / "journal.jsonl"
    return [re.sub('"completed_at": ?"[^"]*"', "", line) for line in path.read_text().splitlines()[1:]]
