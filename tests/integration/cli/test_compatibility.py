"""What docs/reproducibility.md promises: a run folder and a store that were made once are read by every task, without a new call.

The fixture is made by `tests/support/make_compatibility_fixture.py`, which has the replies of its judge: what is expected here is worked
out from those by hand. It travels as an archive and is unpacked anew for every test.
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core import registry
from ragpipe.core.version import FORMAT
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.make_compatibility_fixture import DRIFT, NAME, WORDS, fixture_path, script

pytestmark = pytest.mark.slow  # whole runs, several per test

MISSING = (
    f"There is no fixture of format {FORMAT}: make it with `python -m tests.support.make_compatibility_fixture`. Keep the older ones that a "
    "release has, and do what docs/reproducibility.md says of a new number."
)
SECOND = ["judge=llm", "judge.model=openai/second-2026-01-01", "judge.endpoint=scripted", "judge.api_key_env=RAGPIPE_TEST_KEY"]  # fmt: skip
STARTS: dict[str, list[tuple[list[str], int]]] = {
    "build_dataset": [(["dataset=jsonl", "dataset.path=cases.jsonl", "build.dir=set", "build.n=2"], 0)],
    "calibrate": [(["run={run}"], 0)],
    "compare": [(["compare=methods", "run={run}", "compare.base_method=old"], 0), (["base={run}", "candidate={run}"], 0)],
    "drift": [(DRIFT[1:], 39)],
    "evaluate": [
        (WORDS, 0),
        ([*WORDS, "scoring.calibration={run}/calibration/calibration.json"], 0),
        ([*WORDS, "dataset.limit=2", "+scoring.gates.drop={{score: faithfulness, against: {id}, max_drop: 0.05, tier: quality}}"], 0),
    ],
    "explain": [(["run={run}", "case=q2", "method=old", "metric=faithfulness"], 0), (["run={run}", "case=q2"], 0)],
    "export": [(["run={run}"], 0), *((["formats=[site]", "dir=site"], 0) for _ in registry.own_names("export"))],
    "fetch": [(["task=publish", "run={run}", "publish=memory://b/runs"], 0), (["run=memory://b/runs/bank/{id}", "output_dir=other"], 0)],
    "history": [([f"name={NAME}"], 0)],
    "judge_audit": [(["run={run}", *SECOND, "judge_audit.only=[context_order]"], 30)],
    "label": [(["run={run}", "label.metric=faithfulness", "label.n=6"], 0), (["run={run}", "label.metric=faithfulness", "label.n=6"], 0)],
    "plan": [(WORDS, 0)],
    "publish": [(["run={run}", "publish=memory://b/again"], 0)],
    "rejudge": [(["run={run}", "rejudge.mode=stored"], 0), (["run={run}", *SECOND], 24)],
    "rescore": [(["run={run}", "scoring.thresholds.faithfulness=0.4"], 0)],
    "runs": [([f"name={NAME}"], 0)],
    "selftest": [(["run={run}", "judge=rules", "selftest.n=1"], 0)],
    "spot_check": [(["run={run}", *SECOND], 12)],
    "store": [
        (["to=stats.json"], 0),
        (["action=prune", "unused=true"], 0),
        (["action=prune", "run={id}", "dry_run=true"], 0),
        (["action=export", "to=all.jsonl"], 0),
        (["action=import", "from=all.jsonl", "store.path=elsewhere"], 0),
        (["action=import", "from=replies.jsonl", "store.path=elsewhere"], 0),
    ],
    "verify": [(["run={run}"], 0)],
    "weights": [(["run={run}"], 0)],
}
"""The words of each start of a task, and how many requests the judge's server gets: a second judge is asked two questions for each of
six cases and two iterations, for a spot check in one iteration; a check for drift asks 39 canaries; an audit asks in two iterations for
the claims of three answers and of three wrong ones, and verifies both and the three answers with their contexts in another order."""
READ_NOTHING = {"init", "schema", "synthesize"}
"""Tasks that read neither a run nor a store."""
ELSEWHERE = {"view"}
"""Tasks with a test of their own below."""


@dataclass
class Unpacked:
    """The fixture in a place of its own, which is where the process works, and the judge's server."""

    root: Path
    run: Path
    server: OpenAIServer

    def start(self, *words: str) -> int:
        values = {"run": str(self.run), "id": self.run.name}
        address = [f"judge.api_base={self.server.url}"] if "judge=llm" in words else []
        return main([word.format(**values) if "{id}" in word or "{run}" in word else word for word in words] + address)


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unpacked]:
    assert fixture_path(FORMAT).is_file(), MISSING
    with tarfile.open(fixture_path(FORMAT)) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    (manifest,) = Path("outputs", NAME).glob("*/manifest.json")
    with serving(script=script()) as server:
        yield Unpacked(tmp_path, manifest.parent, server)


def test_no_task_is_forgotten() -> None:
    assert {*registry.names("task")} <= {*STARTS, *READ_NOTHING, *ELSEWHERE}


@pytest.mark.thorough(tried=10)
@pytest.mark.parametrize("task", [task for task in STARTS if task in registry.names("task")])
def test_a_task_reads_what_was_made_once(unpacked: Unpacked, task: str) -> None:
    for words, requests in STARTS[task]:
        before = len(unpacked.server.log)
        assert unpacked.start(f"task={task}", *words) == 0, words
        assert len(unpacked.server.log) - before == requests, words


def test_figures_and_labels_are_those_of_the_replies(unpacked: Unpacked) -> None:
    """Supported claims of two: old 2, 1, 0 and new 2, 2, 1; in iteration 2 old has 2, 2, 0. The right document stands second for old,
    first for new: at cut-off 1 retrieval_score is .2 of an mrr of .5, and 1. Overall: three quarters and one."""
    first, second = (ragpipe.load(unpacked.run, iteration=number) for number in (1, 2))
    values = {(row.sample_id, row.method): row.faithfulness for row in first.records.itertuples()}
    assert values == {("q1", "old"): 1, ("q2", "old"): 0.5, ("q3", "old"): 0, ("q1", "new"): 1, ("q2", "new"): 1, ("q3", "new"): 0.5}
    overall = {(row.sample_id, row.method): row.overall_score for row in first.records.itertuples()}
    assert overall["q2", "old"] == pytest.approx(0.75 * 0.5 + 0.25 * 0.1)
    assert overall["q3", "new"] == pytest.approx(0.75 * 0.5 + 0.25 * 1)
    means = [run.metrics["overall"]["scores"]["faithfulness"]["mean"] for run in (first, second)]
    assert means == pytest.approx([4 / 6, 4.5 / 6])
    scores = first.final["overall"]["scores"]
    assert scores["faithfulness"]["mean"] == pytest.approx(8.5 / 12)
    assert scores["mrr"]["mean"] == pytest.approx((0.5 + 1) / 2)
    assert scores["overall_score"]["mean"] == pytest.approx(0.75 * 8.5 / 12 + 0.25 * (0.1 + 1) / 2)
    (gate,) = first.gates["gates"]
    assert (gate["name"], gate["verdict"]) == ("faithful", "passed"), "8.5 / 12 is at least .5"
    spent = first.cost["spent"]
    assert (spent["calls"], spent["tokens_in"] > 0, spent["unpriced"]) == (12, True, 0)
    assert spent["usd"] == pytest.approx((0.1 * spent["tokens_in"] + 0.4 * spent["tokens_out"]) / 1e6)
    # ann calls 2, 1 and 0 supported claims all, partly and none; bob calls 1 none as well: two of his labels differ from
    # hers.
    (path,) = unpacked.run.glob("labels/*/labels.parquet")
    rows = pq.read_table(path).to_pylist()
    by_person = {who: sorted(row["label"] for row in rows if row["annotator"] == who) for who in ("ann", "bob")}
    assert by_person == {"ann": [0, 0.5, 0.5, 1, 1, 1], "bob": [0, 0, 0, 1, 1, 1]}


def test_the_same_command_asks_nothing_and_has_the_same_keys(unpacked: Unpacked) -> None:
    run = unpacked.run
    before = questions(run)
    made = json.loads(Path("made.json").read_text())
    assert len(before) == made["requests"] == 6 * 2 * 2
    shutil.move(run, unpacked.root / "kept")
    assert unpacked.start(*WORDS) == 0
    assert unpacked.server.log == []
    (again,) = (path.parent for path in Path("outputs", NAME).glob("*/manifest.json") if not path.parent.is_symlink())
    assert questions(again) == before
    if made["ragpipe"] == ragpipe.__version__:
        assert again == run, "the id of a run is made of its settings, its data, and the versions of ragpipe and of the format"


def test_a_later_version_verifies_the_run_and_pays_for_nothing(unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("identity", "manifest"):
        monkeypatch.setattr(f"ragpipe.runs.{module}.__version__", "99.0.0")
    assert unpacked.start("task=verify", "run={run}") == 0
    assert unpacked.start(*WORDS) == 0
    assert unpacked.server.log == []
    latest = Path("outputs", NAME, "latest").resolve()
    assert latest.name != unpacked.run.name, "figures of two versions never stand in one folder"
    assert questions(latest) == questions(unpacked.run)


def questions(run: Path) -> dict[tuple[Any, ...], tuple[str, str]]:
    columns = ["iteration", "sample_id", "method", "metric", "step", "turn"]
    tables = [pq.read_table(path).to_pylist() for path in sorted(run.glob("iteration-*/judge_inputs.parquet"))]
    return {tuple(row[name] for name in columns): (row["key"], row["reply"]) for rows in tables for row in rows}


async def test_the_page_over_all_runs_lists_it(unpacked: Unpacked) -> None:
    pytest.importorskip("ragpipe.extras.view", reason="the extra view is not here")
    from tests.extras.view.viewed_runs import allowed, client_of

    async with client_of(unpacked.root / "outputs") as (client, server):
        content = await (await client.get("/index.json", headers=allowed(server))).json()
    assert [row["key"] for row in content["rows"]] == [f"{NAME}/{unpacked.run.name}"]
    assert content["error"] == ""
