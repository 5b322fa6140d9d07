"""What killed processes and other users leave behind: swept, taken over, or told exactly."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.store.files.atomic import sweep_below
from ragpipe.store.files.processes import this_process
from ragpipe.store.run.folder_lock import FolderLock

NOBODY = 65534
LOCK = """
import os, sys
from ragpipe.core.errors import RagpipeError
from ragpipe.store.run.folder_lock import FolderLock
from pathlib import Path
os.setgid({user}); os.setuid({user})
try:
    lock = FolderLock(Path(sys.argv[1])).acquire()
    print("taken", *lock.notices)
except RagpipeError as error:
    print(type(error).__name__, error)
"""


def as_nobody(folder: Path) -> str:
    code = LOCK.format(user=NOBODY)
    found = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr, found.stderr
    return found.stdout


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users reach."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


@pytest.mark.slow
def test_a_lock_of_another_users_dead_process_is_removed(shared: Path) -> None:
    (shared / ".lock").write_text('{"pid": 1, "host": "elsewhere", "started": "then", "command": "ragpipe"}')
    (shared / ".lock").chmod(0o644)
    found = as_nobody(shared)
    assert found.startswith("taken"), found
    assert "process 1 on elsewhere" in found
    assert "user root" in found


@pytest.mark.slow
def test_one_that_is_held_is_not(shared: Path) -> None:
    with FolderLock(shared):
        (shared / ".lock").chmod(0o644)
        found = as_nobody(shared)
        assert found.startswith("FolderLocked"), found
        assert f"process {os.getpid()}" in found
        assert (shared / ".lock").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_one_that_may_not_be_removed_says_who_can(shared: Path, mode: int) -> None:
    (shared / ".lock").write_text('{"pid": 1, "host": "elsewhere", "started": "then", "command": "ragpipe"}')
    (shared / ".lock").chmod(mode)
    shared.chmod(0o1777)  # as /tmp is: only its owner removes a file
    found = as_nobody(shared)
    assert found.startswith("OutputError"), found
    assert f"remove {'the file' if mode == 0o600 else 'it'} as root" in found
    assert (shared / ".lock").exists()


def test_leftovers_of_killed_writes_are_swept_wherever_they_are(tmp_path: Path) -> None:
    me = this_process()
    gone = f".ragpipe,{me.host},999999,{me.mark},1.tmp"
    living = f".ragpipe,{me.host},{me.pid},{me.mark},2.tmp"
    folders = [tmp_path, tmp_path / "prompts" / "faithfulness", tmp_path / "export" / "iteration-1"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (gone, living, "mine.tmp", ".ragpipe,notes.tmp"):
            (folder / name).touch()
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / gone).touch()
    (tmp_path / "link").symlink_to(outside)
    assert sorted(sweep_below(tmp_path)) == sorted(folder / gone for folder in folders)
    for folder in folders:
        assert {path.name for path in folder.iterdir() if path.is_file()} == {living, "mine.tmp", ".ragpipe,notes.tmp"}
    assert (outside / gone).exists()
