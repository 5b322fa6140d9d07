"""A finished run read back: the same run, whatever made it, and nothing of a stranger's choosing but data."""

import json
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from ragpipe.cli.command_line import compose, main
from ragpipe.core.resources import conf_dir
from ragpipe.runs.finished_run import FinishedRun, open_run
from ragpipe.runs.identity import run_id, run_identity
from ragpipe.runs.manifest import config_text, copy_prompts, new_manifest, write_manifest
from ragpipe.score import settings
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs

PLAIN = {
    "task": "verify", "output_dir": "outputs", "transport": {"kind": "live"}, "runner": {"kind": "local"}, "store": {"path": None},
    "plugins": [],
}  # fmt: skip
EXPERIMENTS = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))


def opened(run: Path, **more: object) -> FinishedRun:
    return open_run({**PLAIN, "run": str(run), **more}, changeable=(), task="verify")


def written(root: Path, *words: str) -> tuple[RunFolder, dict]:
    config = compose(words)
    judge = config.judge.identity_of_judge()
    identity = run_identity(config.identity(), list(config.metrics.values()), data="d" * 64, judge=judge)
    folder = RunFolder(root / run_id(identity)).create()
    folder.config.write_text(config_text(config), encoding="utf-8")
    copy_prompts(config, folder.prompts)
    data = {"name": "x", "digest": "d" * 64, "tables": "t" * 64}
    write_manifest(folder, new_manifest(config, identity, run_id=run_id(identity), data=data))
    return folder, identity


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("words", [
    *([f"+experiment={name}", *([] if name == "quickstart" else ["dataset.path=data.jsonl"])] for name in EXPERIMENTS),
    ["dataset=demo", "metrics=[faithfulness]", "judge=llm", "judge.model=openai/m-2026-01-01", "judge.api_base=http://127.0.0.1:1/v1"],
    ["dataset=demo", "metrics=[faithfulness]", "metrics.faithfulness.steps=combined", "scoring.gates.g={score: faithfulness, min: 0.5}"],
    ["dataset=demo", "metrics=[retrieval,recency_conflict]", "metrics.retrieval.k=[2]", "scoring=tiers", "seed=3", "dataset.sample={n: 3}"],
])  # fmt: skip
def test_the_identity_of_a_run_comes_back(words: list[str], tmp_path: Path) -> None:
    folder, identity = written(tmp_path, *words)
    found = opened(folder.root)
    assert found.identity() == identity
    assert found.run_id == run_id(found.identity()) == folder.root.name


def test_a_shipped_default_of_later_is_no_part_of_a_run_made_before(here: Path, monkeypatch) -> None:
    """As by a later version: one more weight, failure mode, composite and axis of the low scores."""
    assert main(["dataset=demo", "dataset.limit=2", "metrics=[retrieval]", "judge=rules", "name=x"]) == 0
    run = (here / "outputs/x/latest").resolve()
    later = deepcopy(settings.shipped())
    later["weights"]["hit@5"] = 0.5
    later["thresholds"]["recall@5"] = 0.9
    later["composites"]["later"] = {"weights": {"hit@5": 0.5, "mrr": 0.5}}
    later["failure_modes"]["later"] = {"score": "hit@5", "below": 1}
    later["low_scores"]["by"] = ["method"]
    monkeypatch.setattr(settings, "shipped", lambda: later)
    assert opened(run).run_id == run_id(opened(run).identity())
    assert (main(["task=verify", f"run={run}"]), main(["task=rescore", f"run={run}"])) == (0, 0)
    assert [path.name for path in run.parent.glob("????????????")] == [run.name]
    assert "later" in ScoringSettings().active_composites(), "scoring that is filled in now has them"


def test_nothing_of_a_folder_is_imported_or_obeyed(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (here / "evil_metric.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(here)
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[retrieval]")
    good = folder.config.read_text()
    text = good.replace("plugins: []", "plugins: [evil_metric]").replace("output_dir: outputs", "output_dir: stolen")
    folder.config.write_text(text.replace("path: null", "path: stolen/.store"))
    found = opened(folder.root)
    assert (found.config.plugins, found.config.output_dir, found.config.store.path) == ([], "outputs", None)
    folder.config.write_text(text.replace("RetrievalMetric", "evil_metric.Metric"))
    assert "below a package of `plugins`" in output_of(["task=rescore", f"run={folder.root}"], 2, capsys).err
    assert "evil_metric" not in sys.modules


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("a: !!python/object/apply:os.system [touch stolen]\n", "config.yaml"),
        ("judge: {model: sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n", ""),
        ("scoring: {weights: 3}\nmetrics: {retrieval: 3}\n", "config.yaml"),
        ("a: ${oc.env:HOME}\n", ""), ("a: &a [*a]\n", ""), ("[1, 2]\n", ""),
    ],
)  # fmt: skip
def test_a_broken_config_is_refused_in_words(config: str, said: str, here: Path, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[retrieval]")
    folder.config.write_text(config)
    shown = output_of(["task=rescore", f"run={folder.root}"], 2, capsys).err
    assert said in shown
    assert "Traceback" not in shown
    assert "sk-proj-aaaa" not in shown
    assert not (here / "stolen").exists()


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": None}, "manifest"), ({"identity": 3}, "identity"), ({"data": {"name": "x"}}, "data"), ({"iterations": ["1"]}, "iterations"),
        ({"run_id": "../../outside"}, "run_id"), ({"run_id": ["x"]}, "run_id"),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_refused_in_words(change: dict, said: str, here, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[retrieval]")
    folder.manifest.write_text(json.dumps(json.loads(folder.manifest.read_text()) | change))
    shown = output_of(["task=verify", f"run={folder.root}"], 2, capsys).err
    assert (said in shown, "Traceback" in shown) == (True, False)


@pytest.mark.parametrize("name", ["config.yaml", "prompts/chunk_faithfulness/first.v3.jinja"])
def test_a_linked_file_is_not_followed(name: str, here, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[chunk_faithfulness]")
    (folder.root / name).rename(here / "private")
    (folder.root / name).symlink_to(here / "private")
    assert "a symbolic link" in output_of(["task=rescore", f"run={folder.root}"], 2, capsys).err


def test_a_run_that_lost_its_cases_is_refused_in_words(here: Path, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[retrieval]")
    text = output_of(["task=rescore", f"run={folder.root}"], 2, capsys).err
    assert f"{folder.samples}: file\n    found:    no such file" in text
    assert "start the run's own command again" in text
