"""A start that finds its run complete says so, and its words do ask again."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.engine.run_outcome import next_name, time_ago
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # several whole runs

SYSTEM = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write("x")
    return {"answer": "Paris is the capital.", "contexts": ["Paris is the capital of France."]}
"""
COMPLETE = re.compile(
    r"complete since (\d{4}-\d\d-\d\d \d\d:\d\d), nothing was asked(?:; outputs collected (.+) ago)?\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    (tmp_path / "answering.py").write_text(SYSTEM)
    (tmp_path / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital?"}}\n' for i in range(3)))
    yield tmp_path
    sys.modules.pop("answering", None)


def live(here: Path, url: str) -> list[str]:
    return [*arguments(here / "q.jsonl", here / "out", url), "system=python", "system.callable=answering:answer",
            "plugins=[answering]"]  # fmt: skip


def told(capfd: pytest.CaptureFixture[str]) -> tuple[re.Match[str] | None, dict[str, list[str]]]:
    """The first line, and the words by what they do."""
    said = capfd.readouterr().out
    ways = re.findall(r"(to ask the system again|to judge again): ([^;\n]+)", said)
    return COMPLETE.search(said), {what: shlex.split(words) for what, words in ways}


@pytest.mark.thorough
def test_the_words_that_it_prints_do_ask_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        words = live(here, server.url)

        def start(*more: str) -> tuple[int, int]:
            assert main([*words, *more]) == 0
            return len((here / "asked.txt").read_text()), server.tries

        first = start()
        assert told(capfd) == (None, {}), "a first start is no second one"
        assert start() == first
        line, ways = told(capfd)
        assert line is not None
        since = datetime.strptime(line[1], "%Y-%m-%d %H:%M").astimezone()
        assert timedelta(minutes=-1) <= datetime.now(UTC) - since < timedelta(minutes=3)
        assert re.fullmatch(r"\d+ s", line[2] or "")
        assert ways.keys() == {"to ask the system again", "to judge again"}

        judged = start(*ways["to judge again"])
        checks = 1  # before the system is asked for the first time, one short question shows that the judge answers
        assert judged == (first[0], 2 * first[1] - checks), "every question of the judge, and none of the system"
        again = start(*ways["to ask the system again"])
        assert again[0] == 2 * first[0]
        start(*ways["to ask the system again"])
        line, ways = told(capfd)
        assert line is not None
        assert ways["to ask the system again"] == ["system.version=3"]


def test_recorded_outputs_and_an_embedded_judge_have_nobody_to_ask(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write_cases(here / "data.jsonl", 2)
    words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[faithfulness]", "name=two"]
    assert main(words) == 0
    capfd.readouterr()
    assert main(words) == 0
    line, ways = told(capfd)
    assert line is not None
    assert line[2] is None
    assert ways == {}


def test_an_incomplete_run_is_not_called_complete(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = write_cases(here / "data.jsonl", 2)
    with serving(faults=["empty_content:after=2"]) as server:
        words = [*arguments(data, here / "out", server.url, metrics="faithfulness"), "judge.retries=0"]
        assert main(words) == 4
        assert main(words) == 4
    assert COMPLETE.search(capfd.readouterr().out) is None


@pytest.mark.thorough
def test_a_rejudged_run_names_a_season(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = write_cases(here / "data.jsonl", 2)
    with serving() as server:
        words = arguments(data, here / "out", server.url, metrics="faithfulness")
        assert main(words) == 0
        judge = [word for word in words if word.startswith("judge")]
        rejudge = ["task=rejudge", f"run={here / 'out' / 'torture' / 'latest'}", *judge, "judge.temperature=0.5"]
        assert main(rejudge) == 0
        asked = server.tries
        capfd.readouterr()
        assert main(rejudge) == 0
        line, ways = told(capfd)
        assert line is not None
        assert ways == {"to judge again": ["judge.season=2"]}
        assert main([*rejudge, *ways["to judge again"]]) == 0
        assert server.tries == asked + asked / 2


def test_a_run_over_collected_outputs_keeps_their_age(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        words = live(here, server.url)
        assert main(words) == 0
        path = (here / "out" / "torture" / "latest").resolve() / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["data"]["collected_at"] = (datetime.now(UTC) - timedelta(hours=5, minutes=2)).isoformat()
        path.write_text(json.dumps(manifest))
        other = [*words, "judge.max_tokens=1000"]  # another run over the same outputs
        assert main(other) == 0
        assert main(other) == 0
    line, _ = told(capfd)
    assert line is not None
    assert line[2] == "5 h"


@pytest.mark.thorough
def test_the_command_says_it_too(here: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{Path(__file__).parents[3]}", "TZ": "UTC"}
    with serving() as server:
        command = [sys.executable, "-m", "ragpipe", *live(here, server.url)]
        done = [
            subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=True)
            for _ in "12"
        ]
    first, second = (COMPLETE.search(one.stdout) for one in done)
    assert first is None
    assert second is not None
    assert second[1].startswith(datetime.now(UTC).strftime("%Y-%m-%d"))
    assert "to ask the system again: system.version=2; to judge again: iterations=2\n" in done[1].stdout


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s ago"),
        (119, "119 s ago"),
        (121, "2 min ago"),
        (7199, "119 min ago"),
        (7200, "2 h ago"),
        (260_000, "3 days ago"),
    ],
)
def test_how_long_ago(seconds: int, words: str) -> None:
    assert time_ago(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("name", "other"),
    [("", "2"), ("2", "3"), ("v9", "v10"), ("2026-09", "2026-10"), ("nightly", "nightly-2"), ("a b", "a b-2")],
)
def test_another_name(name: str, other: str) -> None:
    assert next_name(name) == other
