import errno
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import OutputError
from ragpipe.schema.sample import CaseKey
from ragpipe.store.files.atomic import output_error
from ragpipe.store.run import progress_file as module
from ragpipe.store.run.progress_file import FinishedCase, ProgressView

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

RESULT = {"faithfulnessScore": 5, "completenessScore": 4, "passed": True}


def view(folder: Path, total: int = 100) -> ProgressView:
    return ProgressView(folder / ".progress.json", name="test-set-1", iteration=1, total=total)


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / ".progress.json").read_text())


def test_the_documented_form(tmp_path: Path) -> None:
    """Field for field what the answer-synthesis document shows, at 47 of 100, with method and repeat beside the id."""
    progress = view(tmp_path)
    for n in range(46):
        progress.add(CaseKey(f"ql-{n}", "default"), "?", RESULT)
    progress.add(CaseKey("ql-123", "default"), "What courses teach Python?", RESULT, completed_at="2026-01-24T14:30:00.000+00:00")
    progress.flush()
    found = read(tmp_path)
    assert list(found) == ["testSetName", "iterationNumber", "lastUpdated", "statistics", "entries"]
    assert (found["testSetName"], found["iterationNumber"]) == ("test-set-1", 1)
    assert found["lastUpdated"] == "2026-01-24T14:30:00.000Z"
    assert found["statistics"] == {"totalQuestions": 100, "completedQuestions": 47, "pendingQuestions": 53, "completionPercentage": 47.0}
    entry = dict(found["entries"][-1])
    assert len(bytes.fromhex(entry.pop("hash"))) == 32
    assert entry == {
        "queryLogId": "ql-123", "method": "default", "repeat": 1, "question": "What courses teach Python?",
        "completedAt": "2026-01-24T14:30:00.000Z", "result": RESULT,
    }  # fmt: skip
    assert datetime.fromisoformat(found["entries"][0]["completedAt"]).tzinfo


def test_a_case_is_named_by_id_method_repeat_and_iteration(tmp_path: Path) -> None:
    progress = view(tmp_path)
    for key in [CaseKey("a", "x"), CaseKey("a", "y"), CaseKey("a", "x", 2), CaseKey("a", "x", 1, 2), CaseKey("a", "x")]:
        progress.add(key, "?", {"key": str(key)})
    found = progress.content()
    assert found["statistics"]["completedQuestions"] == 4
    assert [e["result"]["key"] for e in found["entries"]] == ["a/y", "a/x repeat 2", "a/x#2", "a/x"]
    assert len({e["hash"] for e in found["entries"]}) == 4


@pytest.mark.parametrize(("cases", "shown"), [(0, 0), (1000, 1000), (1001, 100), (2500, 100)])
def test_many_cases_are_shown_by_their_last(tmp_path: Path, cases: int, shown: int) -> None:
    progress = view(tmp_path, cases)
    for n in range(cases):
        progress.add(CaseKey(str(n), "default"), "?", None)
    progress.flush()
    found = read(tmp_path)
    assert [e["queryLogId"] for e in found["entries"]] == [str(n) for n in range(cases - shown, cases)]
    assert found.get("journal") == ("journal.jsonl" if cases > 1000 else None)
    assert found["statistics"]["completedQuestions"] == cases
    assert found["statistics"]["completionPercentage"] == 100.0


def test_is_written_at_most_once_a_second_and_for_a_twentieth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, writes = [0.0], []

    def slow_write(*_: object, **__: object) -> None:
        writes.append(clock[0])
        clock[0] += 0.2  # seconds a write takes

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "atomic_write", slow_write)
    progress = view(tmp_path)
    for n in range(2000):
        progress.add(CaseKey(str(n), "default"), "?", None)
        clock[0] += 0.01
    assert len(writes) == 5  # 20 s of work, 0.2 s a write: one each 4 s and the write itself
    assert all(b - a >= 4.0 for a, b in zip(writes, writes[1:], strict=False))  # noqa: RUF007
    writes.clear()
    monkeypatch.setattr(module, "atomic_write", lambda *_, **__: writes.append(clock[0]))
    progress = view(tmp_path)
    for n in range(1000):
        progress.add(CaseKey(str(n), "default"), "?", None)
        clock[0] += 0.01
    assert len(writes) in (10, 11)


def test_the_last_state_is_flushed_and_an_equal_file_left_alone(tmp_path: Path) -> None:
    def run() -> None:
        progress = view(tmp_path, 3)
        for n in range(3):
            progress.add(CaseKey(str(n), "default"), "?", None, completed_at=f"2026-01-24T14:30:0{n}.000Z")
        progress.flush()

    run()
    assert read(tmp_path)["statistics"]["pendingQuestions"] == 0
    progress = view(tmp_path, 3)
    progress._next = time.monotonic() + 60
    before = (tmp_path / ".progress.json").stat()
    for n in range(3):
        progress.add(CaseKey(str(n), "default"), "?", None, completed_at=f"2026-01-24T14:30:0{n}.000Z")
    progress.flush()
    after = (tmp_path / ".progress.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


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
        progress.flush()
        assert len(progress.notices) == 1
        assert ".progress.json" in progress.notices[0]


@pytest.mark.parametrize("cases", [0, 1, 3, 1001])
def test_the_file_is_its_content_as_indented_json(tmp_path: Path, cases: int) -> None:
    """Entries are encoded one by one, some before the last write; the file is as if it were encoded at once."""
    progress = view(tmp_path, cases)
    for n in range(cases):
        progress.add(CaseKey(f"é{n}", "default"), 'two\nlines, "quoted" {', {"score": n / 3, "kinds": [], "other": {}})
        if n == 1:
            progress.flush()
    progress.flush()
    text = json.dumps(progress.content(), indent=2, ensure_ascii=False)
    assert (tmp_path / ".progress.json").read_text("utf-8") == text + "\n"


def test_a_lone_surrogate_is_escaped(tmp_path: Path) -> None:
    progress = view(tmp_path)
    progress.add(CaseKey("é", "default"), "half \ud800", RESULT)
    progress.flush()
    assert read(tmp_path) == progress.content()


def test_cases_noted_together_are_shown_as_one_by_one(tmp_path: Path) -> None:
    """Also where a case comes again, and where the view begins to drop entries."""
    finished = [
        FinishedCase(CaseKey(f"q{number % 1150}", "m"), "?", {"s": number}, f"2026-01-01T00:00:{number % 60:02}.000+00:00")
        for number in range(1300)
    ]
    single, together = view(tmp_path / "a", 1300), view(tmp_path / "b", 1300)
    for case in finished:
        single.add(case.case, case.question, case.result, completed_at=case.completed_at)
    for start in range(0, 1300, 260):
        together.add_all(finished[start : start + 260])
        if start == 520:
            assert len(together.content()["entries"]) == 780
    assert together.content() == single.content()
    assert len(together.content()["entries"]) == 100


@pytest.mark.parametrize("size", [1, 90, 260, 1300])
def test_cases_that_are_only_counted_are_shown_as_all_others(tmp_path: Path, size: int) -> None:
    finished = [FinishedCase(CaseKey(f"q{number}", "m"), "?", {}, f"2026-01-01T00:00:{number % 60:02}.000+00:00") for number in range(1300)]
    known, counted = view(tmp_path / "a", 1300), view(tmp_path / "b", 1300)
    for start in range(0, 1300, size):
        block = finished[start : start + size]
        known.add_all(block)
        counted.add_new(len(block), lambda last, block=block: block[-last:])
        assert counted.content() == known.content()
    assert counted.content()["statistics"]["completedQuestions"] == 1300
    assert [entry["queryLogId"] for entry in counted.content()["entries"]] == [f"q{n}" for n in range(1200, 1300)]
