"""Second looks at a run whose judge failed on some calls: nothing of what was paid is forgotten, and the rest can be had."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.engine import evaluation
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments
from tests.support.rejudged import KEY, content, write_data

pytestmark = pytest.mark.slow  # whole runs, several per test

SAME = "openai/test-model-2026-01-01"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An output folder (`out`) with its call store; the judge was down for the claims of one case of six."""
    here = tmp_path_factory.mktemp("incomplete")
    before = os.getcwd()
    os.chdir(here)
    os.environ[KEY] = "sk-sentinel-4242"
    try:
        with serving() as server:
            server.faults = [ServerFault.read("500:match=Case 3 says")]
            words = arguments(
                write_data(here / "data.jsonl", 6), here / "out", server.url, "judge.retries=0", "report.formats=[markdown]",
                "judge.prices={input: 1.0, output: 2.0}", metrics="faithfulness",
            )  # fmt: skip
            assert main(words) == 4
        yield here / "out"
    finally:
        os.chdir(before)
        del os.environ[KEY]


@pytest.fixture
def out(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return Path(shutil.copytree(made, tmp_path / "out", symlinks=True))


@pytest.fixture
def run(out: Path) -> Path:
    """The run in the place where it was made, its call store beside it."""
    return (out / "torture" / "latest").resolve()


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """The run folder alone, under another name."""
    return Path(shutil.copytree(run, tmp_path / "elsewhere" / "run"))


def bill(folder: Path) -> dict:
    return json.loads((folder / "iteration-1" / "cost.json").read_text())


def spent(folder: Path) -> dict:
    return bill(folder)["spent"]


def rejudge(folder: Path, url: str, *extra: str) -> list[str]:
    return [
        "task=rejudge", f"run={folder}", "judge=llm", f"judge.model={SAME}", "judge.endpoint=test",
        f"judge.api_key_env={KEY}", f"judge.api_base={url}", "judge.prices={input: 1.0, output: 2.0}", *extra,
    ]  # fmt: skip


NOBODY = (["task=rescore"], ["task=rescore", "retry_errors=true"], ["task=rejudge", "rejudge.mode=stored"])


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("words", NOBODY, ids=" ".join)
def test_a_task_that_asks_nobody_leaves_the_run_untouched_and_says_what_helps(
    copied: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(copied)
    assert spent(copied)["calls"] > 0
    assert main([*words, f"run={copied}"]) == 4
    assert content(copied) == before
    said = " ".join(capsys.readouterr().err.split())
    assert "the same command asks for them again" not in said
    assert "task=rejudge with its judge named" in said


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("place", ["run", pytest.param("run id")])
def test_the_same_judge_asks_the_rest_and_both_bills_add_up(
    run: Path, copied: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the folder is called: the call store knows a run by its identity."""
    folder = copied if place == "run" else Path(copied.rename(copied.parent / run.name))
    before = spent(folder)
    with serving() as server:
        assert main(rejudge(folder, server.url)) == 0
        asked = server.tries
        said = capsys.readouterr().out
        assert main(rejudge(folder, server.url)) == 0
        assert server.tries == asked
    after = spent(folder)
    assert asked > 0
    assert after["calls"] == before["calls"] + asked
    assert after["tokens_in"] > before["tokens_in"]
    assert after["usd"] == pytest.approx((after["tokens_in"] + 2 * after["tokens_out"]) / 1e6)
    assert bill(folder)["saved"]["calls"] == 0
    assert f"{asked} calls, for what had no reply" in " ".join(said.split())
    assert "asked nothing again" not in said
    assert not list(folder.rglob(".paid.json"))


def test_in_its_own_place_nothing_is_counted_twice(out: Path, run: Path) -> None:
    before = spent(run)
    with serving() as server:
        assert main(rejudge(run, server.url, f"output_dir={out}")) == 0
        assert spent(run)["calls"] == before["calls"] + server.tries


def test_what_a_killed_start_paid_is_not_lost(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spent(copied)

    def ends(*_: object, **__: object) -> None:
        raise SystemExit(137)

    with serving() as server:
        with monkeypatch.context() as patched:
            patched.setattr(evaluation, "score_iteration", ends)
            assert main(rejudge(copied, server.url)) == 137
        assert main(rejudge(copied, server.url)) == 0
        assert spent(copied)["calls"] == before["calls"] + server.tries
    assert main(["task=verify", f"run={copied}"]) == 0


def test_a_finished_run_keeps_its_bill_when_failures_are_to_be_asked_again(copied: Path) -> None:
    with serving() as server:
        assert main(rejudge(copied, server.url)) == 0
        before = content(copied)
        assert main(["task=rescore", f"run={copied}", "retry_errors=true"]) == 0
        assert content(copied) == before
        tries = server.tries
        assert main(rejudge(copied, server.url, "retry_errors=true")) == 0
        assert server.tries == tries
    assert bill(copied) == json.loads(before["iteration-1/cost.json"][0])
    assert main(["task=verify", f"run={copied}"]) == 0
