"""`task=rescore` on a copied run folder: everything that scoring decides, without a question to anybody."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from tests.support.place import output_of
from tests.support.rejudged import CASES, content, travelled

pytestmark = pytest.mark.slow  # whole runs


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
    assert (bill["spent"]["calls"], bill["used"]) == (0, calls(run)["used"])
    first = content(made)
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.chunk_faithfulness=0"]) == 0
    assert content(made) == first


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("words", "gone", "new"),
    [
        (["metrics=[retrieval,faithfulness]", "metrics.retrieval.k=[2]"], {"chunk_faithfulness", "recall@5"}, {"recall@2"}),
        (["scoring=tiers"], set(), set()), (["~metrics.chunk_faithfulness"], {"chunk_faithfulness"}, set()),
    ],
)  # fmt: skip
def test_what_asks_no_other_question(run: Path, words: list[str], gone: set[str], new: set[str]) -> None:
    assert main(["task=rescore", f"run={run}", *words]) == (3 if "scoring=tiers" in words else 0)  # its gates block
    (made,) = siblings(run)
    before, after = scores(run), scores(made)
    assert gone <= before.keys() - after.keys()
    assert new <= after.keys() - before.keys()
    assert after["faithfulness"]["mean"] == before["faithfulness"]["mean"]
    assert calls(made)["spent"]["calls"] == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("words", "said"), [
    (["metrics.faithfulness.reasoning=true"], "/default / faithfulness / "), (["~metrics.faithfulnes"], "no metric of this run"),
    (["judge=llm", "judge.model=openai/other-2026-01-01"], "a change of what is frozen"),
    (["dataset.limit=1"], "a change of what is frozen"), (["iterations=2"], "a change of what is frozen"),
])  # fmt: skip
def test_what_would_have_to_ask_is_refused_and_leaves_nothing(run: Path, capsys, words: list[str], said: str) -> None:
    assert said in output_of(["task=rescore", f"run={run}", *words], 2, capsys).err
    assert siblings(run) == []


def test_without_stored_replies_scoring_changes_and_parameters_say_why_not(here: Path, capsys) -> None:
    run = travelled(here, "keep_messages=false")
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.1"]) == 0
    assert len(siblings(run)) == 1
    assert "keep_messages=false" in output_of(["task=rescore", f"run={run}", "metrics.retrieval.k=[2]"], 2, capsys).err
    assert len(siblings(run)) == 1
    row = pq.read_table(run / "iteration-1" / "judge_inputs.parquet").to_pylist()[0]
    assert (row["messages"], row["reply"]) == (None, None)
