"""`task=drift` against the local server: a judge that changes, stopped starts, and runs compared over a drift."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.extras.checks import drift
from ragpipe.extras.checks.canaries import read_canaries
from ragpipe.extras.checks.drift import DRIFTED
from ragpipe.testing import openai_server
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments
from tests.support.place import output_of
from tests.support.rejudged import KEY, write_data

pytestmark = pytest.mark.slow  # several starts each
Reply = Callable[[dict[str, Any]], str]
ITEMS = 3
BASELINE = 10 * ITEMS


@pytest.fixture
def server(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A server, and a canary set of three questions of the shipped one; one of them holds what `turned` changes."""
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    wanted = ("claims-by-reference", "two-axes", "faithfulness-ferry")
    items = tuple(item for item in read_canaries().items if item.name in wanted)
    monkeypatch.setattr(drift, "read_canaries", lambda: replace(read_canaries(), items=items))
    with serving() as server:
        yield server


def words(server: OpenAIServer, *more: str) -> list[str]:
    judge = ["judge=llm", "judge.model=openai/test-model-2026-01-01", f"judge.api_base={server.url}"]
    return ["task=drift", *judge, "judge.endpoint=test", f"judge.api_key_env={KEY}", *more]


def asked(server: OpenAIServer, command: list[str]) -> tuple[int, int]:
    before = len(server.log)
    code = main(command)
    return code, len(server.log) - before


def drift_files(folder: Path) -> list[Path]:
    return [*(folder / "outputs" / ".store" / "drift").glob("*.json")]


def record(folder: Path) -> dict[str, Any]:
    (path,) = drift_files(folder)
    return json.loads(path.read_text())


def turned(reply: Reply) -> Reply:
    """The same judge, that says the contrary of what was right by a reference."""
    return lambda body: reply(body).replace('"correct": true', '"correct": false')


def test_a_judge_that_changes_is_caught_at_that_check(server: OpenAIServer, tmp_path, monkeypatch, capsys) -> None:
    reply = openai_server.chat_reply
    assert asked(server, words(server)) == (0, BASELINE)
    for _ in range(3):
        assert asked(server, words(server)) == (0, ITEMS)
    assert "no drift of openai/test-model" in capsys.readouterr().out
    monkeypatch.setattr(openai_server, "chat_reply", turned(reply))
    assert asked(server, words(server)) == (DRIFTED, ITEMS + 5)  # one question holds what has changed
    assert "HAS DRIFTED" in capsys.readouterr().err
    *_, quiet, check = record(tmp_path)["checks"]
    assert {row["verdict"].partition("[")[0] for row in check["changed"]} == {"claims-by-reference/correct"}
    assert all(row["drifted"] for row in check["changed"])
    assert check["served"] == [{"model": "test-model-2026-01-01", "fingerprint": "fp_test", "calls": ITEMS + 5}]
    assert check["after"] == quiet["started_at"]
    assert asked(server, words(server)) == (0, BASELINE)  # the judge of now has a baseline of its own
    assert asked(server, words(server)) == (0, ITEMS)


def test_a_stopped_start_goes_on_and_pays_nothing_twice(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = [{"match": "two axes", "status": 500, "times": 4, "reply": "later"}]
    start = words(server, "judge.retries=0")
    assert asked(server, start) == (4, BASELINE)
    assert record(tmp_path)["baseline"]["ended_at"] is None
    assert asked(server, start) == (0, 4)  # the four that failed
    server.script = [{"match": "two axes", "status": 500, "times": 1, "reply": "later"}]
    assert asked(server, start) == (4, ITEMS)
    assert asked(server, start) == (0, 1)
    assert len(record(tmp_path)["checks"]) == 1


def test_the_file_is_of_one_judge_and_without_it_nothing_is_a_free_check(server: OpenAIServer, tmp_path, capsys) -> None:
    assert asked(server, words(server)) == (0, BASELINE)
    (path,) = drift_files(tmp_path)
    content = path.read_text()
    path.write_text("{")
    assert asked(server, words(server)) == (2, 0)
    assert path.name in capsys.readouterr().err
    path.write_text(content)
    assert asked(server, words(server)) == (0, ITEMS)
    assert asked(server, words(server, "judge.temperature=0.5")) == (0, BASELINE), "another judge"
    for file in drift_files(tmp_path):
        file.unlink()
    assert asked(server, words(server)) == (0, BASELINE)


def test_what_cannot_drift_is_refused_before_anything_is_asked(server: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert "a language model that is asked" in output_of(["task=drift"], 2, capsys).err
    assert asked(server, words(server, "transport=stored")) == (2, 0)
    assert asked(server, words(server, "judge.max_calls=10")) == (2, 0)
    assert "judge.max_calls" in capsys.readouterr().err


def test_runs_before_and_after_a_drift_are_not_compared(server: OpenAIServer, tmp_path, monkeypatch, capsys) -> None:
    data = write_data(tmp_path / "data.jsonl")
    other_data, third_data = tmp_path / "other.jsonl", tmp_path / "third.jsonl"
    other_data.write_text(data.read_text().replace("It also names", "It names"))
    third_data.write_text(data.read_text().replace("3 things. It also names", "3 things. Then it names"))

    def run(path: Path) -> Path:
        words = ["report.formats=[markdown]", "dataset.name=same"]
        assert main(arguments(path, tmp_path / "outputs", server.url, *words, metrics="faithfulness")) == 0
        return (tmp_path / "outputs" / "torture" / "latest").resolve()

    def compare(base: Path, candidate: Path, *more: str) -> int:
        return main(["task=compare", f"base={base}", f"candidate={candidate}", *more])

    check = ["task=drift", *(word for word in arguments(data, tmp_path / "outputs", server.url) if "judge" in word)]
    check.append(f"output_dir={tmp_path / 'outputs'}")
    assert main(check) == 0
    before = run(data)
    monkeypatch.setattr(openai_server, "chat_reply", turned(openai_server.chat_reply))
    assert main(check) == DRIFTED
    after = run(other_data)
    assert main(["task=verify", f"run={after}"]) == 0
    assert "Drift of the judge" not in (before / "report.md").read_text(), "it was judged before the check"
    report = (after / "report.md").read_text()
    assert "## Drift of the judge" in report
    assert "the judge has drifted" in report
    assert "drift" not in json.loads((after / "iteration-1" / "metrics.json").read_text())
    capsys.readouterr()
    assert compare(before, after) == 2
    error = capsys.readouterr().err
    assert "judge.drift: judged " in error
    assert "drifted between" in error
    assert "compare.accept=[judge]" in error
    assert compare(before, after, "compare.accept=[judge]") == 0
    later = run(third_data)  # some of its replies are those of the first run, the others are new
    assert compare(before, later) == 2
    noted = json.loads((later / "manifest.json").read_text())["judge_drift"]
    assert noted["first"] < noted["alarms"][0][1] < noted["last"]
    assert main(["task=rescore", f"run={after}", "scoring.thresholds.faithfulness=0.4"]) == 0
    (rescored,) = [path.parent for path in after.parent.glob("*/manifest.json") if json.loads(path.read_text())["source_run"] == after.name]
    assert compare(before, rescored) == 2
    assert "## Drift of the judge" in (rescored / "report.md").read_text()
