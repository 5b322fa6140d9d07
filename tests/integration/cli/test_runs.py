"""`task=runs` and `task=export` on real runs of the demonstration set."""

import csv
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from ragpipe.cli.command_line import main
from ragpipe.core.errors import OutputError
from ragpipe.runs.run_list import write_run_list
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder
from tests.support.place import output_of

pytestmark = pytest.mark.slow
WORDS = ["dataset=demo", "metrics=[retrieval]", "name=x", "dataset.limit=4", "report.formats=[]"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`outputs/x` with two runs that differ in a weight and in a gate; both are scored, neither has an export."""
    home = tmp_path_factory.mktemp("home")
    for more in (["scoring.thresholds.retrieval_score=0.1"], ["+scoring.gates={r: {score: retrieval_score, min: 1.0}}"]):
        assert main([*WORDS, f"output_dir={home}/outputs", *more]) == (3 if "gates" in more[0] else 0)
    return home / "outputs" / "x"


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "outputs" / "x", symlinks=True)
    return tmp_path / "outputs" / "x"


def rows(folder: Path) -> list[list[str]]:
    found: list[list[str]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse((folder / "runs.md").read_text(encoding="utf-8"))
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "tr_open":
            found.append([])
        if token.type in ("td_open", "th_open") and after is not None:
            found[-1].append("".join(child.content for child in after.children or []))
    return found


def test_all_runs_stand_in_one_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = output_of(["task=runs", f"output_dir={folder.parent}", "name=x"], 0, capsys).out
    head, first, second = rows(folder)
    assert head[:5] == ["run", "created", "state", "cases", "judge"]
    assert (head[-3:], head[5]) == (["gates", "cost", "differs in"], "retrieval_score")
    cells = dict(zip(head, second, strict=True))
    metrics = json.loads((folder / cells["run"] / "iteration-1" / "metrics.json").read_text())
    mean = metrics["overall"]["scores"]["retrieval_score"]["mean"]
    n = metrics["overall"]["scores"]["retrieval_score"]["n_ok"]
    assert cells["retrieval_score"] == f"{mean:.3f} ({n})"
    assert (cells["state"], cells["cases"], cells["cost"]) == ("complete", str(metrics["n_cases"]), "no call")
    assert cells["gates"] == "1 of 1 block"
    assert cells["differs in"].startswith(f"against {first[0]}: scoring.gates")
    assert first[-1] == "-"
    assert first[0] in out
    assert second[0] in out


def test_broken_folders_and_a_strangers_manifest(folder: Path) -> None:
    whole = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    for name, manifest in {"aaaaaaaaaaaa": None, "bbbbbbbbbbbb": "{", "dddddddddddd": '{"format": 99}'}.items():
        (folder / name).mkdir()
        if manifest:
            (folder / name / "manifest.json").write_text(manifest)
    shutil.copytree(folder / whole[0], folder / "eeeeeeeeeeee")
    (folder / "eeeeeeeeeeee" / "iteration-1" / "metrics.json").write_text("[]")
    write_run_list(folder)
    states = {row[0]: row[2] for row in rows(folder)[1:]}
    assert set(states) == {*whole, *(c * 12 for c in "abde")}
    assert states["aaaaaaaaaaaa"] == "broken: no manifest.json"
    assert states["bbbbbbbbbbbb"].startswith("broken: manifest.json: no readable JSON (Expecting")
    assert states["dddddddddddd"] == "refused: format 99, it does not say which ragpipe made it"
    assert states["eeeeeeeeeeee"] == "broken: metrics.json: its bytes are not what they were"
    assert all(states[name] == "complete" for name in whole)
    run = next(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    manifest = json.loads((run / "manifest.json").read_text())
    evil = "<img src=x> | ![a](http://evil) `|` \x1b[2J"
    manifest |= {"created_at": evil, "identity": {evil: evil}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    write_run_list(folder)
    tokens = MarkdownIt("commonmark").enable("table").parse((folder / "runs.md").read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or []]
    assert {token.type for token in inline} <= {"text", "code_inline", "softbreak"}
    assert not any("evil" in token.content or "img" in token.content for token in inline if token.type == "text")


def test_every_name_is_found_and_links_are_passed_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folder, folder.parent / "team" / "nightly", symlinks=True)
    (folder.parent / "loop").symlink_to(folder.parent)
    assert main(["task=runs", f"output_dir={folder.parent}"]) == 0
    assert sorted(str(p.relative_to(folder.parent)) for p in folder.parent.rglob("runs.md")) == ["team/nightly/runs.md", "x/runs.md"]
    assert "no run folder in it" in output_of(["task=runs", f"output_dir={folder.parent}", "name=run"], 2, capsys).err


def test_a_finished_run_is_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=export", f"run={folder / 'latest'}"]) == 0
    run = RunFolder.find(folder)
    printed = [Path(line) for line in capsys.readouterr().out.split()]
    assert printed == [run.verdict, run.html, run.junit, *(p for p in printed if "export" in p.parts)]
    assert len(printed) == 3 + 2 * 5 + 5, "the tables of the run in two formats, those of the report as CSV"
    assert all(path.stat().st_size > 20 for path in printed if path.name != "judge_inputs.jsonl")
    records = pq.read_table(run.iteration(1).records)
    with open(run.export / "iteration-1" / "records.csv", encoding="utf-8-sig", newline="") as file:
        head, *lines = csv.reader(file)
    assert head == records.column_names
    assert [line[0] for line in lines] == records["sample_id"].to_pylist()
    assert "BLOCKED 1 of 1 gate failed: r" in re.sub(r"<[^>]+>", "", run.html.read_text())


@pytest.mark.parametrize(("word", "said"), [
    ("report.formats=[html]", "formats=[html]"),  # it says what a run writes, and changed nothing here
    ("formats=[xlsx]", "one of csv, json, html, junit"),
])  # fmt: skip
def test_what_cannot_be_exported(folder: Path, word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in output_of(["task=export", f"run={folder / 'latest'}", word], 2, capsys).err


def test_a_run_that_is_not_scored_or_at_work_is_not_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.find(folder)
    with FolderLock(run.root):
        assert main(["task=export", f"run={run.root}"]) == OutputError.exit_code
    (run.iteration(1).metrics).unlink()
    assert "no iteration that is scored" in output_of(["task=export", f"run={run.root}"], 2, capsys).err


@pytest.mark.parametrize("word", ["x", "x/latest", "latest", "run id", "folder"])
def test_every_task_finds_the_run_by_the_same_words(folder: Path, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    newest = RunFolder.find(folder).root
    run = {"run id": newest.name, "folder": str(newest)}.get(word, word)
    start = [f"run={run}", f"output_dir={folder.parent}"]
    assert newest.name in output_of(["task=verify", *start], 0, capsys).out
    assert str(newest) in output_of(["task=export", "formats=[csv]", *start], 0, capsys).out
    case = f"case={pq.read_table(newest / 'samples.parquet')['id'][0]}"
    assert main(["task=explain", case, *start]) == 0


@pytest.mark.parametrize("task", ["rescore", "verify", "explain", "label", "export", "calibrate", "rejudge"])
def test_a_run_that_is_not_there_is_named_with_those_like_it(folder: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"explain": ["case=q1"], "calibrate": ["calibrate.recorded={retrieval_score: human}"]}.get(task, [])
    said = output_of([f"task={task}", f"run={folder.parent}/xx/latest", f"output_dir={folder.parent}", *more], 2, capsys).err
    assert "there is no such run" in said
    assert "xx/latest" in said
    assert "did you mean x?" in said
