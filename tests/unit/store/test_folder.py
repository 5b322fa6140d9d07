"""The folder of a run: its paths, its wall clock through starts, its seals."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.core.version import FORMAT
from ragpipe.store import progress
from ragpipe.store import run_folder as module
from ragpipe.store.progress import WallClock, judged_seconds
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.seals import closed_seal, open_seal


def made(output_dir: Path, name: str = "x", run_id: str = "abc123") -> RunFolder:
    run = RunFolder.at(output_dir, name, run_id).create()
    run.manifest.write_text(json.dumps({"format": FORMAT}))
    return run


def test_iterations_in_order_and_no_run_said_so(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert RunFolder(tmp_path / "missing").iterations() == []
    for number in (10, 2, 1):
        assert run.iteration(number).create().root.is_dir()
    (run.root / "iteration-x").mkdir()
    (run.root / "iteration-3").write_text("a file")
    assert run.iterations() == [1, 2, 10]
    for path in (tmp_path, tmp_path / "missing", tmp_path / "missing" / "latest"):
        with pytest.raises(DataError, match=r"no manifest\.json|no such folder"):
            RunFolder.find(path)


@pytest.mark.parametrize("name", [
    "", ".", "..", "../x", "a/../../x", "/etc", "a//b", "a/", ".hidden", "a/.git", "latest", "team/latest", "runs.md", "a\\b",
    "c:x", "a\nb", "a\x00b", "\x1b[2J", " a", "a ", "x" * 201, "\ud800",
])  # fmt: skip
def test_a_name_that_escapes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as found:
        RunFolder.at(tmp_path, name, "abc")
    assert found.value.problems[0].where == "name"
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", name)
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", "a/b")


def test_planted_folder_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = made(tmp_path / "out")
    (run.root / "iteration-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        run.iteration(1).create()
    (tmp_path / "out" / "y").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        RunFolder.at(tmp_path / "out", "y", "abc").create()
    with pytest.raises(OutputError, match=r"not a folder|should be"):
        run.manifest and RunFolder(run.manifest).create()


def test_latest_is_moved_and_never_mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = made(tmp_path / "a", run_id="one"), made(tmp_path / "a", run_id="two")
    one.point_latest()
    assert os.readlink(one.latest) == "one"
    before = os.lstat(one.latest)
    one.point_latest()
    assert os.lstat(one.latest).st_ino == before.st_ino
    two.point_latest()
    assert RunFolder.find(tmp_path / "a" / "x" / "latest").root == two.root
    assert sorted(os.listdir(tmp_path / "a" / "x")) == ["latest", "one", "two"]
    (tmp_path / "a").rename(tmp_path / "b")
    assert RunFolder.find(tmp_path / "b" / "x" / "latest").root == tmp_path / "b" / "x" / "two"

    def fail(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(module.os, "symlink", fail)
    run = made(tmp_path)
    run.point_latest()
    assert run.latest.read_text() == "abc123\n"
    assert not run.latest.is_symlink()
    assert RunFolder.find(run.latest).root == run.root


def test_a_folder_named_latest_is_not_removed(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.latest.mkdir()
    with pytest.raises(OutputError, match="a folder is where"):
        run.point_latest()
    assert sorted(os.listdir(tmp_path / "x")) == ["abc123", "latest"]


@pytest.mark.parametrize("target", ["../../secret", "/etc", "..", ".", "a/b", "", "gone"])
def test_a_pointer_that_leads_elsewhere_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "manifest.json").write_text("{}")
    (tmp_path / "out" / "x").mkdir(parents=True)
    latest = tmp_path / "out" / "x" / "latest"
    latest.write_text(target)
    with pytest.raises(DataError, match="no run"):
        RunFolder.find(latest)
    if target:
        latest.unlink()
        latest.symlink_to(target)
        with pytest.raises(DataError, match="no run"):
            RunFolder.find(latest)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock as a list of one number that a test may change."""
    times = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: times[0])
    return times


def test_the_time_of_a_killed_start_is_kept(tmp_path: Path, now: list[float]) -> None:
    """12 s in a start that was killed at its 14th second, then 3 s in the one that goes on."""
    path = tmp_path / ".wall.json"
    clock = WallClock(path)
    for now[0] in (102.0, 107.0, 109.0, 112.0, 114.0):  # written at 7 and at 12
        clock.tick()
    assert json.loads(path.read_text()) == {"judging_s": 12.0}
    now[0] = 900.0
    again = WallClock(path)
    now[0] = 903.0
    again.write()
    assert judged_seconds(path) == 15.0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"judging_s": "x"}', '{"judging_s": -1}', '{"judging_s": true}'])
def test_a_file_that_says_nothing_starts_from_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".wall.json"
    assert judged_seconds(path) is None
    path.write_text(text)
    assert judged_seconds(path) is None
    assert WallClock(path).seconds < 1


WHOLE: dict[str, Any] = {"manifest": {}, "files": {"final/metrics.json": "0" * 64}, "spent": {}, "prices": {}}


def written(folder: Path, text: str) -> Path:
    path = folder / "seal.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("files", [["final/metrics.json"], *({name: "0" * 64} for name in ("/etc/passwd", "../x", "a/../../x", "a\0b"))])
def test_a_seal_that_names_a_file_elsewhere_is_refused(tmp_path: Path, files: Any) -> None:
    """Its digest fits: whoever writes a seal can compute it."""
    with pytest.raises(ValueError, match="`files` names more than files of this folder"):
        open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, "files": files}))))


def test_names_that_only_look_like_going_up_are_files_of_the_folder(tmp_path: Path) -> None:
    names = {"prompts/a..b.jinja": "0" * 64, "..x/y": "0" * 64}
    assert open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, "files": names}))))["files"] == names


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 200_000, '{"files": {}, "digest": "0"}'])
def test_a_damaged_seal_is_a_value_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"digest|no readable JSON|a JSON list"):
        open_seal(written(tmp_path, text))
