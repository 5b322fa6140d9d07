"""Iterations ask again for real: a noisy judge behind the local server, with its noise planted case by case."""

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ragpipe
from ragpipe.cli import main
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

GRADES = (
    (5.0, 5.0, 5.0, 5.0),
    (2.0, 2.0, 2.0, 2.0),
    (4.5, 4.0, 5.0, 4.5),  # noise above the threshold of 4: no flip
    (4.5, 3.5, 4.5, 4.5),  # flips: passes 2 of the first 3
    (3.0, 4.0, 3.5, 3.0),  # flips: passes 1 of the first 3
    (1.0, 1.5, 2.0, 2.5),
    (4.0, 4.0, 3.9, 4.0),  # flips: passes 2 of the first 3
    (5.0, 4.5, 4.5, 5.0),
)
"""Of each case what the judge says when it is asked the 1st, 2nd, 3rd and 4th time."""


@dataclass
class Start:
    """The words of a start and the server that it asks."""

    server: OpenAIServer
    words: list[str]
    root: Path

    def __call__(self, *more: str) -> int:
        """Run and return how many requests that took."""
        before = len(self.server.log)
        assert main([*self.words, *more]) == 0
        return len(self.server.log) - before

    @property
    def run(self) -> Path:
        return (self.root / "out" / "torture" / "latest").resolve()

    def json(self, name: str) -> dict[str, Any]:
        return json.loads((self.run / name).read_text())


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    data = write_cases(tmp_path / "data.jsonl", len(GRADES))
    script = [
        {
            "match": rf"What does case {case} say",
            "reply": json.dumps({"reason": "so it is", "score": grade}),
            "times": 1,
        }
        for case, grades in enumerate(GRADES)
        for grade in grades
    ]
    with serving(script=script) as server:
        yield Start(server, arguments(data, tmp_path / "out", server.url, metrics="correctness"), tmp_path)


def means_of(iterations: int) -> list[float]:
    return [statistics.fmean(grades[i] for grades in GRADES) for i in range(iterations)]


def content(run: Path, iterations: range) -> dict[str, bytes]:
    folders = [run / f"iteration-{i}" for i in iterations]
    return {str(p.relative_to(run)): p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}


def test_the_planted_noise_comes_out(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    assert start("iterations=3", "report.detail=full") == 3 * len(GRADES)
    assert ".wall.json" not in (start.run / "seal.json").read_text(), "how long it took is no finding"
    final = ragpipe.load(start.run).final
    found = final["overall"]["scores"]["correctness"]
    assert found["means"] == pytest.approx(means_of(3))
    assert found["mean"] == pytest.approx(statistics.fmean(means_of(3)))
    assert found["spread"]["sd"] == pytest.approx(statistics.stdev(means_of(3)))
    judge = statistics.fmean(statistics.variance(grades[:3]) for grades in GRADES)
    assert found["noise"]["judge_variance"] == pytest.approx(judge)
    items = statistics.variance(statistics.fmean(grades[:3]) for grades in GRADES) - judge / 3
    assert found["noise"]["item_variance"] == pytest.approx(items)
    assert found["flips"] == {"rate": pytest.approx(3 / 8 * 2 / 3), "n_cases": 8}, "of 3 cases 2 of 3 pairs differ"
    flips = [
        (one["sample_id"], one["passed"], one["of"]) for one in final["flips"]["cases"] if one["score"] == "correctness"
    ]
    assert flips == [("q00003", 2, 3), ("q00004", 1, 3), ("q00006", 2, 3)]
    assert found["pass_rates"] == pytest.approx([5 / 8, 5 / 8, 4 / 8])
    text = capfd.readouterr().out
    assert "Over 3 iterations" in text
    assert re.search(r"^time: \d+:\d\d of judging \(\d+:\d\d, \d+:\d\d, \d+:\d\d\)$", text, re.M)
    assert "25.0%" in text
    assert "cost: 24 calls" in text, "the bill is that of all iterations, as the figures are"
    assert "## Over 3 iterations" in (start.run / "report.md").read_text()


@pytest.mark.thorough
def test_a_fourth_iteration_asks_a_quarter_of_the_whole(start: Start) -> None:
    asked = start("iterations=3", "report.detail=full")
    first = content(start.run, range(1, 4))
    run = start.run
    later = start("iterations=4")
    assert later == len(GRADES) == (asked + later) / 4
    assert start.run == run, "the number of iterations makes no other run"
    assert content(run, range(1, 4)) == first
    final, cost = start.json("final/metrics.json"), start.json("final/cost.json")
    assert final["iterations"] == [1, 2, 3, 4]
    assert final["overall"]["scores"]["correctness"]["means"] == pytest.approx(means_of(4))
    assert cost["total"]["used"]["calls"] == cost["total"]["spent"]["calls"] == asked + later
    assert [bill["spent"]["calls"] for bill in cost["iterations"].values()] == [len(GRADES)] * 4
    assert start("iterations=4") == 0


def test_every_iteration_has_keys_of_its_own(start: Start) -> None:
    import pyarrow.parquet as pq

    start("iterations=2")
    keys = [pq.read_table(start.run / f"iteration-{i}/judge_inputs.parquet")["key"].to_pylist() for i in (1, 2)]
    assert len(set(keys[0])) == len(set(keys[1])) == len(GRADES)
    assert not set(keys[0]) & set(keys[1])
    bodies = {line["body"] for line in start.server.log}
    assert len(bodies) == len(GRADES), "the judge is asked the very same question"


def test_fewer_iterations_later_keep_what_there_is(start: Start) -> None:
    start("iterations=3", "report.detail=full")
    before = start.json("final/metrics.json")
    assert start("iterations=1") == 0
    assert start.json("final/metrics.json") == before


def test_a_fresh_start_of_one_iteration_has_no_spread(start: Start) -> None:
    start()
    found = start.json("final/metrics.json")["overall"]["scores"]["correctness"]
    assert found["mean"] == pytest.approx(means_of(1)[0])
    assert not {"spread", "means", "pass_spread", "flips", "noise"} & found.keys()
    assert "## Over" not in (start.run / "report.md").read_text()


def test_max_calls_is_one_limit_over_the_iterations_of_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 cases twice 8 calls are planned; replies that must be asked for again double them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    with serving(faults=["not_json"]) as server:
        data = write_cases(tmp_path / "data.jsonl", 4)
        words = arguments(data, tmp_path / "out", server.url, "iterations=2", metrics="correctness")
        assert main([*words, "judge.max_calls=10"]) == 4
        assert 8 <= server.tries <= 10  # what waited for its turn at the stop was not sent
        main([*words, "judge.max_calls=10"])
        assert server.tries == 16
