"""kill -9 at random moments: nothing finished is paid twice, and the end is the same as if nothing had happened."""

import random
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import (
    Server,
    arguments,
    committed,
    finish,
    kill_after,
    lost_by_kill,
    repeats_of_finished,
    rows,
    run_folder,
    start,
    surplus,
    write_cases,
)  # fmt: skip
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import HANGS_AFTER_S, wait_until

TABLES = (
    "iteration-1/scores.parquet",
    "iteration-1/records.parquet",
    "iteration-1/judge_inputs.parquet",
    "samples.parquet",
    "outputs.parquet",
)


def _state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".lock" not in p.name
    }


Tables = dict[str, list[dict[str, Any]]]
EXHAUSTIVE = "metrics.chunk_faithfulness.exhaustive=true"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Tables]:
    """The tables of a run over so many cases that nothing happened to; one run for all tests that compare with it."""

    @cache
    def tables(cases: int) -> Tables:
        folder = tmp_path_factory.mktemp("whole")
        data = write_cases(folder / "cases.jsonl", cases)
        with Server(folder / "whole.log", ("--latency-ms", "0")) as server:
            code, text = finish(arguments(data, folder / "whole", server.url, EXHAUSTIVE, concurrency=32), folder)
            assert code == 0, text
        return {table: rows(run_folder(folder / "whole") / table) for table in TABLES}

    return tables


def _torture(
    tmp_path: Path, whole: Callable[[int], Tables], *, concurrency: int, kills: int, seed: int, cases: int = 100,
    faults: tuple[str, ...] = (),
) -> None:  # fmt: skip
    data = write_cases(tmp_path / "cases.jsonl", cases)
    picked = random.Random(seed)
    with Server(tmp_path / "killed.log", ("--latency-ms", "30", *faults)) as server:
        args = arguments(data, tmp_path / "killed", server.url, EXHAUSTIVE, concurrency=concurrency)
        moments: list[tuple[float, frozenset[str]]] = []
        for _ in range(kills):
            moment = kill_after(args, tmp_path, server, picked.randint(1, 60))
            if moment is not None:
                moments.append((moment, committed(tmp_path / "killed")))
        code, text = finish(args, tmp_path)
        assert code == 0, text
        assert repeats_of_finished(server, moments) == []
        if not faults:
            lost = lost_by_kill(server, moments)
            assert max(lost, default=0) <= concurrency, lost
        print(
            f"concurrency {concurrency}, seed {seed}: {len(moments)} kills, {len(server.requests())} requests, {surplus(server)} repeated"
        )

        count, before = len(server.requests()), _state(run_folder(tmp_path / "killed"))
        code, text = finish(args, tmp_path)
        assert code == 0, text
        assert len(server.requests()) == count, "a third start asks nothing"
        assert _state(run_folder(tmp_path / "killed")) == before, "a third start rewrites nothing"
    for table, found in whole(cases).items():
        assert rows(run_folder(tmp_path / "killed") / table) == found, table


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_three_times(tmp_path: Path, whole: Callable[[int], Tables]) -> None:
    _torture(tmp_path, whole, concurrency=8, kills=3, seed=0, cases=20)


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("concurrency", "seed"), [(1, 1), (8, 2), (32, 1)])
def test_killed_many_times(tmp_path: Path, whole: Callable[[int], Tables], concurrency: int, seed: int) -> None:
    _torture(
        tmp_path, whole, concurrency=concurrency, kills=7 if THOROUGH else 3, seed=seed, cases=100 if THOROUGH else 50
    )


@pytest.mark.slow
def test_killed_on_a_faulty_server(tmp_path: Path, whole: Callable[[int], Tables]) -> None:
    _torture(
        tmp_path,
        whole,
        concurrency=8,
        kills=5 if THOROUGH else 3,
        seed=4,
        cases=100 if THOROUGH else 50,
        faults=("--fault", "429:rate=0.05", "--fault", "500:rate=0.05"),
    )


def test_one_sigint_drains_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    data = write_cases(tmp_path / "cases.jsonl", 16)
    with Server(tmp_path / "log.jsonl", ("--latency-ms", "100")) as server:
        args = arguments(data, tmp_path / "out", server.url)
        process = start(args, tmp_path)
        wait_until(lambda: len(server.requests()) >= 20, process)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=HANGS_AFTER_S)
        assert process.returncode == 130, text
        assert "python -m ragpipe" in text
        code, text = finish(args, tmp_path)
        assert code == 0, text
        assert surplus(server) == 0, "calls in flight at a SIGINT land and are kept"
