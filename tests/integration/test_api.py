"""The public API: run, plan, rescore, rejudge, verify, load; also where an event loop is running already."""

import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

import ragpipe
from ragpipe.core.errors import ConfigError, DataError
from tests.support.finished_runs import FinishedRuns
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
WORDS = ["dataset=demo", "dataset.limit=4", "metrics=[faithfulness,retrieval]", "metrics.retrieval.k=[5]", "name=api"]


def test_run_gives_what_load_reads_later(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ragpipe.run(WORDS)
    assert found.path == (here / "outputs/api/latest").resolve()
    again = ragpipe.load("outputs/api/latest")
    assert again.path == found.path
    n = len(found.records)
    assert n == len(set(zip(found.records["sample_id"], found.records["method"], strict=True)))
    assert found.records["sample_id"].nunique() == 4
    assert set(found.scores["status"]) <= {"ok", "skipped", "error"}
    assert len(found.scores) == n * 9  # faithfulness, six measures at 5, mrr, retrieval_score
    assert set(found.judge_inputs["metric"]) == {"faithfulness"}
    assert set(found.judge_inputs["step"]) == {"extract", "verify"}
    score = found.metrics["overall"]["scores"]["faithfulness"]
    assert score["mean"] == pytest.approx(found.records["faithfulness"].mean())
    assert score["n_ok"] == found.records["faithfulness"].notna().sum()
    assert found.cost["used"]["uses"] == len(found.judge_inputs)
    assert found.manifest["iterations"] == {"1": "complete"}
    assert capsys.readouterr().out.splitlines()[-1] == f"report: outputs/api/{found.path.name}/report.html"


def test_iterations_are_folders(here: Path) -> None:
    found = ragpipe.run(["dataset=demo", "dataset.limit=2", "metrics=[faithfulness]", "name=api", "iterations=2"])
    first = ragpipe.load(found.path / "iteration-1")
    assert (found.iteration, first.iteration) == (2, 1), "the newest, unless one is named"
    assert (set(first.records["iteration"]), set(found.records["iteration"])) == ({1}, {2})
    assert list(first.records["faithfulness"].dropna()) == list(found.records["faithfulness"].dropna())


def test_what_is_wrong_is_raised(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.faithfulness\.bach"):
        ragpipe.run([*WORDS, "+metrics.faithfulness.bach=5"])
    with pytest.raises(ConfigError, match="task=plan"):
        ragpipe.run([*WORDS, "task=plan"])
    with pytest.raises(DataError, match="gone"):
        ragpipe.run(["dataset=jsonl", "dataset.path=gone.jsonl", "metrics=[faithfulness]"])
    with pytest.raises(DataError, match="cannot read this run"):
        ragpipe.load("outputs/none")
    assert not (here / "outputs").exists()


def test_a_script_of_five_lines(here: Path, finished_runs: FinishedRuns) -> None:
    """The README's example, in a fresh interpreter: pandas and the rest come in by themselves."""
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    script = page.split("```python\n")[1].split("```")[0]
    assert len(script.strip().split("\n")) <= 5
    finished_runs.of("+experiment=quickstart_llm").copy_outputs(here)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\d+ +[a-z]+-\d+ +(baseline|rerank)", done.stdout, re.M)) == 3, done.stdout


CONFIG = {"dataset": "demo", "dataset.limit": 4, "metrics": ["faithfulness", "retrieval"], "metrics.retrieval": {"k": [5]}, "name": "api"}


@pytest.mark.thorough
def test_quiet_prints_nothing_and_still_raises(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ragpipe.run(CONFIG, quiet=True)
    ragpipe.plan(CONFIG, quiet=True)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ConfigError):
        ragpipe.run({**CONFIG, "iterations": 0}, quiet=True)
    ragpipe.run(CONFIG)
    assert "complete since" in capfd.readouterr().out


def test_a_plan_asks_nothing_and_writes_nothing(here: Path) -> None:
    made = ragpipe.plan(CONFIG, quiet=True)
    assert (made.iterations, [metric.name for metric in made.metrics]) == (1, ["faithfulness", "retrieval"])
    assert made.calls == sum(step.calls for step in made.steps) > 0
    assert not (here / "outputs").exists()
    run = ragpipe.run(CONFIG, quiet=True)
    assert made.cases == len(run.records)


def test_a_run_is_scored_again_judged_again_and_verified(here: Path) -> None:
    run = ragpipe.run(CONFIG, quiet=True)
    stricter = ragpipe.rescore(run, {"scoring": {"thresholds": {"faithfulness": 1.0}}}, quiet=True)
    assert stricter.path != run.path
    assert list(stricter.records["faithfulness"]) == list(run.records["faithfulness"])
    assert stricter.metrics["declared"]["faithfulness"]["threshold"] == 1.0
    other = ragpipe.rejudge(run.path, {"judge.threshold": 0.9}, quiet=True)
    assert other.manifest["source_run"] == run.manifest["run_id"]
    assert ragpipe.verify(run, quiet=True)
    with open(run.path / "report.md", "a") as report:
        report.write("edited\n")
    verification = ragpipe.verify(run, quiet=True)
    assert not verification
    assert "report.md" in str(verification.differences[0])
    with pytest.raises(ConfigError, match="dataset"):
        ragpipe.rescore(run, {"dataset.limit": 2}, quiet=True)


def test_a_run_shows_itself_in_a_notebook(here: Path) -> None:
    gate = {"scoring": {"gates": {"true": {"score": "faithfulness", "min": 0.0, "tier": "quality"}}}}
    run = ragpipe.run([CONFIG, gate], quiet=True)
    page = run._repr_html_()
    assert f"<p><b>{escape(run.verdict['sentence'])}</b></p>" in page
    methods = list(run.metrics["by"]["method"])
    assert page.startswith('<div class="ragpipe">')
    assert "<script" not in page
    assert all(f">{method}</a>" in page for method in methods)
    mean = run.metrics["by"]["method"][methods[0]]["scores"]["overall_score"]["mean"]
    assert f"<b>{mean:.2f}</b>" in page
    assert "gate true: passed" in page
    link = f"outputs/api/{run.path.name}/report.html"
    assert f'<a href="{link}">' in page
    assert page.count('<line class="mean"') == len(methods), "each method on the axis"
    lines = repr(run).splitlines()
    assert (lines[1], lines[-1]) == (run.verdict["sentence"], f"report: {link}")
    assert [line.split()[0] for line in lines[3:-1]] == methods


def test_a_run_has_frames_of_its_cases_and_of_what_they_are_made_from(here: Path) -> None:
    run = ragpipe.run(CONFIG, quiet=True)
    cases = run.cases
    assert len(cases) == len(run.records) == len(run.outputs)
    assert list(cases)[:7] == ["case", "question", "method", "repeat", "iteration", "overall_score", "passed"]
    assert list(cases["overall_score"].dropna()) == list(run.records["overall_score"].dropna())
    failed = cases[cases["passed"].eq(False)]
    assert all("faithfulness" in text or "retrieval" in text for text in failed["failed_by"])
    assert cases["latency_ms"].notna().any()
    output = run.outputs.iloc[0]
    assert [type(output[name]) for name in ("contexts", "context_ids")] == [list, list]
    assert len(output["contexts"]) == cases["n_contexts"].iloc[0]
    assert output["timings.generation"] > 0
    assert set(run.samples["id"]) == set(cases["case"])


def test_outputs_tell_contexts_that_were_not_recorded_from_none_found(here: Path) -> None:
    for name, contexts in {"none": [None, None], "some": [None, [], ["x y"]]}.items():
        rows = [{"id": f"q{i}", "question": "?", "answer": "Yes."} | ({} if c is None else {"contexts": c}) for i, c in enumerate(contexts)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = {"dataset": "jsonl", "dataset.path": f"{name}.jsonl", "metrics": ["format"], "name": name}
        assert ragpipe.run(words, quiet=True).outputs["contexts"].tolist() == contexts


def test_a_run_is_compared_with_another(here: Path) -> None:
    base = ragpipe.run(CONFIG, quiet=True)
    other = ragpipe.rejudge(base, {"judge.threshold": 0.9}, quiet=True)
    with pytest.raises(ConfigError, match="judge"):
        other.compare(base)
    found = ragpipe.compare(base, other, {"compare.accept": ["judge"]}, quiet=True)
    frame = found.differences.set_index("score")
    expected = other.records["faithfulness"].mean() - base.records["faithfulness"].mean()
    assert frame.loc["faithfulness", "difference"] == pytest.approx(expected)
    assert repr(found).startswith(found.verdict)
    assert found.verdict in found._repr_html_()
    again = ragpipe.rescore(base, {"scoring.thresholds.faithfulness": 1.0}, quiet=True).compare(base)
    assert again.differences.set_index("score").loc["faithfulness", "difference"] == 0


_INTERRUPTED = """
import asyncio, os, signal, sys, threading, time
from ragpipe.testing.openai_server import serving
import ragpipe

with serving() as server:
    words = ["dataset=demo", "metrics=[faithfulness]", "judge=llm", "judge.model=openai/judge-1", "name=k",
             f"judge.api_base={server.url}", "judge.allow_unpinned=true", "report.formats=[terminal]"]

    def interrupt():
        time.sleep(float(sys.argv[1]))
        asked.append(server.tries)
        os.kill(os.getpid(), signal.SIGINT)

    asked = []

    async def cell():
        threading.Thread(target=interrupt, daemon=True).start()
        ragpipe.run(words, quiet=True)

    try:
        asyncio.run(cell())
        ended = "nothing"
    except BaseException as error:
        ended = type(error).__name__
    print(ended, asked[0], server.tries)
"""


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("seconds", ["0", "0.05", "0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.4", "1.6"])
def test_an_interrupt_before_the_first_question_inside_asyncio_run_asks_nothing(here, monkeypatch, seconds: str) -> None:
    """The handler of the running loop only marks its own task as cancelled."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = [sys.executable, "-c", _INTERRUPTED, seconds]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    ended, before, after = ran.stdout.split()
    # amid an import Python may turn the interrupt into an error of the module that is half there
    assert ended == "KeyboardInterrupt" or (ended != "nothing" and int(before) == 0), ran.stderr
    assert int(after) - int(before) <= (32 if int(before) else 0), "those in flight"
