"""Calls and prompt tokens a case of the four RAG-triad metrics, in the documents' steps and combined.

    python benchmarks/tokens.py [--cases 200]

Each setting is a whole run of its own against a local server: 5 contexts of about 200 tokens, an answer and a reference of
four sentences. Calls are counted in the server's log, tokens with the encoding of gpt-4o over the messages that were sent.

Goals: at most 6 calls and 6,500 prompt tokens a case with the documents' steps, at most 4 calls with `steps: combined`.
Peers on such cases: ragas 9 calls (and 2 embeddings), 11,372 tokens; deepeval 11 calls, 7,516 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MODEL = "gpt-4o-2024-08-06"
METRICS = ("faithfulness", "answer_relevance", "context_precision", "context_recall")
SETTINGS = {
    "documents' steps": [],
    "combined": ["metrics.faithfulness.steps=combined", "metrics.context_recall.steps=combined"],
}
PLACES = ["harbour", "mill", "orchard", "quarry", "station", "library", "theatre", "brewery", "bridge", "market"]


def write_cases(path: Path, count: int) -> None:
    """Distinct cases in plain English, written as a data file of the native form."""
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            place = PLACES[i % len(PLACES)]
            facts = [
                f"The {place} of district {i} was opened in {1800 + i} by the town council.",
                f"It lies {2 + i % 7} kilometres north of the old church.",
                f"About {300 + 11 * i} people worked there in its best year.",
                "It was rebuilt after the great flood and given a slate roof.",
            ]
            line = {
                "id": f"q{i}", "question": f"What is known about the {place} of district {i}?",
                "answer": " ".join(facts), "reference": " ".join(facts), "contexts": [_passage(facts, k) for k in range(5)],
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")


def _passage(facts: list[str], number: int) -> str:
    """About 200 tokens: one of the facts among sentences that tell of other things."""
    others = [
        f"Visitor {n} of the year {1900 + 10 * number + n} wrote in her diary that the road was muddy and the inn was full."
        for n in range(8)
    ]
    return " ".join([*others[:4], facts[number % len(facts)], *others[4:]])


def measure(name: str, words: list[str], data: Path, cases: int, folder: Path) -> None:
    from ragpipe.judge.pricing import count_tokens
    from ragpipe.testing.openai_server import read_log, serving_in_subprocess

    log = folder / "log.jsonl"
    with serving_in_subprocess("--log", str(log)) as url:
        command = [
            sys.executable, "-m", "ragpipe", "dataset=jsonl", f"dataset.path={data}", f"metrics=[{','.join(METRICS)}]",
            "judge=llm", f"judge.model=openai/{MODEL}", f"judge.api_base={url}", "judge.api_key_env=BENCH_KEY",
            "name=tokens", f"output_dir={folder}/outputs", *words,
        ]  # fmt: skip
        env = {**os.environ, "BENCH_KEY": "x", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    calls = len(read_log(log))
    (inputs,) = (folder / "outputs" / "tokens").glob("[0-9a-f]*/iteration-1/judge_inputs.parquet")
    rows = {row["key"]: row for row in pq.read_table(inputs, columns=["key", "metric", "step", "messages"]).to_pylist()}
    used: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for row in rows.values():
        step = f"{row['metric']}/{row['step']}"
        asked[step] += 1
        used[step] += sum(count_tokens(message["content"], MODEL) for message in json.loads(row["messages"]))
    print(f"{name}: {calls / cases:.2f} calls and {sum(used.values()) / cases:,.0f} prompt tokens a case, {cases} cases")
    for step in used:
        print(f"    {step:<28} {asked[step] / cases:5.2f} calls {used[step] / cases:7,.0f} tokens")


def main() -> None:
    from ragpipe.judge.pricing import count_tokens

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "cases.jsonl")
        write_cases(data, options.cases)
        sample = json.loads(data.read_text(encoding="utf-8").split("\n")[0])
        print(
            f"a context has {count_tokens(sample['contexts'][0], MODEL)} tokens, the answer {count_tokens(sample['answer'], MODEL)}"
        )
        for place, (setting, words) in enumerate(SETTINGS.items()):
            folder = Path(name, str(place))
            folder.mkdir()
            measure(setting, words, data, options.cases, folder)


if __name__ == "__main__":
    main()
