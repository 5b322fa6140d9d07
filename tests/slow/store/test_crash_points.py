"""A SIGKILL and a full disk at every system call that makes a final file: it is absent, old and whole, or new and whole."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.store.files import sweep_temporaries
from tests.support.thoroughness import some_of
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
CALLS = ("openat", "write", "fsync", "rename", "link", "symlink", "unlink", "rmdir", "mkdir")
TRACED = "trace=openat,write,fsync,fdatasync,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir"

WRITE = """
from ragpipe.store.files import atomic_write
begin()
atomic_write(folder / "final", b"new " * 50_000)
"""
PARTS = """
import pyarrow as pa
from ragpipe.store.parquet_parts import Parts
schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
parts = Parts(folder / ".parts" / "scores", schema)
def part(p):
    return pa.Table.from_pylist([{"id": f"{p}-{n}" * 9, "n": n * 7919 % 10007} for n in range(900)], schema=schema)
for index in range(2):
    if index not in parts.done():
        parts.write(index, part(index))
"""
JOIN = PARTS + "\nbegin()\nparts.join(folder / 'final')\n"
PART = PARTS + "\nbegin()\nparts.discard(1)\nparts.write(1, part(1))\nparts.join(folder / 'final')\n"
LATEST = """
from ragpipe.store.run_folder import RunFolder
run = RunFolder(folder / "x" / "new").create()
begin()
run.point_latest()
"""
CALL = """
import asyncio
from ragpipe.core.digest import sha256
from ragpipe.core.call import Call
from ragpipe.store.call_store import CallStore
async def go():
    with CallStore(folder / "calls", run_id="r") as store:
        begin()
        for n in range(3):
            if await store.get_or_claim(sha256(f"k{n}")) is None:
                await store.put(Call(sha256(f"k{n}"), "", "j", "ok", text="reply"))
                print("stored", n, flush=True)
asyncio.run(go())
"""
HEAD = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
def begin():  # what stands before it is not under test
    os.access("/ragpipe-begins-here", os.F_OK)
"""


@dataclass
class Target:
    """A program that makes a final file, what was there before, and whether what is there now is whole."""

    program: str
    prepare: Callable[[Path], None]
    state: Callable[[Path], str]


def old_file(folder: Path) -> None:
    (folder / "final").write_bytes(b"old " * 50_000)


def old_table(folder: Path) -> None:
    pq.write_table(pq.read_table(EXAMPLE[0]).slice(0, 5), folder / "final")


def old_latest(folder: Path) -> None:
    for name in ("old", "new"):
        (folder / "x" / name).mkdir(parents=True)
    (folder / "x" / "latest").symlink_to("old")


EXAMPLE: list[Path] = []


def text_state(folder: Path) -> str:
    data = (folder / "final").read_bytes()
    return {b"old " * 50_000: "old", b"new " * 50_000: "new"}.get(data, "torn")


def table_state(folder: Path) -> str:
    if not (folder / "final").exists():
        return "absent"
    data = (folder / "final").read_bytes()
    if hashlib.sha256(data).digest() == hashlib.sha256(EXAMPLE[0].read_bytes()).digest():
        return "new"
    try:
        return "old" if pq.read_table(folder / "final").num_rows == 5 else "torn"
    except Exception:
        return "torn"


def latest_state(folder: Path) -> str:
    path = folder / "x" / "latest"
    return os.readlink(path) if path.is_symlink() else "torn"


TARGETS = {
    "atomic_write": Target(WRITE, old_file, text_state), "Parts.join over an old table": Target(JOIN, old_table, table_state),
    "Parts.write again": Target(PART, lambda _: None, table_state), "point_latest": Target(LATEST, old_latest, latest_state),
}  # fmt: skip


def run(program: str, folder: Path, *strace: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HEAD + program, str(folder)]
    # one thread each, so that the calls come in the same order; replies that cannot be stored are kept in the temporary folder
    environment = {
        **os.environ, "PYTHONDONTWRITEBYTECODE": "1", "ARROW_IO_THREADS": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder.parent),
    }  # fmt: skip
    return subprocess.run([*strace, *command], capture_output=True, text=True, timeout=HANGS_AFTER_S, env=environment)


def again(program: str, folder: Path) -> None:
    """The next start, in this process: the import of pyarrow is the price of a subprocess."""
    values: dict[str, object] = {"folder": folder, "begin": lambda: None}
    exec(compile(program, "<next start>", "exec"), values)


def traced(program: str, folder: Path, calls: str) -> Iterator[tuple[str, int, str]]:
    """Each system call of a program, its number from the program's start, and its line in the trace."""
    log = folder.parent / "trace"
    done = run(program, folder, "strace", "-f", "-y", "-o", str(log), "-e", calls)
    assert done.returncode == 0, done.stderr
    counts: Counter[str] = Counter()
    for line in log.read_text(errors="replace").split("\n"):
        if name := re.match(r"\d+ +(\w+)\(", line):
            counts[name[1]] += 1
            yield name[1], counts[name[1]], line


def points(program: str, folder: Path) -> list[tuple[str, int]]:
    """(system call, its number from the program's start) of all calls after `begin()` that touch the folder's files."""
    found, begun = [], False
    for name, number, line in traced(program, folder, TRACED + ",access,faccessat,faccessat2"):
        begun = begun or "/ragpipe-begins-here" in line
        opened_to_read = name == "openat" and "O_CREAT" not in line
        if begun and str(folder) in line and not opened_to_read and "access" not in name:
            found.append((name, number))
    return found


def without_middles(crash_points: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Of the same call many times in a row, as when a long file is written, the first two, one in the middle, and the last."""
    kept = []
    for _, group in groupby(crash_points, key=lambda point: point[0]):
        row = list(group)
        kept += [row[place] for place in sorted({0, min(1, len(row) - 1), len(row) // 2, len(row) - 1})]
    return kept


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    folder = tmp_path_factory.mktemp("example")
    assert run(JOIN, folder).returncode == 0
    EXAMPLE[:] = [folder / "final"]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("name", TARGETS)
def test_no_final_file_is_ever_half_written(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    fresh = tmp_path / "fresh" / "run"
    fresh.mkdir(parents=True)
    target.prepare(fresh)
    before = target.state(fresh)
    assert before != "torn"
    crash_points = points(target.program, fresh)
    assert target.state(fresh) == "new"
    assert {"rename"} <= {call for call, _ in crash_points}
    assert len(crash_points) >= 3
    seen: Counter[str] = Counter()
    for number, (call, when) in enumerate(some_of(without_middles(crash_points), 8)):
        removes = call in ("unlink", "unlinkat", "rmdir")  # needs no room
        for fault in ("signal=SIGKILL",) if removes else ("signal=SIGKILL", "error=ENOSPC"):
            folder = tmp_path / f"{number}-{fault[-6:]}" / "run"
            folder.mkdir(parents=True)
            target.prepare(folder)
            inject = f"inject={call}:{fault}:when={when}"
            done = run(target.program, folder, "strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
            state = target.state(folder)
            assert state in (before, "new"), f"{inject}: {state}"
            seen[f"{fault} {state}"] += 1
            is_of_a_read = "Failed to open local file" in done.stderr  # threads moved the count: no full disk refuses that
            if fault.startswith("error") and done.returncode and not is_of_a_read:
                assert "OutputError" in done.stderr, done.stderr
                assert "disk is full" in done.stderr
            again(target.program, folder)  # the next start goes on by itself
            assert target.state(folder) == "new"
            sweep_temporaries(folder)
            sweep_temporaries(folder / "x")
            left = [path.name for path in folder.rglob("*") if path.name.endswith((".tmp", ".joined"))]
            assert not left, f"{inject}: {left}"
            shutil.rmtree(folder.parent)
    print(f"{name}: {len(crash_points)} crash points: {dict(seen)}")


def test_a_call_that_was_put_is_never_lost(tmp_path: Path) -> None:
    """The call store is killed at every system call that touches it: what `put` returned for is there afterwards."""
    fresh = tmp_path / "fresh" / "run"
    fresh.mkdir(parents=True)
    calls = traced(CALL, fresh, TRACED.replace("write,", "write,pwrite64,ftruncate,", 1))
    touching = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")
    crash_points = [(name, number) for name, number, line in calls if f"{fresh}/calls" in line and name in touching]
    assert len(crash_points) > 10
    for call, when in some_of(without_middles(crash_points), 8):
        folder = tmp_path / f"{call}-{when}"
        folder.mkdir()
        inject = f"inject={call}:signal=SIGKILL:when={when}"
        done = run(CALL, folder, "strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        stored = [line for line in done.stdout.split("\n") if line]
        again = run(CALL, folder)
        assert again.returncode == 0, again.stderr
        assert len(again.stdout.split("\n")) - 1 <= 3 - len(stored)
        assert not [line for line in stored if line in again.stdout.split("\n")], f"{inject}: paid twice"
    print(f"call store: killed at {len(crash_points)} system calls")
