import json
import os
from pathlib import Path

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.run import run_folder as module
from ragpipe.store.run.run_folder import RunFolder


def made(output_dir: Path, name: str = "x", run_id: str = "abc123") -> RunFolder:
    run = RunFolder.at(output_dir, name, run_id).create()
    run.manifest.write_text(json.dumps({"format": FORMAT}))
    return run


def test_the_paths_of_a_run(tmp_path: Path) -> None:
    run = RunFolder.at(tmp_path / "outputs", "x", "abc123")
    root = tmp_path / "outputs" / "x" / "abc123"
    iteration = run.iteration(2)
    paths = {
        run.root: ".",
        run.manifest: "manifest.json",
        run.config: "config.yaml",
        run.prompts: "prompts",
        run.samples: "samples.parquet",
        run.outputs: "outputs.parquet",
        run.report: "report.md",
        iteration.progress: "iteration-2/.progress.json",
        iteration.records: "iteration-2/records.parquet",
        iteration.scores: "iteration-2/scores.parquet",
        iteration.judge_inputs: "iteration-2/judge_inputs.parquet",
        iteration.metrics: "iteration-2/metrics.json",
        iteration.cost: "iteration-2/cost.json",
        iteration.journal: "iteration-2/journal.jsonl",
    }
    assert {str(path.relative_to(root)) for path in paths} == set(paths.values())
    assert run.run_id == "abc123"
    assert not (tmp_path / "outputs").exists()


def test_iterations_in_order(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert RunFolder(tmp_path / "missing").iterations() == []
    for number in (10, 2, 1):
        assert run.iteration(number).create().root.is_dir()
    (run.root / "iteration-x").mkdir()
    (run.root / "iteration-3").write_text("a file")
    assert run.iterations() == [1, 2, 10]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/../../x", "/etc", "a//b", "a/", ".hidden", "a/.git", "latest", "team/latest", "runs.md",
     "a\\b", "c:x", "a\nb", "a\x00b", "\x1b[2J", " a", "a ", "x" * 201, "\ud800"],
)  # fmt: skip
def test_a_name_that_escapes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as found:
        RunFolder.at(tmp_path, name, "abc")
    assert found.value.problems[0].where == "name"
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", name)
    with pytest.raises(ConfigError):
        RunFolder.at(tmp_path, "x", "a/b")


@pytest.mark.parametrize("name", ["x", "team/nightly", "2024", "prüfung 1", "a.b-c_d"])
def test_other_names_are_fine(tmp_path: Path, name: str) -> None:
    assert made(tmp_path, name).root == tmp_path / name / "abc123"


def test_rights_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        run = made(tmp_path)
    finally:
        os.umask(before)
    assert run.root.stat().st_mode & 0o777 == 0o700


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


def test_latest_moves_atomically_and_relatively(tmp_path: Path) -> None:
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


def test_latest_is_a_text_file_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_finds_a_run_by_any_of_its_names(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.point_latest()
    for path in (run.root, run.latest, tmp_path / "x"):
        assert RunFolder.find(path).root == run.root


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


def test_no_run_is_said_so(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "missing" / "latest"):
        with pytest.raises(DataError, match=r"no manifest\.json|no such folder"):
            RunFolder.find(path)
