"""Whole sweeps against the local server: what they ask (by its log), what they leave, and what survives a kill."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import prompts_dir
from ragpipe.store import folder_lock
from ragpipe.testing.openai_server import serving
from tests.support.harness import Server, arguments, asked_again, committed, finish, kill_after, write_cases

pytestmark = pytest.mark.slow
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
SUBMITIT = ("hydra/launcher=submitit_local",)
has_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="needs the extra submitit")
WEIGHTS = "scoring.weights.faithfulness=0.2,0.5"


def words(here: Path, url: str, *more: str, cases: int = 3) -> list[str]:
    data = here / "data.jsonl"
    if not data.exists():
        write_cases(data, cases)
    return ["-m", *arguments(data, here / "out", url, *more, metrics="faithfulness")]


def sweeps(here: Path) -> list[Path]:
    return sorted((here / "out" / "torture" / "sweeps").iterdir())


def runs(here: Path) -> list[Path]:
    return sorted(p.parent for p in (here / "out" / "torture").glob("*/manifest.json") if not p.parent.is_symlink())


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (p for p in folder.rglob("*") if p.is_file() and ".store" not in p.parts)
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def table(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "comparison.parquet").to_pylist()


def test_weights_after_a_finished_run_ask_nothing_and_make_one_table(here: Path, capfd, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    with serving() as server:
        assert main(words(here, server.url)[1:]) == 0
        asked = len(server.log)
        assert main(words(here, server.url, WEIGHTS)) == 0
        assert len(server.log) == asked
        (folder,) = sweeps(here)
        assert len(runs(here)) == 2, "0.2 is the shipped weight: that job is the finished run"
        rows = table(folder)
        found = [row for row in rows if row["score"] == "faithfulness"]
        assert [row["label"] for row in found] == [f"scoring.weights.faithfulness={w}" for w in ("0.2", "0.5")]
        assert [(row["state"], row["exit_code"]) for row in found] == [("complete", 0)] * 2
        assert [row["calls_spent"] for row in found] == [asked, 0]
        assert {row["calls_used"] for row in found} == {asked}
        for row in found:
            own = json.loads((folder / "../.." / row["run_id"] / "final/metrics.json").read_text())
            assert row["mean"] == own["overall"]["scores"]["faithfulness"]["mean"]
        assert f"comparison: {here}/out/torture/sweeps/{folder.name}/comparison.html" in capfd.readouterr().out
        before = state(here / "out")
        assert main(words(here, server.url, WEIGHTS)) == 0
        assert state(here / "out") == before, "a finished sweep, started again, rewrites nothing"
        assert len(server.log) == asked


def test_a_folder_per_combination_and_equal_questions_asked_once(here: Path) -> None:
    """Two judges, two versions of one step: the step before it is asked once a judge."""
    mine = here / "prompts/faithfulness"
    mine.mkdir(parents=True)
    text = (prompts_dir() / "faithfulness/verify.v1.jinja").read_text()
    (mine / "verify.v2.jinja").write_text(text.replace("[[user]]", "[[user]]\nBe strict.", 1))
    varied = ("prompt_dirs=[prompts]", "judge.temperature=0.0,0.5", "metrics.faithfulness.prompts.verify=v1,v2")
    with serving() as server:
        assert main(words(here, server.url, *varied)) == 0
        bodies = [line["body"] for line in server.log]
    assert len(bodies) == len(set(bodies)) == 3 * 2 * (1 + 2), "3 cases, 2 judges: extract, then verify by v1 and by v2"
    assert len(runs(here)) == 4
    (folder,) = sweeps(here)
    found = [row for row in table(folder) if row["score"] == "faithfulness"]
    assert [row["calls_used"] for row in found] == [6] * 4
    assert [row["calls_spent"] for row in found] == [6, 3, 6, 3]


def test_jobs_that_failed_stand_in_the_table_with_their_reason(here: Path) -> None:
    models = "judge.model=openai/test-model-2026-01-01,openai/gone-model-2026-01-01,gone"
    with serving(faults=["401:match=gone-model"]) as server:
        assert main(words(here, server.url, models)) == 5, "the worst of 0, 5 and 2"
    (folder,) = sweeps(here)
    rows = table(folder)
    good, gone, wrong = rows[0], rows[-2], rows[-1]
    assert (good["state"], good["exit_code"], good["reason"]) == ("complete", 0, None)
    assert (gone["state"], gone["exit_code"], gone["score"]) == ("provider unusable", 5, None)
    assert gone["run_id"] in {run.name for run in runs(here)}, "it can be resumed there"
    assert "401" in gone["reason"]
    assert (wrong["state"], wrong["exit_code"], wrong["score"], wrong["run_id"]) == ("refused", 2, None, None)
    assert "judge.model: 'gone'" in wrong["reason"]


def test_a_killed_sweep_goes_on_where_it_was(here: Path) -> None:
    """kill -9 in the first job, then in the second: what the store holds is not asked for again."""
    with Server(here / "server.jsonl", ["--latency-ms", "20"]) as server:
        again = words(here, server.url, "judge.temperature=0.0,0.5", "judge.allow_unpinned=true", cases=12)
        moments = [(kill_after(again, here, server, calls), committed(here / "out")) for calls in (10, 20)]
        kills = [(moment, done) for moment, done in moments if moment is not None]
        assert kills
        code, text = finish(again, here)
        assert code == 0, text
        assert asked_again(server.requests(), kills) == []
        asked = len(server.requests())
        assert (finish(again, here)[0], len(server.requests())) == (0, asked)
    (folder,) = sweeps(here)
    assert ({row["state"] for row in table(folder)}, len(runs(here))) == ({"complete"}, 2)


@pytest.mark.thorough
def test_only_a_job_of_a_sweep_waits_for_a_folder_in_use(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def end_of_the_other(text: str, *values: object) -> None:
        said.append(text % values)
        held.release()

    monkeypatch.setattr(folder_lock, "ANNOUNCE_S", 0.0)
    monkeypatch.setattr(folder_lock.log, "warning", end_of_the_other)
    with serving() as server:
        again = [*words(here, server.url), "retry_errors=true"]  # else a finished run is not opened
        assert main(again[1:]) == 0
        (run,) = runs(here)
        with folder_lock.FolderLock(run):
            assert main(again[1:]) == 6
            assert main([*again, "lock_wait_s=0"]) == 6
        for begin in (again, [*again[1:], "lock_wait_s=30"]):
            held = folder_lock.FolderLock(run).acquire()
            assert main(begin) == 0
    assert [text.split(" is in use by process")[0] for text in said] == [str(run)] * 2


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("launcher", [pytest.param(JOBLIB, id="joblib"), pytest.param(SUBMITIT, id="submitit", marks=has_submitit)])
def test_two_jobs_at_the_same_time_ask_equal_questions_once(here: Path, launcher: tuple[str, ...]) -> None:
    with Server(here / "server.jsonl", ["--latency-ms", "30"]) as server:
        code, text = finish(words(here, server.url, *launcher, "scoring.weights.faithfulness=0.2,0.3,0.5", cases=10), here)
        assert code == 0, text
        assert set(server.bodies().values()) == {1}
    (folder,) = sweeps(here)
    rows = [row for row in table(folder) if row["score"] == "faithfulness"]
    assert ([row["job"] for row in rows], {row["standing"] for row in rows}) == ([0, 1, 2], {"equal"})
    assert sum(row["calls_spent"] for row in rows) == rows[0]["calls_used"], "what one paid the others read"


def test_runs_are_compared_from_python(here: Path) -> None:
    words = ("dataset=demo", "dataset.limit=9", "metrics=[faithfulness]", "report.formats=[]")
    for name, more in (("first", ()), ("second", ("judge.threshold=0.9",))):
        assert main([*words, f"name={name}", *more]) == 0
    result = ragpipe.compare("outputs/first", "outputs/second", {"compare": {"accept": ["judge"]}}, quiet=True)
    assert result["comparisons"][0]["differs"][0]["accepted"]
    with pytest.raises(ConfigError, match=r"judge\.threshold"):
        ragpipe.compare("outputs/first", ["outputs/second"], quiet=True)
