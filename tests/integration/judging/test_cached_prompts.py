"""A whole run at a server with Anthropic's Messages API: what is marked is found again, and each token is paid at its price."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.support.anthropic_server import serving_anthropic
from tests.support.harness import environment, rows

pytestmark = pytest.mark.slow

PRICES = {"input": 1.0, "output": 5.0, "cached_input": 0.1, "written_input": 1.25}


def test_tokens_written_and_found_are_those_of_the_server_to_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", environment()["RAGPIPE_TEST_KEY"])
    monkeypatch.chdir(tmp_path)
    passages = [
        {"id": f"c{n}", "text": f"Passage {n}: " + f"the office number {n} opens at nine. " * 40} for n in range(5)
    ]
    samples = [
        {"id": f"q{case}", "question": f"When does office {case} open?", "contexts": passages, "method": f"m{method}",
         "answer": f"Office {case} opens at nine, says method {method}."}
        for case in range(3) for method in range(4)
    ]  # fmt: skip
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    words = [
        "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[groundedness]", "name=cached", "output_dir=out", "judge=llm",
        "judge.model=anthropic/claude-3-5-haiku-20241022", "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY",
        "judge.output_mode=plain", f"judge.prices={PRICES}".replace("'", ""),
    ]  # fmt: skip
    with serving_anthropic() as server:
        address = f"judge.api_base={server.url}"
        assert main([*words, address]) == 0
        marked = [
            usage for usage in server.log if usage["cache_creation_input_tokens"] or usage["cache_read_input_tokens"]
        ]
        assert len(server.log) == 12
        assert len(marked) > 6
        assert main([*words, address]) == 0
        assert len(server.log) == 12, "a mark is in no key"
    total = {kind: sum(usage[kind] for usage in server.log) for kind in server.log[0]}
    cost = json.loads((tmp_path / "out/cached/latest/iteration-1/cost.json").read_text())
    spent, read, written = cost["spent"], total["cache_read_input_tokens"], total["cache_creation_input_tokens"]
    assert read > written > 0
    assert (spent["tokens_cached"], spent["tokens_written"], spent["tokens_out"]) == (
        read,
        written,
        total["output_tokens"],
    )
    assert spent["tokens_in"] == total["input_tokens"] + read + written
    usd = total["input_tokens"] * 1.0 + total["output_tokens"] * 5.0 + read * 0.1 + written * 1.25
    assert spent["usd"] == pytest.approx(usd / 1e6)
    assert cost["used"]["usd"] == pytest.approx(usd / 1e6)
    inputs = rows(tmp_path / "out/cached/latest/iteration-1/judge_inputs.parquet")
    assert sum(row["tokens_written"] or 0 for row in inputs) == written
