"""A server that caches the beginnings of answered prompts: the bill against its own log."""

import json
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments

pytestmark = pytest.mark.slow


def write_long_cases(path: Path, cases: int) -> Path:
    """Two methods answer each question from the same passages, of about 5,000 characters."""
    lines = []
    for number in range(cases):
        contexts = [
            f"Passage {k} of case {number}. "
            + " ".join(f"word{(number * 7 + k * 3 + w) % 997} is near it" for w in range(55))
            for k in range(5)
        ]
        lines += [
            json.dumps({
                "id": f"q{number}", "method": method, "question": f"What does case {number} say?",
                "answer": f"Case {number} says {number * 3} things, by {method}.", "contexts": contexts,
            })
            for method in ("a", "b")
        ]  # fmt: skip
    path.write_text("\n".join(lines))
    return path


def test_cached_tokens_have_their_own_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    with serving(latency_ms=20, caches=True) as server:
        prices = "judge.prices={input: 100.0, output: 400.0, cached_input: 10.0}"
        data = write_long_cases(tmp_path / "data.jsonl", 3)
        assert main(arguments(data, tmp_path / "out", server.url, prices, metrics="groundedness", concurrency=1)) == 0
        usages = [line["usage"] for line in server.log]
    assert len(usages) == 3 * 2
    tokens = sum(u["prompt_tokens"] for u in usages)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
    assert tokens > cached > 0
    usd = (100 * (tokens - cached) + 10 * cached + 400 * sum(u["completion_tokens"] for u in usages)) / 1e6
    spent = json.loads((tmp_path / "out/torture/latest/iteration-1/cost.json").read_text())["spent"]
    assert (spent["tokens_cached"], spent["usd"]) == (cached, pytest.approx(usd))
