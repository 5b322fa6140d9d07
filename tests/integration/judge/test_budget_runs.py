"""Runs within a budget at the local server: its log is the bill, and the budget holds to the token, over starts and kills."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.store.call_store import census
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, finish, start, write_cases
from tests.support.waiting import wait_for_hang_up, wait_until

pytestmark = pytest.mark.slow  # whole runs, several per test

PRICES = "judge.prices={input: 100.0, output: 400.0}"  # dollars per million tokens


@pytest.fixture(autouse=True)
def _place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 0.01)


def words(server: OpenAIServer, *more: str, cases: int = 12, concurrency: int = 6) -> list[str]:
    data, more = write_cases(Path("data.jsonl"), cases), (PRICES, "judge.max_tokens=300", *more)
    return arguments(data, Path("out").absolute(), server.url, *more, metrics="faithfulness", concurrency=concurrency)


def billed(server: OpenAIServer) -> dict[str, float]:
    """The server's own bill: every answer that it made, read by anyone or not."""
    usages = [line["usage"] for line in server.log if line["usage"]]
    tokens_in, tokens_out = (sum(u.get(name, 0) for u in usages) for name in ("prompt_tokens", "completion_tokens"))
    usd = (100 * tokens_in + 400 * tokens_out) / 1e6
    return {"usd": usd, "tokens": tokens_in + tokens_out, "calls": len(usages)}


def ledger() -> dict[str, int]:
    paid = census(Path("out/.store/calls.sqlite"), ())["paid"]
    return {"tokens": paid["tokens_in"] + paid["tokens_out"], "calls": paid["replies"]}


def document(name: str) -> dict[str, Any]:
    return json.loads(Path(f"out/torture/latest/iteration-1/{name}.json").read_text())


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("part", "limit"), [("usd", 1.5), ("tokens", 11_000), ("calls", 9)])
def test_a_used_up_budget_ends_with_what_there_is_and_the_command_that_goes_on(part: str, limit: float, capsys) -> None:
    with serving(latency_ms=10, jitter=0.9) as server:
        command = words(server)
        assert main([*command, f"judge.budget.{part}={limit}"]) == 4
        shown = capsys.readouterr()
        bill = billed(server)
        assert 0 < bill[part] <= limit
        assert bill["calls"] < 24
        assert ledger() == {"tokens": bill["tokens"], "calls": bill["calls"]}, "to the token"
        assert f"judge.budget.{part}={limit:g} is used up" in shown.err
        score = document("metrics")["overall"]["scores"]["faithfulness"]
        assert score["n_ok"] + score["n_error"] == 12
        assert set(score["errors"]) == {"budget"}
        assert f"faithfulness {score['n_ok']} of 12" in shown.err
        spent = document("cost")["spent"]
        assert (spent["tokens_in"] + spent["tokens_out"], spent["usd"]) == (bill["tokens"], pytest.approx(bill["usd"]))

        assert main([*command, f"judge.budget.{part}={limit}"]) == 4, "a resumed start counts what was spent before"
        assert billed(server)[part] <= limit
        again = capsys.readouterr().err
        raised = re.search(rf"to go on where it stopped: .* (judge\.budget\.{part}=[\d.]+)$", again, re.M)
        assert raised, again
        assert float(raised[1].partition("=")[2]) >= 2 * limit
        assert main([*command, f"judge.budget.{part}={100 * limit}"]) == 0
        assert document("metrics")["overall"]["scores"]["faithfulness"]["n_ok"] == 12
        assert billed(server)["calls"] == 24, "nothing was asked twice"
        assert ledger()["tokens"] == billed(server)["tokens"]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("weather", [
    ("empty_content:rate=0.3",), ("500:rate=0.2", "429:rate=0.2,retry_after=0.01"), ("invalid_json:rate=0.3",),
    ("reset:rate=0.15",),
])  # fmt: skip
def test_retries_and_repairs_count_and_no_weather_overshoots(weather: tuple[str, ...]) -> None:
    with serving(latency_ms=5, jitter=0.9) as server:
        server.faults = [ServerFault.read(text) for text in weather]
        main(words(server, "judge.budget.tokens=15000", "judge.budget.calls=30"))
        bill = billed(server)
        assert bill["tokens"] <= 15_000
        assert bill["calls"] <= 30
        assert ledger()["tokens"] == bill["tokens"]


def test_answers_that_come_too_late_stay_spent(capsys: pytest.CaptureFixture[str]) -> None:
    """The provider bills what it worked on, whether its client waited or not."""
    with serving(latency_ms=400) as server:
        main(words(server, "judge.budget.calls=5", "judge.timeout_s=0.2", "judge.retries=0", "judge.outage_s=2"))
        wait_until(lambda: not server.in_flight)
        assert billed(server)["calls"] <= 5
        assert server.arrivals <= 5, "each of them may be on the bill"


def test_iterations_share_the_budget_and_the_second_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        command = words(server, "iterations=2")
        assert main([*command, "judge.budget.calls=20"]) == 4
        assert "1 of 2 iterations were not begun" in capsys.readouterr().err
        assert billed(server)["calls"] <= 20
        assert main([*command, "judge.budget.calls=36"]) == 4
        assert main([*command, "judge.budget.calls=48"]) == 0
        assert billed(server)["calls"] == 48


def test_kills_do_not_overshoot(tmp_path: Path) -> None:
    """Every start is killed with calls under way; together they stay within the budget, and a last one ends by itself."""
    with serving(latency_ms=40, jitter=0.9) as server:
        limit = 90_000
        command = words(server, f"judge.budget.tokens={limit}", cases=90, concurrency=4)
        for requests in (3, 17, 9, 26):
            least = server.arrivals + requests
            process = start(command, tmp_path, stdout=subprocess.DEVNULL)
            wait_until(lambda process=process, least=least: process.poll() is not None or server.arrivals >= least)
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_for_hang_up(server.url)
            wait_until(lambda: not server.in_flight)
            assert billed(server)["tokens"] <= limit
        code, text = finish(command, tmp_path)
        assert code == 4, text
        assert "held for requests whose answer never came" in text
        assert billed(server)["tokens"] <= limit
        assert billed(server)["calls"] > sum((3, 17, 9, 26)) - 4 * 4
