"""`task=runs` and `task=export` on real runs of the demonstration set."""

import csv
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

import ragpipe
from ragpipe.cli import main
from ragpipe.core.errors import OutputError
from ragpipe.engine.runs.run_list import LISTED, list_runs, write_run_list
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow
WORDS = ["dataset=demo", "metrics=[retrieval]", "name=x", "dataset.limit=4", "report.formats=[]"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`outputs/x` with two runs that differ in a weight and in a gate; both are scored, neither has an export."""
    home = tmp_path_factory.mktemp("home")
    for more in (["scoring.thresholds.retrieval_score=0.1"], ["+scoring.gates={r: {score: retrieval_score, min: 1.0}}"]):
        code = main([*WORDS, f"output_dir={home}/outputs", *more])
        assert code == (3 if "gates" in more[0] else 0)
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
    assert main(["task=runs", f"output_dir={folder.parent}", "name=x"]) == 0
    out = capsys.readouterr().out
    head, first, second = rows(folder)
    assert head[:5] == ["run", "created", "state", "cases", "judge"]
    assert head[-3:] == ["gates", "cost", "differs in"]
    assert head[5] == "retrieval_score"
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
    assert f"  against {first[0]}: scoring.gates.r.min: (absent) -> 1.0" in out


def test_nothing_is_rewritten_that_would_not_change(folder: Path) -> None:
    write_run_list(folder)
    assert write_run_list(folder) is False


def test_broken_folders_get_a_line(folder: Path) -> None:
    whole = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    for name, manifest in {
        "aaaaaaaaaaaa": None,
        "bbbbbbbbbbbb": "{",
        "cccccccccccc": f'{{"format": {FORMAT}}}',
        "dddddddddddd": '{"format": 99}',
    }.items():
        (folder / name).mkdir()
        if manifest:
            (folder / name / "manifest.json").write_text(manifest)
    shutil.copytree(folder / whole[0], folder / "eeeeeeeeeeee")
    (folder / "eeeeeeeeeeee" / "iteration-1" / "metrics.json").write_text("[]")
    write_run_list(folder)
    states = {row[0]: row[2] for row in rows(folder)[1:]}
    assert set(states) == {*whole, *(c * 12 for c in "abcde")}
    assert states["aaaaaaaaaaaa"] == "broken: no manifest.json"
    assert states["bbbbbbbbbbbb"].startswith("broken: manifest.json: no readable JSON (Expecting")
    assert states["cccccccccccc"] == "broken: KeyError: 'created_at'"
    assert states["dddddddddddd"] == "refused: format 99, it does not say which ragpipe made it"
    assert states["eeeeeeeeeeee"] == "broken: metrics.json: its bytes are not what they were"
    assert all(states[name] == "complete" for name in whole)


def test_texts_of_a_strangers_manifest_are_no_markup(folder: Path) -> None:
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


def test_every_name_is_found_and_links_are_passed_over(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folder, folder.parent / "team" / "nightly", symlinks=True)
    (folder.parent / "loop").symlink_to(folder.parent)
    assert main(["task=runs", f"output_dir={folder.parent}"]) == 0
    assert sorted(str(p.relative_to(folder.parent)) for p in folder.parent.rglob("runs.md")) == ["team/nightly/runs.md", "x/runs.md"]
    assert main(["task=runs", f"output_dir={folder.parent}", "name=run"]) == 2
    assert "no run folder in it" in capsys.readouterr().err


def test_only_the_newest_are_listed(folder: Path) -> None:
    run = next(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    for number in range(LISTED):
        (folder / f"{number:012x}").mkdir()
        (folder / f"{number:012x}" / "manifest.json").write_text((run / "manifest.json").read_text().replace(run.name, f"{number:012x}"))
    lines, older = list_runs(folder)
    assert (len(lines), older) == (LISTED, 2)
    assert lines[-1].state in ("not scored", "complete")


def test_a_finished_run_is_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=export", f"run={folder / 'latest'}"]) == 0
    run = RunFolder.find(folder)
    printed = [Path(line) for line in capsys.readouterr().out.split()]
    assert printed == [run.html, run.junit, *(p for p in printed if "export" in p.parts)]
    assert len(printed) == 12
    assert all(path.stat().st_size > 20 for path in printed if path.name != "judge_inputs.jsonl")
    records = pq.read_table(run.iteration(1).records)
    with open(run.export / "iteration-1" / "records.csv", encoding="utf-8-sig", newline="") as file:
        head, *lines = csv.reader(file)
    assert head == records.column_names
    assert [line[0] for line in lines] == records["sample_id"].to_pylist()
    assert "blocked 1 of 1 gate: r" in re.sub(r"<[^>]+>", "", run.html.read_text())


def test_gates_are_data(folder: Path) -> None:
    gates = ragpipe.load(folder / "latest").gates
    assert gates["passed"] is False
    assert [gate["name"] for gate in gates["gates"]] == ["r"]


def test_all_iterations_are_in_the_files(tmp_path: Path) -> None:
    words = [*WORDS[:-2], "dataset.limit=2", "iterations=2", "report.formats=[html,junit,json]", f"output_dir={tmp_path}"]
    assert main(words) == 0
    run = RunFolder.find(tmp_path / "x")
    assert "Over 2 iterations" in run.html.read_text()
    assert 'name="iteration 2 complete"' in run.junit.read_text()
    for number in (1, 2):
        lines = (run.export / f"iteration-{number}" / "records.jsonl").read_bytes().splitlines()
        assert {json.loads(line)["iteration"] for line in lines} == {number}
    write_run_list(run.root.parent)
    assert rows(run.root.parent)[1][2] == "complete, 2 iterations"


def test_only_what_is_asked_for_is_exported(folder: Path) -> None:
    run = RunFolder.find(folder)
    assert main(["task=export", f"run={run.root}", "formats=[junit]"]) == 0
    assert run.junit.is_file()
    assert not run.html.exists()
    assert not run.export.exists()


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("words", "said"),
    first_rows(
        [
            (["run=nowhere"], "there is no run"),
            (["report.formats=[html]"], "formats=[html]"),  # it says what a run writes, and changed nothing here
            (["formats=[xlsx]"], "one of csv, json, html, junit"),
            (["formats=[]"], "formats"),
        ],
        keep=2,
    ),
)
def test_what_cannot_be_exported(folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = words if words[0].startswith("run=") else [f"run={folder / 'latest'}", *words]
    assert main(["task=export", *given]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_is_not_scored_or_at_work_is_not_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.find(folder)
    with FolderLock(run.root):
        assert main(["task=export", f"run={run.root}"]) == OutputError.exit_code
    (run.iteration(1).metrics).unlink()
    assert main(["task=export", f"run={run.root}"]) == 2
    assert "no iteration that is scored" in capsys.readouterr().err
