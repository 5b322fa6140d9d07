"""Memory is bounded by the bytes of a few blocks, however many cases and metrics there are."""

import json
import random
import sys
from pathlib import Path

import pytest

from tests.support.harness import Server, arguments, start
from tests.support.process_memory import peak_mib

CASES, LIMIT_MIB = 600, 340
METRICS = "faithfulness,answer_relevance,context_relevance,context_precision,context_recall,correctness,groundedness,chunk_relevancy"


def large_cases(path: Path) -> Path:
    """Cases of 20 KB, of words that no other case repeats in the same order."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(5000)]

    def text(size: int) -> str:
        found = " ".join(chance.choices(words, k=size // 4))
        return found[:size]

    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES):
            record = {
                "id": f"q{i}", "question": f"What of {i}?", "reference": f"It is {i}.", "answer": f"It is {i}. {text(200)}.",
                "contexts": [text(2000) for _ in range(10)],
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    return path


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_eight_metrics_over_large_cases(tmp_path: Path) -> None:
    """80 MB of messages: held whole, with what is around them, they were twice the limit."""
    data = large_cases(tmp_path / "cases.jsonl")
    with Server(tmp_path / "log") as server, open(tmp_path / "said", "w") as said:
        words = arguments(data, tmp_path / "out", server.url, concurrency=32, metrics=METRICS)
        process = start(words, tmp_path, stdout=said)
        peak = peak_mib(process)
        assert process.wait() == 0, (tmp_path / "said").read_text()
    print(f"{peak} MiB")
    assert peak < LIMIT_MIB
