"""Published runs: sealed, seal last, read where they are published, checked by digest when they are fetched."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs, several per test
ROWS = [
    {"id": f"q{i}", "question": f"What does case {i} say?", "answer": f"Case {i} says {i * 3} things.", "reference": f"{i * 3} things",
     "contexts": [f"Passage of case {i}: it says {i * 3} things."]}
    for i in range(4)
]  # fmt: skip
DATA = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
COMMON = ["dataset=jsonl", "metrics=[faithfulness]", "name=r"]


def _run(*words: str) -> Path:
    assert main([*COMMON, *words]) == 0
    return Path("outputs/r/latest").resolve()


@pytest.fixture
def here(here: Path) -> Path:
    (here / "data.jsonl").write_bytes(DATA)
    return here


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "data.jsonl").write_bytes(DATA)
        _run("dataset.path=data.jsonl")
    return folder


@pytest.fixture
def sent(memory: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were sent to the store, or taken out of it, in order."""
    names: list[str] = []
    put, pipe, rm = type(memory).put_file, type(memory).pipe_file, type(memory).rm_file

    def noted(send: Callable[..., Any], at: int) -> Callable[..., Any]:
        def noting(files: Any, *words: Any, **options: Any) -> Any:
            names.append(str(words[at]))
            return send(files, *words, **options)

        return noting

    monkeypatch.setattr(type(memory), "put_file", noted(put, 1))
    monkeypatch.setattr(type(memory), "pipe_file", noted(pipe, 0))
    monkeypatch.setattr(type(memory), "rm_file", noted(rm, 0))
    return names


@pytest.fixture
def published(finished: Path, here: Path, memory: Any) -> str:
    """The id of that run: a copy of its folder is below `outputs`, and it is published below memory://b/runs."""
    shutil.copytree(finished / "outputs", here / "outputs", symlinks=True)
    assert main(["task=publish", f"run={Path('outputs/r/latest').resolve()}", "publish=memory://b/runs"]) == 0
    return Path("outputs/r/latest").resolve().name


def test_the_place_of_the_data_is_no_part_of_the_run(here: Path, memory: Any) -> None:
    memory.pipe({"/b/d/data.jsonl": DATA, "/b/d/part/one.jsonl": DATA})
    local = _run("dataset.path=data.jsonl")
    remote = _run("dataset.path=memory://b/d/data.jsonl")
    by_pattern = _run("dataset.path=memory://b/d/part", "dataset.files={main: '*.jsonl'}")
    assert local == remote == by_pattern  # one run: the same folder, by the content alone


def test_a_run_is_published_seal_last_and_only_once(published: str, memory: Any, sent: list[str], capsys) -> None:
    local, folder = Path("outputs/r/latest").resolve(), f"/b/all/r/{published}"
    publish = ["task=publish", f"run={local}", "publish=memory://b/all"]
    assert main(publish) == 0
    assert sent[-3:] == [f"{folder}/manifest.json", f"{folder}/seal.json", "/b/all/r/latest"]
    for name in ("seal.json", "manifest.json", "iteration-1/scores.parquet", "report.html"):
        assert memory.cat_file(f"{folder}/{name}") == (local / name).read_bytes()
    assert memory.cat_file("/b/all/r/latest").decode().strip() == published
    sent.clear()
    assert "it was there already" in output_of(publish, 0, capsys).out
    assert sent == []
    memory.pipe_file(f"{folder}/seal.json", memory.cat_file(f"{folder}/seal.json") + b" ")
    memory.pipe_file(f"{folder}/report.md", b"changed there")
    sent.clear()
    assert main(publish) == 0
    assert memory.cat_file(f"{folder}/report.md") == (local / "report.md").read_bytes()
    assert (sent[0], sent[-1]) == (f"{folder}/seal.json",) * 2, "until its end it is no run"
    assert len(sent) == 1 + len(json.loads((local / "seal.json").read_bytes())["files"]) + len(["manifest.json", "seal.json"])


@pytest.mark.thorough
def test_a_run_that_is_published_in_part_is_no_run(here: Path, memory: Any, capsys, monkeypatch) -> None:
    put, puts = type(memory).put_file, 0

    def break_down(files: Any, source: str, target: str, **options: Any) -> None:
        nonlocal puts
        puts += 1
        if puts > 9:
            raise OSError("the store is gone")
        put(files, source, target, **options)

    monkeypatch.setattr(type(memory), "put_file", break_down)
    assert main([*COMMON, "dataset.path=data.jsonl", "publish=memory://b/runs"]) == 6
    said, run = capsys.readouterr().err, Path("outputs/r/latest").resolve()
    assert f"cannot write memory://b/runs/r/{run.name}/" in said
    assert f"the run is whole: {Path('outputs/r') / run.name}; task=publish" in said
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert len(memory.find("/b/runs")) == 9
    assert main(["task=fetch", f"run=memory://b/runs/r/{run.name}", "output_dir=elsewhere"]) == 2
    assert "published in part" in capsys.readouterr().err
    assert not list(Path("elsewhere/r").glob("*/manifest.json"))
    assert main(["task=publish", f"run={run}", "publish=memory://b/runs"]) == 0
    assert main(["task=fetch", f"run=memory://b/runs/r/{run.name}", "output_dir=elsewhere"]) == 0


def test_every_task_works_on_a_fetched_run_and_no_other_on_an_address(published: str, tmp_path, monkeypatch, capsys) -> None:
    local = Path("outputs/r/latest").resolve()
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path / "far")
    for words in (["task=verify"], ["task=explain", "case=q1"], ["task=rescore"]):
        assert "task=fetch" in output_of([*words, f"run=memory://b/runs/r/{published}"], 2, capsys).err
    assert main(["task=fetch", "run=memory://b/runs/r"]) == 0
    assert main(["task=verify", f"run={published}"]) == 0
    for path in local.rglob("*.parquet"):
        assert (Path("outputs/r") / published / path.relative_to(local)).read_bytes() == path.read_bytes()
    assert main(["task=rescore", f"run=outputs/r/{published}", "scoring.thresholds.faithfulness=0.5"]) == 0


def test_a_run_is_not_fetched_over_another_state_of_it(published: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("outputs/r/latest/seal.json").write_text("{}")
    assert "not fetched over one that differs" in output_of(["task=fetch", "run=memory://b/runs/r/latest"], 2, capsys).err


def test_what_was_changed_there_or_here_is_not_taken(published: str, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"/b/runs/r/{published}/iteration-1/metrics.json"
    memory.pipe_file(name, memory.cat_file(name).replace(b"uncalibrated", b"calibrated", 1))
    assert memory.cat_file(name) != Path("outputs/r/latest/iteration-1/metrics.json").read_bytes()
    address = f"run=memory://b/runs/r/{published}"
    assert "content that its seal does not name" in output_of(["task=fetch", "output_dir=elsewhere", address], 2, capsys).err
    assert not list(Path("elsewhere").glob("r/*/iteration-1/metrics.json"))
    assert not list(Path("elsewhere").rglob("seal.json"))
    name = f"/b/runs/r/{published}/seal.json"
    memory.pipe_file(name, memory.cat_file(name).replace(b"report.md", b"report.mx"))
    assert main(["task=fetch", "run=memory://b/runs/r/latest", "output_dir=elsewhere"]) == 2
    assert "a damaged seal (its own digest does not fit)" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["created_at", "identity", "run_id", "name"])
def test_a_manifest_that_was_changed_there_is_found(published: str, memory: Any, capsys: pytest.CaptureFixture[str], key: str) -> None:
    """It is no file that the seal has the digest of: the seal holds what it says."""
    where = f"/b/runs/r/{published}/manifest.json"
    changes = {"created_at": "2001-01-01T00:00:00+00:00", "identity": {}, "run_id": "0123456789ab", "name": "better"}
    manifest = json.loads(memory.cat_file(where))
    assert manifest[key] != changes[key]
    memory.pipe_file(where, json.dumps(manifest | {key: changes[key]}).encode())
    address = f"run=memory://b/runs/r/{published}"
    assert "a manifest that its seal does not hold" in output_of(["task=fetch", "output_dir=elsewhere", address], 2, capsys).err
    assert not Path("elsewhere").exists()


def test_a_run_is_the_one_of_its_address(published: str, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in memory.find(f"/b/runs/r/{published}"):
        memory.pipe_file(name.replace(published, "0123456789ab"), memory.cat_file(name))
    assert main(["task=fetch", "run=memory://b/runs/r/0123456789ab", "output_dir=elsewhere"]) == 2
    assert f"the run {published}, and not 0123456789ab" in capsys.readouterr().err
    assert not Path("elsewhere").exists()


@pytest.mark.thorough
def test_a_run_that_was_changed_here_is_not_published(published: str, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(Path("outputs/r/latest").resolve(), "copy"))
    (run / "report.md").write_text("better than it was")
    assert "not what was sealed" in output_of(["task=publish", f"run={run}", "publish=memory://b/elsewhere"], 2, capsys).err
    (run / "seal.json").unlink()
    assert "no seal.json" in output_of(["task=publish", f"run={run}", "publish=memory://b/elsewhere"], 2, capsys).err
    assert not memory.exists("/b/elsewhere")
    assert "publish=s3://bucket/prefix" in output_of(["task=publish", f"run={run}"], 2, capsys).err
