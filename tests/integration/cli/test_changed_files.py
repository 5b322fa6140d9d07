"""A file of a sealed run that was changed is named by whoever reads it; documents of another shape are sentences."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs

GATED = ["dataset=demo", "metrics=[retrieval]", "name=x", "report.formats=[markdown]",
         "scoring.gates.floor={score: retrieval_score, of: mean, min: 0.99}"]  # fmt: skip


def edited(old: str, new: str) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode(), 1)

    return edit


def flipped(content: bytes) -> bytes:
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main(GATED) == 3
    run = (here / "outputs/x/latest").resolve()
    shutil.copytree(run, here / "outputs/good" / run.name)
    return here


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return (tmp_path / "here/outputs/x/latest").resolve()


def words_of(task: str, run: Path) -> list[str]:
    case = json.loads((run / "iteration-1/.progress.json").read_bytes())["entries"][0]["queryLogId"]
    return {
        "own": GATED,
        "compare": ["task=compare", f"base=outputs/good/{run.name}", f"candidate={run}"],
        "export": ["task=export", f"run={run}", "formats=[csv]"],
        "explain": ["task=explain", f"run={run}", f"case={case}"],
        "weights": ["task=weights", f"run={run}"],
        "rejudge": ["task=rejudge", f"run={run}", "rejudge.mode=stored"],
        "rescore": ["task=rescore", f"run={run}", "scoring.coverage_floor=0.5"],
        "against": [*GATED, "name=y", f"scoring.gates.drop={{score: retrieval_score, max_drop: 0.1, against: {run}}}"],
    }[task]


CHANGES = [
    ("iteration-1/records.parquet", flipped, ["own", "compare", "export", "explain", "weights", "against"]),
    ("iteration-1/scores.parquet", flipped, ["own", "export", "explain", "rescore"]),
    ("final/metrics.json", edited('"n_cases": ', '"n_cases": 1'), ["own", "compare", "export", "against"]),
    ("final/cost.json", edited('"calls": ', '"calls": 1'), ["own", "export"]),
    ("gates.json", edited('"passed": false', '"passed": true'), ["own", "export"]),
    ("iteration-1/metrics.json", edited('"n_cases": ', '"n_cases": 1'), ["own", "export"]),
    ("samples.parquet", flipped, ["compare", "export", "explain", "rescore", "rejudge"]),
    ("config.yaml", edited("coverage_floor: 0", "coverage_floor: 1"), ["explain", "weights", "rescore"]),
]


@pytest.mark.parametrize(("name", "change", "task"), [(name, change, task) for name, change, tasks in CHANGES for task in tasks])
def test_a_changed_file_is_named(run: Path, name: str, change: Callable[[bytes], bytes], task: str, capsys) -> None:
    (run / name).write_bytes(change((run / name).read_bytes()))
    words = words_of(task, run)
    capsys.readouterr()
    code = main(words)
    said = capsys.readouterr()
    assert code == 2, said.out + said.err
    assert "changed after it was sealed" in said.err
    assert name.rpartition("/")[2] in said.err


@pytest.mark.parametrize("task", ["history", "runs"])
def test_a_list_names_the_changed_run_and_shows_the_others(run: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = shutil.copytree(run, run.parent / "aaaaaaaaaaaa")
    for path in (bad / "final/metrics.json", bad / "iteration-1/metrics.json"):
        path.write_bytes(edited('"n_cases": ', '"n_cases": 1')(path.read_bytes()))
    said = output_of([f"task={task}", "name=x"], 0, capsys)
    assert "metrics.json: its bytes are not what they were" in " ".join((said.out + said.err).split())
    shown = "history.md" if task == "history" else "runs.md"
    assert run.name in (run.parent / ("history" if task == "history" else "") / shown).read_text()
    assert main([f"task={task}", "name=good"]) == 0


SHAPES = [
    ("final/metrics.json", "[" * 100_000), ("final/cost.json", '{"total": {"used": []}}'), ("iteration-1/metrics.json", "{}"),
    ("iteration-1/cost.json", '{"used": {}}'), ("gates.json", '{"gates": [1]}'),
]  # fmt: skip


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("name", "content"), SHAPES)
def test_a_document_of_another_shape_is_a_sentence(run: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder without a seal, as a stranger may send one."""
    (run / name).write_text(content)
    (run / "seal.json").unlink()
    for task in ("compare", "export", "explain", "weights", "rescore", "own"):
        capsys.readouterr()
        code = main(words_of(task, run))
        said = "".join(capsys.readouterr())
        assert code in (0, 2, 3), (task, said)
        assert "bug in ragpipe" not in said, (task, said)
        (run / name).write_text(content)
        (run / "seal.json").unlink(missing_ok=True)
    for task in ("history", "runs"):
        assert main([f"task={task}", "name=x"]) in (0, 2)
    assert "bug in ragpipe" not in "".join(capsys.readouterr())
    assert main(["task=verify", f"run={run}"]) == 3
