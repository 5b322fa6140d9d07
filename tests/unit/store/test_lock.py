import errno
import fcntl
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
from ragpipe.store import folder_lock as module
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.processes import this_process

HOLDER = """
import sys, time
from pathlib import Path
from ragpipe.store.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
if sys.argv[2] == "stay":
    time.sleep(60)
"""


def holder(folder: Path, then: str = "stay", *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder), then, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    process = holder(tmp_path, "stay", "judge.api_key=sk-1234567890", "x=sk-abcdefgh")
    try:
        with pytest.raises(FolderLocked) as found:
            FolderLock(tmp_path).acquire()
        text, started = str(found.value), f"started {time.strftime('%Y-%m-%dT', time.gmtime())}"
        for part in (f"process {process.pid} on {this_process().host}", started, str(tmp_path), "***"):
            assert part in text
        assert "sk-" not in text + (tmp_path / ".lock").read_text()
        assert found.value.exit_code == 6
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_taken_over_with_a_notice(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with FolderLock(tmp_path) as lock:
        assert [n for n in lock.notices if "took over" in n and f"process {process.pid}" in n]
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_only_one_at_a_time_in_one_process_too(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        with pytest.raises(FolderLocked, match=str(os.getpid())):
            FolderLock(tmp_path).acquire()
        started = time.monotonic()
        with pytest.raises(FolderLocked):
            FolderLock(tmp_path).acquire(wait_s=0.3)
        assert time.monotonic() - started >= 0.3
    FolderLock(tmp_path).acquire().release()


@pytest.mark.slow
def test_many_at_once_are_never_two(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("module", "name", "number", "told"), [
    (fcntl, "flock", errno.ENOLCK, r"has no file locks.*choose a folder"),
    (os, "open", errno.EACCES, r"another user.*remove the file"),
])  # fmt: skip
def test_what_keeps_a_folder_from_being_locked_is_said(tmp_path, monkeypatch, module, name: str, number: int, told: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        with pytest.raises(OutputError, match=told) as found:
            FolderLock(tmp_path).acquire()
    assert str(tmp_path / ".lock") in str(found.value)


def test_unusable_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="not a folder"):
        FolderLock(tmp_path / "file").acquire()
    (tmp_path / "outside").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "outside")
    with pytest.raises(OutputError, match="symbolic link"):
        FolderLock(tmp_path).acquire()
    assert (tmp_path / "outside").read_text() == "precious"


def test_inside_waiting_a_folder_in_use_is_waited_for_and_outside_not(tmp_path: Path) -> None:
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
