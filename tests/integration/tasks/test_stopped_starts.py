"""Starts that end between two stages, as a kill would: the next start leaves no stale figure, and the run verifies."""

import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli import main
from ragpipe.engine import evaluation
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow  # whole runs, several per test

WORDS = ("dataset=demo", "dataset.limit=1", "metrics=[retrieval]", "name=x", "report.formats=[markdown]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of one finished run, its call store among them."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert main([*WORDS]) == 0
    return folder / "outputs"


@pytest.fixture
def run(finished: Path, here: Path) -> Path:
    shutil.copytree(finished, here / "outputs", symlinks=True)
    return (here / "outputs/x/latest").resolve()


def killed(monkeypatch: pytest.MonkeyPatch, stage: str, *words: str, calls: int = 0) -> None:
    """Start with these words; the process ends when `stage` begins for the time after `calls`."""
    whole, begun = getattr(evaluation, stage), [0]

    def ends(*args: Any, **more: Any) -> Any:
        begun[0] += 1
        if begun[0] > calls:
            for coroutine in filter(inspect.iscoroutine, args):
                coroutine.close()
            raise SystemExit(137)
        return whole(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(evaluation, stage, ends)
        assert main([*WORDS, *words]) == 137


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["task=verify", f"run={run}"])
    return capsys.readouterr().out.splitlines()[-1]


def states(run: Path) -> dict[str, str]:
    return json.loads((run / "manifest.json").read_text())["iterations"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("stage", ["seal_run", "score_iteration", "combine_iterations", "write_reports"])
def test_the_first_start_and_one_more_iteration(
    stage: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(monkeypatch, stage, "iterations=2", calls=int(stage == "score_iteration"))
    assert main([*WORDS, "iterations=2"]) == 0
    run = (here / "outputs/x/latest").resolve()
    assert verified(run, capsys).startswith("verify: identical")
    killed(monkeypatch, stage, "iterations=3")
    assert states(run) == {"1": "complete", "2": "complete", "3": "judged"}
    assert main([*WORDS, "iterations=3"]) == 0
    assert states(run) == {"1": "complete", "2": "complete", "3": "complete"}
    assert verified(run, capsys).startswith("verify: identical")


def test_judged_again_is_scored_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of an earlier judging stand beside new tables when the start that judged again was killed."""
    metrics = run / "iteration-1/metrics.json"
    good = metrics.read_bytes()
    killed(monkeypatch, "score_iteration", "retry_errors=true")
    assert states(run) == {"1": "judged"}
    metrics.write_bytes(good.replace(b'"n_cases": 3', b'"n_cases": 2'))
    assert main([*WORDS]) == 0
    assert metrics.read_bytes() == good
    assert states(run) == {"1": "complete"}


def test_an_iteration_that_only_began_is_no_part_of_a_finished_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(monkeypatch, "run_async", "iterations=2")
    assert (run / "iteration-2").is_dir()
    assert main(["task=rescore", f"run={run}", "scoring.weights.retrieval_score=0.5"]) == 0
    made = {path.name for path in run.parent.glob("[0-9a-f]*/iteration-*") if path.parent != run}
    assert made == {"iteration-1"}


def test_a_lost_iteration_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "iterations=2"]) == 0
    shutil.rmtree(run / "iteration-2")
    assert main(["task=rescore", f"run={run}", "metrics.retrieval.k=[2]"]) == 2
    assert "iteration-2/judge_inputs.parquet" in "".join(capsys.readouterr().err.split())


def test_fewer_iterations_than_the_run_has_show_the_newest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "iterations=2"]) == 0
    report = (run / "report.md").read_bytes()
    assert main([*WORDS]) == 0
    assert (run / "report.md").read_bytes() == report
    assert verified(run, capsys).startswith("verify: identical")


def test_other_folders_in_a_run_stop_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run / "iteration-1", run / "iteration-1-old")
    assert main([*WORDS]) == 0
    assert verified(run, capsys).startswith("verify: identical")


def test_tables_are_sealed_row_by_row_wherever_the_run_stands(here: Path) -> None:
    assert main([*WORDS, "output_dir=export"]) == 0
    tables = json.loads((here / "export/x/latest/seal.json").read_text())["tables"]
    assert set(tables) == {"samples.parquet", "outputs.parquet", "iteration-1/judge_inputs.parquet"}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


LOST = [
    pytest.param("scores.parquet", Path.unlink, id="scores gone"),
    pytest.param("judge_inputs.parquet", cut, id="replies cut"),
    pytest.param("scores.parquet", cut, id="scores cut"),
    pytest.param("judge_inputs.parquet", Path.unlink, id="replies gone"),
]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("name", "damage"), first_rows(LOST))
def test_a_lost_table_of_a_finished_run_is_made_again(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], object]
) -> None:
    table = run / "iteration-1" / name
    whole = table.read_bytes()
    damage(table)
    capsys.readouterr()
    assert main([*WORDS]) == 0
    assert f"iteration 1: {name} missing or damaged" in capsys.readouterr().err
    assert table.read_bytes() == whole
    assert states(run) == {"1": "complete"}
    assert "identical" in verified(run, capsys)
    assert main([*WORDS]) == 0
    assert "missing or damaged" not in capsys.readouterr().err


def test_a_changed_seal_is_not_replaced_without_a_word(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seal = run / "seal.json"
    seal.write_text(seal.read_text().replace('"files"', '"filed"', 1))
    capsys.readouterr()
    assert main([*WORDS]) == 0
    text = " ".join("".join(capsys.readouterr()).split())
    assert "seal.json: damaged (its own digest does not fit)" in text
    assert "name=..." in text
    assert verified(run, capsys).startswith("verify: identical")


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("name", first_rows(["iteration-1/records.parquet", "iteration-1/metrics.json"]))
def test_a_cut_file_is_named_with_what_makes_it_again(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole[:20])
    capsys.readouterr()
    assert main([*WORDS]) in (0, 2)
    text = " ".join("".join(capsys.readouterr()).split())
    if "changed after it was sealed" in text:
        assert "start the run's own command again" in text
        (run / name).unlink()
        assert main([*WORDS]) == 0
    assert (run / name).read_bytes() == whole
    assert verified(run, capsys).startswith("verify: identical")
