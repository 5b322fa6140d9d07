"""`task=rescore` on a copied run folder: everything that scoring decides, without a question to anybody."""

import json
import shlex
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from tests.support.rejudged import CASES, content, travelled
from tests.support.rows import first_rows


@pytest.fixture(scope="module")
def finished(travelled_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rescored")
    shutil.copytree(travelled_run, folder / "run")
    (folder / "latest").symlink_to("run")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The judge's address is dead and its key is not set: asking would fail."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.delenv("RAGPIPE_TEST_KEY", raising=False)
    return Path(shutil.copytree(finished, tmp_path / "runs", symlinks=True)) / "run"


def siblings(run: Path) -> list[Path]:
    found = (path for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink() and path != run)
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def figures(folder: Path) -> dict:
    return json.loads((folder / "iteration-1" / "metrics.json").read_text())


def scores(folder: Path) -> dict:
    return figures(folder)["overall"]["scores"]


def calls(folder: Path) -> dict:
    return json.loads((folder / "iteration-1" / "cost.json").read_text())


@pytest.mark.slow
def test_a_threshold_flips_verdicts_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=rescore", f"run={run.parent / 'latest'}", "scoring.thresholds.chunk_faithfulness=0"]) == 0
    (made,) = siblings(run)
    before, after = scores(run)["chunk_faithfulness"], scores(made)["chunk_faithfulness"]
    assert (after["mean"], after["pass_rate"]) == (before["mean"], 1.0)
    assert figures(made)["declared"]["chunk_faithfulness"]["threshold"] == 0
    assert before["pass_rate"] < 1
    flips = round(CASES * (1 - before["pass_rate"]))
    assert f"+{flips} -0" in capsys.readouterr().out
    assert (run.parent / "latest").readlink() == Path("run"), "only an evaluation becomes the latest"
    for name in ("samples.parquet", "outputs.parquet", "iteration-1/scores.parquet", "iteration-1/judge_inputs.parquet"):
        assert (made / name).stat().st_ino == (run / name).stat().st_ino, "linked, not copied"
    bill = calls(made)
    assert bill["spent"]["calls"] == 0
    assert bill["used"] == calls(run)["used"]
    first = content(made)
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.chunk_faithfulness=0"]) == 0
    assert content(made) == first


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "gone", "new"),
    first_rows([
        (["metrics=[retrieval,faithfulness]", "metrics.retrieval.k=[2]"], {"chunk_faithfulness", "recall@5"}, {"recall@2"}),
        (["scoring=tiers"], set(), set()),
        (["metrics.retrieval.k=[2]"], {"recall@5"}, {"recall@2"}),
        (["~metrics.chunk_faithfulness"], {"chunk_faithfulness"}, set()),
    ], keep=2),
)  # fmt: skip
def test_what_asks_no_other_question(run: Path, words: list[str], gone: set[str], new: set[str]) -> None:
    assert main(["task=rescore", f"run={run}", *words]) == (3 if "scoring=tiers" in words else 0)  # its gates block
    (made,) = siblings(run)
    before, after = scores(run), scores(made)
    assert gone <= before.keys() - after.keys()
    assert new <= after.keys() - before.keys()
    assert after["faithfulness"]["mean"] == before["faithfulness"]["mean"]
    assert calls(made)["spent"]["calls"] == 0


@pytest.mark.slow
def test_metrics_are_chosen_as_the_run_has_them(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("batch: 20", "batch: 19"))
    (run / "seal.json").unlink()
    assert main(["task=rescore", f"run={run}", "metrics=[faithfulness]"]) == 0
    assert "batch: 19" in (siblings(run)[0] / "config.yaml").read_text()


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    first_rows(
        [
            (["metrics.faithfulness.reasoning=true"], "q0/default / faithfulness / "),
            (["judge.temperature=0.5"], "a change of what is frozen"),
            (["~metrics.faithfulnes"], "no metric of this run"),
            (["scoring.thresholds.faithfulnes=1"], "faithfulness"),
            (["judge=llm", "judge.model=openai/other-2026-01-01"], "a change of what is frozen"),
            (["dataset.limit=1"], "a change of what is frozen"),
            (["system=http", "system.url=http://127.0.0.1:9/"], "a change of what is frozen"),
            (["iterations=2"], "a change of what is frozen"),
        ],
        keep=4,
    ),
)
def test_what_would_have_to_ask_is_refused_and_leaves_nothing(run: Path, capsys, words: list[str], said: str) -> None:
    assert main(["task=rescore", f"run={run}", *words]) == 2
    assert said in capsys.readouterr().err
    assert siblings(run) == []


@pytest.mark.thorough
@pytest.mark.slow
def test_a_sweep_makes_a_folder_a_job(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", "task=rescore", f"run={run}", "scoring.weights.faithfulness=0.25,0.3,0.5"]
    assert main(words) == 0
    made = [path for path in siblings(run) if path.name != "sweeps"]
    assert len(made) == 3
    assert [calls(path)["spent"]["calls"] for path in made] == [0, 0, 0]
    assert len(list((run.parent / "sweeps").glob("*/comparison.parquet"))) == 1
    weights = {json.loads((p / "final" / "metrics.json").read_text())["scoring"]["weights"]["faithfulness"] for p in made}
    assert weights == {0.25, 0.3, 0.5}


@pytest.mark.slow
def test_without_stored_replies_scoring_changes_and_parameters_say_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = travelled(tmp_path, "keep_messages=false")
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 0
    assert len(siblings(run)) == 1
    assert main(["task=rescore", f"run={run}", "metrics.retrieval.k=[2]"]) == 2
    assert "keep_messages=false" in capsys.readouterr().err
    assert len(siblings(run)) == 1
    row = pq.read_table(run / "iteration-1" / "judge_inputs.parquet").to_pylist()[0]
    assert (row["messages"], row["reply"]) == (None, None)


@pytest.mark.slow
def test_the_next_command_can_be_pasted_whatever_the_folder_is_called(finished: Path, tmp_path, capsys) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "far away" / "lauf ü"))
    assert (
        main(
            [
                "task=rescore", f"run={folder}", "scoring.thresholds.faithfulness=0.9", "report.formats=[markdown,terminal]",
                "report.detail=full",
            ]
        )
        == 0
    )  # fmt: skip
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next:"))
    program, path = shlex.split(command.removeprefix("next:"))
    assert (program, Path(path).is_file()) == ("less", True)
