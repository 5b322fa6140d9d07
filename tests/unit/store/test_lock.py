import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ragpipe.core.errors import FolderLocked, OutputError
from ragpipe.store.files.processes import this_process
from ragpipe.store.run import folder_lock as module
from ragpipe.store.run.folder_lock import FolderLock

HOLDER = """
import sys, time
from pathlib import Path
if sys.argv[2] == "exclusive":
    import errno, fcntl
    def no_locks(*_): raise OSError(errno.ENOLCK, "No locks available")
    fcntl.flock = no_locks
from ragpipe.store.run.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
if sys.argv[3] == "stay":
    time.sleep(60)
"""


def holder(folder: Path, way: str, then: str = "stay", *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder), way, then, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture(params=["flock", "exclusive"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the system's file locks, and on a file system that has none."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if request.param == "exclusive":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    return str(request.param)


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path, way: str) -> None:
    process = holder(tmp_path, way, "stay", "judge.api_key=sk-1234567890", "x=sk-abcdefgh")
    try:
        with pytest.raises(FolderLocked) as found:
            FolderLock(tmp_path).acquire()
        text = str(found.value)
        assert f"process {process.pid} on {this_process().host}" in text
        assert f"started {time.strftime('%Y-%m-%dT', time.gmtime())}" in text
        assert str(tmp_path) in text
        assert "***" in text
        assert "sk-" not in text + (tmp_path / ".lock").read_text()
        assert found.value.exit_code == 6
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_taken_over_with_a_notice(tmp_path: Path, way: str) -> None:
    process = holder(tmp_path, way)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with FolderLock(tmp_path) as lock:
        assert [n for n in lock.notices if "took over" in n and f"process {process.pid}" in n]
    assert os.listdir(tmp_path) == []


def test_a_reused_pid_is_not_the_old_holder(tmp_path: Path, way: str) -> None:
    me = this_process()
    old = {"pid": me.pid, "host": me.host, "started": "2026-01-01T00:00:00Z", "mark": me.mark + "9", "command": "x"}
    (tmp_path / ".lock").write_text(json.dumps(old))
    with FolderLock(tmp_path) as lock:
        assert any("2026-01-01T00:00:00Z" in notice for notice in lock.notices)


@pytest.mark.slow
def test_ends_with_its_process(tmp_path: Path, way: str) -> None:
    assert holder(tmp_path, way, "end").wait() == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_only_one_at_a_time_in_one_process_too(tmp_path: Path, way: str) -> None:
    with FolderLock(tmp_path):
        with pytest.raises(FolderLocked, match=str(os.getpid())):
            FolderLock(tmp_path).acquire()
        started = time.monotonic()
        with pytest.raises(FolderLocked):
            FolderLock(tmp_path).acquire(wait_s=0.3)
        assert time.monotonic() - started >= 0.3
    FolderLock(tmp_path).acquire().release()


@pytest.mark.slow
def test_many_at_once_are_never_two(tmp_path: Path, way: str) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(5):
            with FolderLock(tmp_path).acquire(wait_s=60):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.002)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_without_file_locks_the_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    with FolderLock(tmp_path) as lock:
        assert any("no file locks" in notice for notice in lock.notices)
    far = {"pid": 1, "host": "another-host", "started": "2026-01-01T00:00:00Z", "mark": "", "command": "x", "exclusive": True}
    (tmp_path / ".lock").write_text(json.dumps(far))
    with pytest.raises(FolderLocked, match=r"another-host.*remove .*\.lock"):
        FolderLock(tmp_path).acquire()


def test_unusable_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="not a folder"):
        FolderLock(tmp_path / "file").acquire()
    (tmp_path / "outside").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "outside")
    with pytest.raises(OutputError, match="symbolic link"):
        FolderLock(tmp_path).acquire()
    assert (tmp_path / "outside").read_text() == "precious"


def test_inside_waiting_a_folder_in_use_is_waited_for_and_outside_not(tmp_path: Path, way: str) -> None:
    other = FolderLock(tmp_path).acquire()
    with module.waiting(30):
        threading.Timer(0.2, other.release).start()
        with FolderLock(tmp_path):
            pass
    with FolderLock(tmp_path), pytest.raises(FolderLocked), FolderLock(tmp_path):
        raise AssertionError("two holders")


def test_a_folder_that_its_holder_takes_away_is_made_again(tmp_path: Path) -> None:
    """A run whose data was refused leaves no folder: who waited for it must find out for itself."""
    folder = tmp_path / "run"
    folder.mkdir()
    other = FolderLock(folder).acquire()

    def give_up() -> None:
        shutil.rmtree(folder)
        other.release()

    threading.Timer(0.2, give_up).start()
    with FolderLock(folder).acquire(30):
        assert folder.is_dir()
