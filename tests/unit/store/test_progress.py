"""What `.progress.json` says of a run and of its process, and when; pages that are one file or several."""

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from markupsafe import Markup

from ragpipe.core.errors import OutputError
from ragpipe.core.sample import CaseKey
from ragpipe.report import page_file
from ragpipe.report.page_file import Page, json_block, write_page
from ragpipe.store import progress as module
from ragpipe.store.files import output_error
from ragpipe.store.processes import Process
from ragpipe.store.progress import (
    CallCounts,
    CaseCounts,
    FinishedCase,
    LimitFigures,
    ProgressState,
    ProgressView,
    TextCounts,
    mark_phase,
    read_progress,
)
from tests.support.page_blocks import block_json

AT = "2026-11-23T08:00:00.000Z"
STATE = ProgressState(
    "judging", Process("node7", 4242, "boot.1.2"), AT, AT, CaseCounts(40, 12, 3), CallCounts(96, 90, 4, 3, 2), TextCounts(7, 1),
    "2026-11-23T08:00:12.000Z", "429", 4.5, 12345, None, 1, {"deadline": 1}, 80.0, "ragpipe name=x",
    LimitFigures(2, 1, 300.0, 60_000.0, 288.5, 11),
)  # fmt: skip


RESULT = {"faithfulnessScore": 5, "completenessScore": 4, "passed": True}


def view(folder: Path, total: int = 100) -> ProgressView:
    return ProgressView(folder / ".progress.json", name="set", iteration=1, total=total)


def note(progress: ProgressView, case: CaseKey, question: str, result: Any, at: str = AT) -> None:
    progress.add_all([FinishedCase(case, question, result, at)])


def read(progress: ProgressView) -> dict[str, Any]:
    return json.loads(progress.path.read_text())


def test_the_documented_state(tmp_path: Path) -> None:
    progress = view(tmp_path)
    progress.show(STATE, at_once=True)
    found = read(progress)
    assert list(found) == ["testSetName", "iterationNumber", "lastUpdated", "statistics", "state", "entries"]
    assert found["state"] == {
        "phase": "judging", "pid": 4242, "host": "node7", "processMark": "boot.1.2", "startedAt": AT, "updatedAt": AT,
        "cases": {"total": 40, "done": 12, "resumed": 3},
        "calls": {"sent": 96, "answered": 90, "inFlight": 4, "waiting": 3, "failed": 2},
        "texts": {"embedded": 7, "waiting": 1}, "waitingUntil": "2026-11-23T08:00:12.000Z", "waitingFor": "429",
        "ratePerSecond": 4.5, "tokens": 12345, "usd": None, "errors": 1, "errorGroups": {"deadline": 1}, "secondsLeft": 80.0,
        "command": "ragpipe name=x",
        "limits": {
            "refused": 2, "overloaded": 1, "requestsPerMinute": 300.0, "tokensPerMinute": 60_000.0, "learnedPerMinute": 288.5,
            "width": 11,
        },
    }  # fmt: skip
    assert read_progress(progress.path) == STATE


@pytest.mark.parametrize("content", [
    b"", b"{", b"[]", b'"x"', b"{}", b'{"state": null}', b'{"state": {"phase": "judging"}}', b"[" * 100_000, b"\xff\xfe",
])  # fmt: skip
def test_what_is_no_state_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".progress.json"
    assert read_progress(path) is None
    path.write_bytes(content)
    assert read_progress(path) is None


@pytest.mark.parametrize(("key", "value"), [
    ("phase", "dancing"), ("pid", "x"), ("pid", None), ("updatedAt", "yesterday"), ("updatedAt", "2026-11-23T08:00:00"),
    ("cases", []), ("calls", {"sent": "many"}), ("errorGroups", [1]), ("waitingUntil", "soon"), ("waitingUntil", "2026-11-23T08:00:00"),
    ("startedAt", "0001-01-01T00:00:00+14:00"), ("secondsLeft", "x"), ("secondsLeft", float("nan")), ("secondsLeft", float("inf")),
    ("ratePerSecond", -1), ("tokens", 10**400), ("usd", float("inf")), ("cases", {"total": 10**20, "done": 0, "resumed": 0}),
])  # fmt: skip
def test_a_state_with_a_wrong_value_is_none(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / ".progress.json"
    path.write_text(json.dumps({"state": STATE.as_json() | {key: value}}))
    assert read_progress(path) is None


def test_a_pipe_is_no_state_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".progress.json")
    assert read_progress(tmp_path / ".progress.json") is None
    mark_phase(tmp_path / ".progress.json", "done")
    assert stat.S_ISFIFO((tmp_path / ".progress.json").lstat().st_mode)


def test_the_phase_is_marked_and_the_rest_stays(tmp_path: Path) -> None:
    progress = view(tmp_path)
    note(progress, CaseKey("q", "default"), "?", {"a": 1})
    progress.show(STATE, at_once=True)
    before = read(progress)
    mark_phase(progress.path, "done")
    after = read(progress)
    assert (after["state"]["phase"], after["state"]["secondsLeft"]) == ("done", None)
    assert datetime.fromisoformat(after["state"]["updatedAt"]) > datetime.fromisoformat(AT)
    assert {**after, "state": None} == {**before, "state": None}
    mark_phase(tmp_path / "absent", "done")
    assert not (tmp_path / "absent").exists()


def test_a_full_disk_ends_the_run_at_a_case_and_not_in_the_thread_of_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise OutputError(f"{path}: the disk is full") from OSError(28, "No space left on device")

    monkeypatch.setattr(module, "atomic_write", full)
    monkeypatch.setattr(module, "is_disk_full", lambda _: True)
    progress = view(tmp_path)
    progress.show(STATE, at_once=True)
    with pytest.raises(OutputError, match="disk is full"):
        note(progress, CaseKey("q", "default"), "?", None)


def test_two_threads_leave_a_whole_file(tmp_path: Path) -> None:
    progress = view(tmp_path)
    ended = threading.Event()

    def keep_showing() -> None:
        while not ended.is_set():
            progress.show(STATE, at_once=True)

    thread = threading.Thread(target=keep_showing)
    thread.start()
    try:
        for n in range(200):
            note(progress, CaseKey(str(n), "default"), "?", {"n": n})
            time.sleep(0)
    finally:
        ended.set()
        thread.join()
    progress.flush()
    assert [entry["queryLogId"] for entry in read(progress)["entries"]] == [str(n) for n in range(200)]
    assert read_progress(progress.path) == STATE


def test_the_documented_form(tmp_path: Path) -> None:
    """Field for field what the answer-synthesis document shows, at 47 of 100, with method and repeat beside the id."""
    progress = view(tmp_path)
    for n in range(46):
        note(progress, CaseKey(f"ql-{n}", "default"), "?", RESULT)
    note(progress, CaseKey("ql-123", "default"), "What courses teach Python?", RESULT, at="2026-01-24T14:30:00.000+00:00")
    progress.flush()
    found = read(progress)
    assert list(found) == ["testSetName", "iterationNumber", "lastUpdated", "statistics", "entries"]
    assert (found["testSetName"], found["iterationNumber"]) == ("set", 1)
    assert found["lastUpdated"] == "2026-01-24T14:30:00.000Z"
    assert found["statistics"] == {"totalQuestions": 100, "completedQuestions": 47, "pendingQuestions": 53, "completionPercentage": 47.0}
    entry = dict(found["entries"][-1])
    assert len(bytes.fromhex(entry.pop("hash"))) == 32
    assert entry == {
        "queryLogId": "ql-123", "method": "default", "repeat": 1, "question": "What courses teach Python?",
        "completedAt": "2026-01-24T14:30:00.000Z", "result": RESULT,
    }  # fmt: skip
    assert datetime.fromisoformat(found["entries"][0]["completedAt"]).tzinfo


def test_a_case_is_named_and_a_lone_surrogate_escaped(tmp_path: Path) -> None:
    progress = view(tmp_path)
    for key in [CaseKey("a", "x"), CaseKey("a", "y"), CaseKey("a", "x", 2), CaseKey("a", "x", 1, 2), CaseKey("a", "x")]:
        note(progress, key, "?", {"key": str(key)})
    found = progress.content()
    assert found["statistics"]["completedQuestions"] == 4
    assert [e["result"]["key"] for e in found["entries"]] == ["a/y", "a/x repeat 2", "a/x#2", "a/x"]
    assert len({e["hash"] for e in found["entries"]}) == 4
    note(progress, CaseKey("é", "default"), "half \ud800", RESULT)
    progress.flush()
    assert read(progress) == progress.content()


@pytest.mark.parametrize(("cases", "question", "shown"), [
    (0, "?", 0), (500, "?", 500), (500, "long " * 100, 500),  # all of them, however long
    (501, "?", 0), (2500, "long " * 100, 0),
])  # fmt: skip
def test_up_to_500_cases_are_shown_and_of_more_what_64_kilobytes_hold(tmp_path: Path, cases: int, question: str, shown: int) -> None:
    progress = view(tmp_path, cases)
    progress.add_all([FinishedCase(CaseKey(str(n), "default"), question, None, AT) for n in range(cases)])
    progress.flush()
    found, size = read(progress), progress.path.stat().st_size
    if cases > 500:
        shown = len(found["entries"])
        assert 50 < shown <= 500
        assert 60_000 < size <= 65_536
    assert [e["queryLogId"] for e in found["entries"]] == [str(n) for n in range(cases - shown, cases)]
    assert found.get("journal") == ("journal.jsonl" if cases > 500 else None)
    assert found["statistics"]["completedQuestions"] == cases
    assert found["statistics"]["completionPercentage"] == 100.0


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 499, 3000])
def test_a_case_is_in_the_file_within_a_second_though_none_follows(tmp_path: Path, before: int) -> None:
    progress = view(tmp_path)
    progress.add_all([FinishedCase(CaseKey(str(n), "default"), "?", RESULT, AT) for n in range(before)])
    note(progress, CaseKey("last", "default"), "?", RESULT)  # the write before it was just now
    deadline = time.monotonic() + 1
    while read(progress)["entries"][-1:] != progress.content()["entries"][-1:] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read(progress)["entries"][-1]["queryLogId"] == "last"
    progress.flush()


def test_is_written_at_most_twice_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, writes = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module.threading.Timer, "start", lambda _: None)
    monkeypatch.setattr(module, "atomic_write", lambda *_, **__: writes.append(clock[0]))
    progress = view(tmp_path)
    for n in range(1000):
        note(progress, CaseKey(str(n), "default"), "?", None)
        clock[0] += 0.01
    assert len(writes) in (19, 20, 21)


@pytest.mark.parametrize(("number", "fatal"), [(errno.EACCES, False), (errno.EROFS, False), (errno.ENOSPC, True)])
def test_only_a_full_disk_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fatal: bool) -> None:
    def fail(path: Path, *_: object, **__: object) -> None:
        raise output_error(path, OSError(number, "no"))

    monkeypatch.setattr(module, "atomic_write", fail)
    progress = view(tmp_path)
    if fatal:
        with pytest.raises(OutputError, match="disk is full"):
            progress.flush()
    else:
        progress.flush()


def page(*texts: str) -> Page:
    return Page("p", Markup(""), "", "", [json_block(f"d{n}", [text]) for n, text in enumerate(texts)])


def named(path: Path) -> list[str]:
    """The files that the page on the disk says its data is in."""
    files = block_json(path.read_text(), "files")
    return [f"{files['folder']}/{name}" for name, _ in files["files"]]


def beside(path: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in path.with_suffix(".data").iterdir())


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_file, "SINGLE_FILE_MB", 0)


def test_a_large_page_names_its_files_and_another_takes_them_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    before = {file: file.stat().st_mtime_ns for file in write_page(path, page("a", "b"))}
    assert next(iter(before)) == path
    assert [f"report.data/{file.name}" for file in before if file != path] == named(path) == beside(path)
    assert {file: file.stat().st_mtime_ns for file in write_page(path, page("a", "b"))} == before
    write_page(path, page("a"))
    (old,) = beside(path)
    (tmp_path / "report.data" / "mine.js").write_text("")
    write_page(path, page("b"))
    assert old not in beside(path)
    assert beside(path) == sorted([*named(path), "report.data/mine.js"])
    monkeypatch.setattr(page_file, "SINGLE_FILE_MB", 50)
    write_page(path, page("b"))
    assert beside(path) == ["report.data/mine.js"]


@pytest.mark.parametrize("step", ["html", "removal"])
def test_a_writer_that_dies_leaves_a_page_with_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before the page is written the old one finds its old files; after it the new one its new files."""
    path = tmp_path / "report.html"
    write_page(path, page("a"))
    old_page = path.read_text()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    real = page_file.open_unless_same

    @contextmanager
    def dies_at_the_page(target: Path) -> Iterator[BinaryIO]:
        with real(target) as file:
            yield file
            die()

    name, dying = ("open_unless_same", dies_at_the_page) if step == "html" else ("_remove_others", die)
    with monkeypatch.context() as patch:
        patch.setattr(page_file, name, dying)
        with pytest.raises(KeyboardInterrupt):
            write_page(path, page("b"))
    assert (path.read_text() == old_page) is (step == "html")
    assert set(named(path)) <= set(beside(path))
    write_page(path, page("b"))
    assert named(path) == beside(path)


def test_a_link_in_place_of_the_folder_is_replaced_and_never_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, path = tmp_path / "elsewhere", tmp_path / "run" / "report.html"
    for folder in (target, path.parent):
        folder.mkdir()
    (target / "d0-0123456789abcdef.js").write_text("theirs")
    os.symlink(target, path.with_suffix(".data"))
    with monkeypatch.context() as large:
        large.setattr(page_file, "SINGLE_FILE_MB", 50)
        write_page(path, page("a"))
    write_page(path, page("a"))
    assert not path.with_suffix(".data").is_symlink()
    assert [file.read_text() for file in target.iterdir()] == ["theirs"]
