"""A disk that is full, small, read-only or a file; too few open files; data that changes under a run."""

import json
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checks import Bench, Ran
from tests.support.harness import start
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
Make = Callable[..., Bench]


@pytest.fixture(autouse=True)
def kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paid replies that find no room are kept in the temporary folder: that of the test."""
    (tmp_path / "kept").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "kept"))


@contextmanager
def _mounted(path: Path, *options: str) -> Iterator[Path]:
    """A small file system in memory; skips where this user may not mount."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def _limited(b: Bench, limit: int, value: int, *extra: str, concurrency: int = 8) -> Ran:
    """A start in a process with a limit. It ends by itself: what hangs is ended after 90 s, and fails the test."""

    def lower() -> None:
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))

    before = len(b.server.log)
    process = start(b.args(*extra, concurrency=concurrency), b.folder, preexec_fn=lower)
    text, _ = process.communicate(timeout=HANGS_AFTER_S)
    return b.ran(process.returncode, text, before)


def _goes_on(b: Bench, lost: int) -> None:
    """After room was made: all of it is answered, and at most `lost` replies that found no room are asked for again."""
    answered = {r["body"] for r in b.server.log if r["status"] == 200}
    ran = b.run()
    assert ran.code == 0, ran.text
    assert len(answered & set(ran.bodies)) <= lost
    assert [row["status"] for row in ran.rows()] == ["ok"] * b.cases


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("kilobytes", [120, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1400])
def test_a_disk_that_fills_up_at_any_moment(bench: Make, tmp_path: Path, kilobytes: int) -> None:
    with _mounted(tmp_path / "out", f"size={kilobytes}k"):
        b = bench(cases=300)
        ran = b.run()
        assert ran.code in (0, 6), ran.text
        if ran.code == 6:
            assert "disk is full" in ran.text
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "out")], check=True)
        _goes_on(b, lost=8)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("kilobytes", [60, 150, 400])
def test_files_may_not_grow(bench: Make, kilobytes: int) -> None:
    b = bench(cases=200)
    ran = _limited(b, resource.RLIMIT_FSIZE, kilobytes << 10)
    assert (ran.code, "ulimit -f" in ran.text) == (6, True), ran.text
    _goes_on(b, lost=8)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("files", [14, 24, 40])
def test_too_many_open_files(bench: Make, files: int) -> None:
    b = bench(cases=80)
    b.server.latency_ms = 300
    ran = _limited(b, resource.RLIMIT_NOFILE, files, "judge.retries=2", concurrency=64)
    assert (ran.code != 0, "oo many open files" in ran.text) == (True, True), ran.text
    _goes_on(b, lost=64)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("where", ["store.path", "output_dir"])
def test_a_folder_that_is_a_file(bench: Make, where: str) -> None:
    b = bench()
    taken = b.folder / "taken"
    taken.write_text("mine")
    ran = b.run(f"{where}={taken}")
    assert (ran.code in (2, 6), ran.requests, taken.read_text()) == (True, [], "mine")
    assert str(taken) in ran.text
    assert "plan:" not in ran.text, "found before the data were measured"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("where", ["output_dir", "store.path"])
def test_a_read_only_folder(bench: Make, tmp_path: Path, where: str) -> None:
    b = bench()
    with _mounted(tmp_path / "closed", "ro", "size=1m") as closed:
        ran = b.run(f"{where}={closed}/x")
    assert (ran.code, ran.requests, "read-only" in ran.text, "plan:" in ran.text) == (6, [], True, False), ran.text


def test_data_that_changes_under_a_run_is_refused_and_opens_its_own_run_after(bench: Make) -> None:
    b = bench(cases=20)
    b.server.latency_ms = 60
    process = start(b.args(concurrency=2), b.folder)
    b.until(6, process)
    lines = b.data.read_text().splitlines()
    record = json.loads(lines[19])
    record["answer"] = "Something else is said. And something more."
    b.data.write_text("\n".join([*lines[:19], json.dumps(record)]) + "\n")
    text, _ = process.communicate(timeout=HANGS_AFTER_S)
    ran = b.ran(process.returncode, text)
    assert ran.code == 6, text
    assert "changed while the run was going on" in text
    assert str(b.data) in text
    answered = set(ran.bodies)
    again = b.run(concurrency=2)
    assert (again.code, again.folder != ran.folder) == (0, True)
    assert f"differs from run {ran.folder.name}" in again.text
    assert "other data" in again.text
    assert not answered & set(again.bodies), "unchanged cases cost nothing"
    # however far the first run came: the rest, and the one or two questions of the changed case
    questions = len(again.rows("judge_inputs"))
    assert questions <= len(answered) + len(again.requests) <= questions + 2
    changed = next(r for r in again.rows("judge_inputs") if r["sample_id"] == "q00019")
    assert "Something else is said" in changed["messages"]


def test_a_data_file_that_goes_away_under_a_run(bench: Make) -> None:
    b = bench(cases=12)
    b.server.latency_ms = 60
    process = start(b.args(concurrency=2), b.folder)
    b.until(4, process)
    os.unlink(b.data)
    text, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert b.ran(process.returncode, text).code == 6
    assert str(b.data) in text
