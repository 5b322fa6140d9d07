import errno
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import OutputError
from ragpipe.core.sample import CaseKey
from ragpipe.store import progress as module
from ragpipe.store.files import output_error
from ragpipe.store.progress import FinishedCase, ProgressView

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
RESULT = {"faithfulnessScore": 5, "completenessScore": 4, "passed": True}


def view(folder: Path, total: int = 100) -> ProgressView:
    return ProgressView(folder / ".progress.json", name="test-set-1", iteration=1, total=total)


def note(progress: ProgressView, case: CaseKey, question: str, result: Any, completed_at: str = "2026-01-24T14:00:00.000Z") -> None:
    progress.add_all([FinishedCase(case, question, result, completed_at)])


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / ".progress.json").read_text())


def test_the_documented_form(tmp_path: Path) -> None:
    """Field for field what the answer-synthesis document shows, at 47 of 100, with method and repeat beside the id."""
    progress = view(tmp_path)
    for n in range(46):
        note(progress, CaseKey(f"ql-{n}", "default"), "?", RESULT)
    note(progress, CaseKey("ql-123", "default"), "What courses teach Python?", RESULT, completed_at="2026-01-24T14:30:00.000+00:00")
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
    assert read(tmp_path) == progress.content()


@pytest.mark.parametrize(("cases", "question", "shown"), [
    (0, "?", 0), (500, "?", 500), (500, "long " * 100, 500),  # all of them, however long
    (501, "?", 0), (2500, "long " * 100, 0),
])  # fmt: skip
def test_up_to_500_cases_are_shown_and_of_more_what_64_kilobytes_hold(tmp_path: Path, cases: int, question: str, shown: int) -> None:
    progress = view(tmp_path, cases)
    progress.add_all([FinishedCase(CaseKey(str(n), "default"), question, None, "2026-01-24T14:00:00.000Z") for n in range(cases)])
    progress.flush()
    found, size = read(tmp_path), (tmp_path / ".progress.json").stat().st_size
    if cases > 500:
        shown = len(found["entries"])
        assert 50 < shown <= 500
        assert 60_000 < size <= 65_536
    assert [e["queryLogId"] for e in found["entries"]] == [str(n) for n in range(cases - shown, cases)]
    assert found.get("journal") == ("journal.jsonl" if cases > 500 else None)
    assert found["statistics"]["completedQuestions"] == cases
    assert found["statistics"]["completionPercentage"] == 100.0


@pytest.mark.parametrize("before", [0, 499, 3000])
def test_a_case_is_in_the_file_within_a_second_though_none_follows(tmp_path: Path, before: int) -> None:
    progress = view(tmp_path)
    progress.add_all([FinishedCase(CaseKey(str(n), "default"), "?", RESULT, "2026-01-24T14:00:00.000Z") for n in range(before)])
    note(progress, CaseKey("last", "default"), "?", RESULT)  # the write before it was just now
    deadline = time.monotonic() + 1
    while read(tmp_path)["entries"][-1:] != progress.content()["entries"][-1:] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read(tmp_path)["entries"][-1]["queryLogId"] == "last"
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
