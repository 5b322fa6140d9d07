"""`task=init` writes what works at once, and overwrites nothing."""

import json
import shutil
from pathlib import Path

import pytest

from ragpipe.cli import compose, main
from ragpipe.datasets.dataset import open_dataset


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["task=init", "dir=my"]) == 0
    return tmp_path / "my"


@pytest.mark.slow
def test_what_is_written_composes_as_it_is_and_with_a_language_model(made: Path) -> None:
    config = compose(["+experiment=my"], config_dir="my")
    assert (config.name, config.dataset.name, sorted(config.metrics)) == ("my", "my", ["faithfulness", "retrieval"])
    other = compose(["+experiment=my", "judge=my"], config_dir="my")
    assert (other.judge.model, other.judge.api_key_env) == ("openai/gpt-4o-mini-2024-07-18", "OPENAI_API_KEY")


@pytest.mark.slow
def test_the_folder_may_be_renamed_to_conf(made: Path) -> None:
    made.rename(made.with_name("conf"))
    config = compose(["+experiment=my"])
    assert (config.name, config.dataset.path) == ("my", "conf/my.jsonl")


@pytest.mark.slow
def test_the_folder_may_be_moved_and_used_from_anywhere(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(tmp_path) not in "".join(path.read_text() for path in made.rglob("*.yaml"))
    elsewhere = tmp_path / "a" / "b"
    elsewhere.mkdir(parents=True)
    moved = made.rename(elsewhere / "mine")
    monkeypatch.chdir(tmp_path / "a")
    assert compose(["+experiment=my"], config_dir="b/mine").dataset.path == "b/mine/my.jsonl"
    monkeypatch.chdir(elsewhere / "mine" / "judge")
    config = compose(["+experiment=my"], config_dir="..")
    assert config.dataset.path == str(moved / "my.jsonl")
    assert len(list(open_dataset(config.dataset, Path.cwd()))) == 3


@pytest.mark.slow
def test_the_three_lines_are_read(made: Path) -> None:
    config = compose(["+experiment=my"], config_dir="my")
    records = list(open_dataset(config.dataset, Path.cwd()))
    lines = [json.loads(line) for line in (made / "my.jsonl").read_text().splitlines()]
    assert [r.sample.id for r in records] == [line["id"] for line in lines] == ["returns-1", "returns-2", "hours-1"]
    assert [len(r.output.chunks) for r in records] == [len(line["contexts"]) for line in lines]
    assert records[0].sample.relevant_chunks is not None


@pytest.mark.slow
def test_the_commands_it_prints(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(made)
    assert main(["task=init", "dir=my"]) == 0
    out = capfd.readouterr().out
    assert "python -m ragpipe --config-dir my +experiment=my" in out
    assert "judge/my.yaml" in out


@pytest.mark.slow
@pytest.mark.parametrize("there", ["file", "folder with a file"])
def test_nothing_is_overwritten(there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if there == "file":
        (tmp_path / "my").write_text("mine")
    else:
        (tmp_path / "my").mkdir()
        (tmp_path / "my/my.jsonl").write_text("mine")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    assert main(["task=init", "dir=my"]) == 2
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert main(["task=init", "dir=file/my"]) == 6
