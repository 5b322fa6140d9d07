"""A finished run read back is the same run; a changed file is named, and nothing of a stranger's is obeyed."""

import json
import shutil
import sys
from collections.abc import Callable
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
    identity = run_identity(config.identity(), list(config.metrics.values()), data="d" * 64, judge=config.judge)
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
@pytest.mark.parametrize(("config", "said"), [
    ("a: !!python/object/apply:os.system [touch stolen]\n", "config.yaml"),
    ("judge: {model: sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n", ""),
    ("scoring: {weights: 3}\nmetrics: {retrieval: 3}\n", "config.yaml"),
    ("a: ${oc.env:HOME}\n", ""), ("a: &a [*a]\n", ""), ("[1, 2]\n", ""),
])  # fmt: skip
def test_a_broken_config_is_refused_in_words(config: str, said: str, here: Path, capsys) -> None:
    folder, _ = written(here / "runs", "dataset=demo", "metrics=[retrieval]")
    folder.config.write_text(config)
    shown = output_of(["task=rescore", f"run={folder.root}"], 2, capsys).err
    assert said in shown
    assert "Traceback" not in shown
    assert "sk-proj-aaaa" not in shown
    assert not (here / "stolen").exists()


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("change", "said"), [
    ({"format": None}, "manifest"), ({"identity": 3}, "identity"), ({"data": {"name": "x"}}, "data"), ({"iterations": ["1"]}, "iterations"),
    ({"run_id": "../../outside"}, "run_id"), ({"run_id": ["x"]}, "run_id"),
])  # fmt: skip
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
    said = output_of(words_of(task, run), 2, capsys).err
    assert "changed after it was sealed" in said
    assert name.rpartition("/")[2] in said


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
