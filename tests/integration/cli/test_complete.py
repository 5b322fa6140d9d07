"""A start that finds its run complete says so, and its words do ask again."""

import inspect
import json
import re
import shlex
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.runs import evaluation, scoring
from ragpipe.runs.ended_run import next_name
from ragpipe.testing.openai_server import serving
from tests.support.finished_runs import FinishedRuns
from tests.support.harness import arguments, write_cases
from tests.support.place import output_of
from tests.support.rejudged import KEY, content, write_data

pytestmark = pytest.mark.slow

SYSTEM = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write("x")
    return {"answer": "Paris is the capital.", "contexts": ["Paris is the capital of France."]}
"""
COMPLETE = re.compile(r"complete since (\d{4}-\d\d-\d\d \d\d:\d\d), nothing was asked(?:; outputs collected ([^:]+) ago)?(?::.+)?\n")


@pytest.fixture
def here(code_here) -> Path:
    (code_here / "answering.py").write_text(SYSTEM)
    (code_here / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital?"}}\n' for i in range(3)))
    return code_here


def told(said: str) -> tuple[re.Match[str] | None, dict[str, list[str]]]:
    ways = re.findall(r"(to ask the system again|to judge again): ([^;\n]+)", said)
    return COMPLETE.search(said), {what: shlex.split(words) for what, words in ways}


def test_what_ended_is_told_before_the_stages_are_asked(here: Path, monkeypatch, capfd) -> None:
    """They look again where the folder or the configuration is another one."""
    words = ["+experiment=quickstart", "dataset.limit=4", "metrics=[retrieval]", "output_dir=out"]
    assert main(words) == 0
    capfd.readouterr()
    monkeypatch.setattr(evaluation, "evaluate", lambda *_: 99)
    assert main(words) == 0
    assert told(capfd.readouterr().out)[0]
    assert main([*words, "report.page_cases=2"]) == 99
    assert main([*words, "retry_errors=true"]) == 99
    for name in ("manifest.json", "seal.json", "report.md", "iteration-1/scores.parquet"):
        file = here / "out/quickstart/latest" / name
        kept = file.read_bytes()
        file.write_bytes(kept + b" ")
        assert main(words) == 99
        file.write_bytes(kept)
        assert main(words) == 0


@pytest.mark.thorough
def test_the_words_that_it_prints_do_ask_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        words = arguments(here / "q.jsonl", here / "out", server.url)
        words += ["system=python", "system.callable=answering:answer", "plugins=[answering]"]

        def start(*more: str) -> tuple[int, int]:
            assert main([*words, *more]) == 0
            return len((here / "asked.txt").read_text()), server.tries

        first = start()
        assert told(capfd.readouterr().out) == (None, {}), "a first start is no second one"
        assert start() == first
        said = capfd.readouterr().out
        assert len(said.splitlines()) == 2, "the verdict with the page, and the words"
        line, ways = told(said)
        since = datetime.strptime(line[1], "%Y-%m-%d %H:%M").astimezone()
        assert timedelta(minutes=-1) <= datetime.now(UTC) - since < timedelta(minutes=3)
        assert re.fullmatch(r"\d+ s", line[2] or "")
        assert ways.keys() == {"to ask the system again", "to judge again"}
        judged = start(*ways["to judge again"])
        checks = 1  # before the system is asked for the first time, one short question shows that the judge answers
        assert judged == (first[0], 2 * first[1] - checks), "every question of the judge, and none of the system"
        assert start(*ways["to ask the system again"])[0] == 2 * first[0]
        start(*ways["to ask the system again"])
        line, ways = told(capfd.readouterr().out)
        assert line is not None
        assert ways["to ask the system again"] == ["system.version=3"]


def test_an_incomplete_run_is_not_called_complete(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = write_cases(here / "data.jsonl", 2)
    with serving(faults=["empty_content:after=2"]) as server:
        words = [*arguments(data, here / "out", server.url, metrics="faithfulness"), "judge.retries=0"]
        assert main(words) == 4
        assert main(words) == 4
    assert COMPLETE.search(capfd.readouterr().out) is None


def test_another_name() -> None:
    names = {"": "2", "2": "3", "v9": "v10", "2026-09": "2026-10", "nightly": "nightly-2", "a b": "a b-2"}
    assert {name: next_name(name) for name in names} == names


WORDS = ("dataset=demo", "dataset.limit=1", "metrics=[retrieval]", "name=x", "report.formats=[markdown]")


@pytest.fixture
def run(finished_runs: FinishedRuns, code_here: Path) -> Path:
    finished_runs.of(*WORDS).copy_outputs(code_here)
    return (code_here / "outputs/x/latest").resolve()


def killed(monkeypatch: pytest.MonkeyPatch, stage: str, *words: str, calls: int = 0) -> None:
    """Start with these words; the process ends when `stage` begins for the time after `calls`."""
    home = evaluation if hasattr(evaluation, stage) else scoring
    whole, begun = getattr(home, stage), [0]

    def ends(*args: Any, **more: Any) -> Any:
        begun[0] += 1
        if begun[0] > calls:
            for coroutine in filter(inspect.iscoroutine, args):
                coroutine.close()
            raise SystemExit(137)
        return whole(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(home, stage, ends)
        assert main([*WORDS, *words]) == 137


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["task=verify", f"run={run}"])
    return capsys.readouterr().out.splitlines()[-1]


def states(run: Path) -> dict[str, str]:
    return json.loads((run / "manifest.json").read_text())["iterations"]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("stage", ["seal_run", "score_iteration", "combine_iterations", "write_reports"])
def test_the_first_start_and_one_more_iteration(stage: str, code_here: Path, monkeypatch, capsys) -> None:
    killed(monkeypatch, stage, "iterations=2", calls=int(stage == "score_iteration"))
    assert main([*WORDS, "iterations=2"]) == 0
    run = (code_here / "outputs/x/latest").resolve()
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
    assert (metrics.read_bytes(), states(run)) == (good, {"1": "complete"})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("name", "damage"), [("scores.parquet", Path.unlink), ("judge_inputs.parquet", cut)])
def test_a_lost_table_of_a_finished_run_is_made_again(run: Path, capsys, name: str, damage: Callable[[Path], object]) -> None:
    table = run / "iteration-1" / name
    whole = table.read_bytes()
    damage(table)
    assert f"iteration 1: {name} missing or damaged" in output_of([*WORDS], 0, capsys).err
    assert (table.read_bytes(), states(run)) == (whole, {"1": "complete"})
    assert "identical" in verified(run, capsys)
    assert "missing or damaged" not in output_of([*WORDS], 0, capsys).err


def test_a_changed_seal_is_not_replaced_without_a_word(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seal = run / "seal.json"
    seal.write_text(seal.read_text().replace('"files"', '"filed"', 1))
    text = " ".join("".join(output_of([*WORDS], 0, capsys)).split())
    assert "seal.json: damaged (its own digest does not fit)" in text
    assert "name=..." in text
    assert verified(run, capsys).startswith("verify: identical")


PRICES = "judge.prices={input: 1.0, output: 2.0}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder (`out`) with its call store; the judge was down for the claims of one case of six."""
    here = tmp_path_factory.mktemp("incomplete")
    with pytest.MonkeyPatch.context() as patch, serving(faults=["500:match=Case 3 says"]) as server:
        patch.chdir(here)
        patch.setenv(KEY, "sk-sentinel-4242")
        data = write_data(here / "data.jsonl", 6)
        assert main(arguments(data, here / "out", server.url, "judge.retries=0", PRICES, metrics="faithfulness")) == 4
    return here / "out"


@pytest.fixture
def copied(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree((made / "torture" / "latest").resolve(), tmp_path / "elsewhere" / "run"))


def spent(folder: Path) -> dict:
    return json.loads((folder / "iteration-1" / "cost.json").read_text())["spent"]


def rejudge(folder: Path, url: str) -> list[str]:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    return ["task=rejudge", f"run={folder}", *judge, f"judge.api_base={url}", PRICES]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("words", ["task=rescore", "task=rescore retry_errors=true", "task=rejudge rejudge.mode=stored"])
def test_a_task_that_asks_nobody_leaves_the_run_untouched_and_says_what_helps(copied: Path, words: str, capsys) -> None:
    before = content(copied)
    assert spent(copied)["calls"] > 0
    assert main([*words.split(), f"run={copied}"]) == 4
    assert content(copied) == before
    said = " ".join(capsys.readouterr().err.split())
    assert "the same command asks for them again" not in said
    assert "task=rejudge with its judge named" in said


def test_the_same_judge_asks_the_rest_and_both_bills_add_up(copied: Path, capsys) -> None:
    before = spent(copied)
    with serving() as server:
        assert main(rejudge(copied, server.url)) == 0
        asked = server.tries
        said = capsys.readouterr().out
        assert main(rejudge(copied, server.url)) == 0
        assert server.tries == asked
    after = spent(copied)
    assert asked > 0
    assert after["calls"] == before["calls"] + asked
    assert after["tokens_in"] > before["tokens_in"]
    assert after["usd"] == pytest.approx((after["tokens_in"] + 2 * after["tokens_out"]) / 1e6)
    assert json.loads((copied / "iteration-1" / "cost.json").read_text())["saved"]["calls"] == 0
    assert f"{asked} calls, for what had no reply" in " ".join(said.split())
    assert not list(copied.rglob(".paid.json"))


def test_what_a_killed_start_paid_is_not_lost(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spent(copied)

    def ends(*_: object, **__: object) -> None:
        raise SystemExit(137)

    with serving() as server:
        with monkeypatch.context() as patched:
            patched.setattr(scoring, "score_iteration", ends)
            assert main(rejudge(copied, server.url)) == 137
        assert main(rejudge(copied, server.url)) == 0
        assert spent(copied)["calls"] == before["calls"] + server.tries
    assert main(["task=verify", f"run={copied}"]) == 0
