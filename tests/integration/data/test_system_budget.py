"""The budget of a system under test: the server's log is the bill, and a collection that used it up goes on where it stopped."""

import json
import re
import signal
import subprocess

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import finish, start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow  # whole runs, several per test


@pytest.fixture(autouse=True)
def _place(here):
    lines = [json.dumps({"id": f"q{i}", "question": f"How long is warranty {i}? " + "Please say. " * (i % 5)}) for i in range(20)]
    (here / "q.jsonl").write_text("\n".join(lines))


def words(server, *more):
    return [
        "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[answer_class]", "name=live", "system=openai", "system.concurrency=4",
        f"system.url={server.url}/chat/completions", "system.params.model=rag-2026-01-01", *more,
    ]  # fmt: skip


def tokens(server):
    return [line["usage"]["total_tokens"] for line in server.log if line["usage"]]


def test_a_collection_ends_and_goes_on_with_a_raised_budget(capsys):
    with serving(latency_ms=5, jitter=0.9) as server:
        assert main(words(server, "system.budget.calls=7")) == 4
        shown = capsys.readouterr()
        assert len(tokens(server)) == server.arrivals == 7
        assert "system.budget: spent 7 calls of 7 calls" in shown.out
        assert "system.budget.calls=7 is used up" in shown.err
        assert re.search(r"to go on where it stopped: .* system\.budget\.calls=14$", shown.err, re.M)
        assert main(words(server, "system.budget.calls=7")) == 4
        assert server.arrivals == 7, "earlier starts count"
        assert main(words(server, "system.budget.calls=20")) == 0
        assert server.arrivals == 20


def test_tokens_are_counted_by_the_usage_of_the_answers(capsys):
    """A request holds 1.25 times the largest answer so far; the prompts here differ by more, by at most 15 tokens."""
    with serving(latency_ms=5, jitter=0.9) as server:
        assert main(words(server, "system.budget.tokens=250")) == 4
        bill = tokens(server)
        assert f"spent {sum(bill)} tokens of 250 tokens" in capsys.readouterr().out
        assert 250 - 1.25 * max(bill) - 1 <= sum(bill) <= 250 + 4 * 15
        assert main(words(server, "system.budget.tokens=100000")) == 0
        assert len(tokens(server)) == 20


def test_money_needs_a_price_and_is_refused_after_one_answer_without(capsys):
    with serving() as server:
        assert main(words(server, "system.budget.usd=1")) == 2
        assert "system.prices" in capsys.readouterr().err
        assert server.arrivals == 1
        prices = "system.prices={input: 1000.0, output: 1000.0}"
        assert main(words(server, "name=priced", "system.budget.usd=0.2", prices)) == 4
        bill = tokens(server)[1:]
        assert sum(bill) / 1000 <= 0.2 + 4 * 0.015
        assert len(bill) > 2


def test_a_judge_without_money_ends_the_run_before_the_system_is_asked(capsys):
    with serving() as server, serving() as judge:
        command = words(
            server, "judge=llm", "judge.model=openai/test-model-2026-01-01", f"judge.api_base={judge.url}",
            "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.budget.tokens=100",
        )  # fmt: skip
        assert main(command) == 4
        assert (server.arrivals, judge.arrivals) == (0, 0)
        assert "judge.budget.tokens=100 is used up" in capsys.readouterr().err


def test_a_kill_does_not_forget_what_was_under_way(tmp_path):
    with serving(latency_ms=100) as server:
        command = words(server, "system.budget.calls=12")
        process = start(command, tmp_path, stdout=subprocess.DEVNULL)
        wait_until(lambda: server.arrivals >= 4, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        code, text = finish(command, tmp_path)
        assert code == 4, text
        assert server.arrivals <= 12
        assert "held for requests whose answer never came" in text
