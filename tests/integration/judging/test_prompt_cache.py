"""A server that caches the beginnings of answered prompts: what the order of the questions saves, by its own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments

pytestmark = pytest.mark.slow  # whole runs, several per test

METRICS = "faithfulness,groundedness,context_relevance,context_sufficiency"


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


def cached_share(tmp_path: Path, share_prefixes: bool) -> tuple[float, float, int]:
    with serving(latency_ms=60, jitter=0.5, caches=True) as server:
        prices = "judge.prices={input: 100.0, output: 400.0, cached_input: 10.0}"
        words = arguments(
            write_long_cases(tmp_path / "data.jsonl", 12), tmp_path / f"out-{share_prefixes}", server.url, prices,
            f"judge.share_prefixes={str(share_prefixes).lower()}", "report.detail=full", metrics=METRICS, concurrency=8,
        )  # fmt: skip
        assert main(words) == 0
        usages = [line["usage"] for line in server.log]
    tokens, cached = (
        sum(u["prompt_tokens"] for u in usages),
        sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages),
    )
    written = sum(u["completion_tokens"] for u in usages)
    usd = (100 * (tokens - cached) + 10 * cached + 400 * written) / 1e6
    spent = json.loads((tmp_path / f"out-{share_prefixes}/torture/latest/iteration-1/cost.json").read_text())["spent"]
    assert (spent["tokens_cached"], spent["usd"]) == (cached, pytest.approx(usd)), "cached tokens have their own price"
    return cached / tokens, usd, len(usages)


def test_questions_that_begin_alike_are_asked_in_an_order_that_the_cache_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    ordered, cheap, calls = cached_share(tmp_path, True)
    assert "of their text began as an earlier prompt did" in capsys.readouterr().out
    at_once, dear, _ = cached_share(tmp_path, False)
    assert calls == 12 * 2 * 4
    assert ordered > at_once + 0.15
    assert ordered > 0.5
    assert cheap < dear
