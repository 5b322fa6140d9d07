"""The score stage over stored tables: 100,000 cases x 8 metrics, in a process of its own.

    python benchmarks/rescore.py [--cases 100000] [--chunks 5] [--rounds 3]

Writes samples, outputs, scores and judge_inputs once into a temporary folder (a thousand cases a row group, as a run
does), then scores them in a fresh process: records.parquet, metrics.json with gates, cost.json. Printed: seconds with the
start of the process, peak resident memory, and the ratio of CPU time to a process that only reads the same four tables with
pyarrow. Goal: under 15 s and 1 GiB on two shared cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.core.sample import Chunk, Citation, Output, Sample
from ragpipe.store.table_rows import JUDGE_INPUTS, OUTPUTS, SAMPLES, SCORES, output_row, sample_row, table_of

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 1000
SPECS = {
    "retrieval_score": {}, "context_relevance": {}, "faithfulness": {}, "answer_relevance": {},
    "context_precision": {"low": 0, "high": 100}, "context_recall": {"low": 0, "high": 100},
    "groundedness": {"low": 0, "high": 5}, "correctness": {"low": 1, "high": 5},
}  # fmt: skip
GATES = {
    "faithful": {"score": "faithfulness", "min": 0.1},
    "hard": {"score": "correctness", "of": "pass_rate", "min": 0.1, "where": {"difficulty": "hard"}},
    "shallow": {"score": "ragas_score", "min": 0.1, "where": {"meta.region": ["north", "south"], "method": "b"}},
}
TEXT = "A passage of some forty words, as long as those that retrieval systems cut documents into, only here the same over "
DERIVED = ("records.parquet", "metrics.json", "cost.json", "low_scores.json")
CPU = itemgetter(1)  # of what `measure` returns: wall time says more of other processes than of this one
SCORE = """
import json, sys
from pathlib import Path
from ragpipe.core.score import ScoreSpec
from ragpipe.score.settings import ScoringSettings
from ragpipe.runs.scoring import ScoreInputs, score_iteration
from ragpipe.store.call_store import paid_by
root, specs, settings = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
score_iteration(ScoreInputs(root / "iteration-1", samples=root / "samples.parquet", outputs=root / "outputs.parquet",
          specs=[ScoreSpec(name, **scale) for name, scale in specs.items()], settings=ScoringSettings(**settings),
          signature="benchmark", judge={"label": "none", "calibrated": None}, run_id="r", spent=paid_by(root / "none", "r", 1), rates={}))
"""
READ = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
root = Path(sys.argv[1])
for name in ("samples.parquet", "outputs.parquet", "iteration-1/scores.parquet", "iteration-1/judge_inputs.parquet"):
    with pq.ParquetFile(root / name) as file:
        for batch in file.iter_batches(batch_size=2048):
            pass
"""


def write(root: Path, cases: int, chunks: int, seed: int = 0) -> None:
    """Two methods on each question; two calls for every judged score; one score in fifty skipped, one in a hundred failed."""
    (root / "iteration-1").mkdir(parents=True)
    drawn = random.Random(seed)
    paths = {
        "samples.parquet": SAMPLES, "outputs.parquet": OUTPUTS, "iteration-1/scores.parquet": SCORES,
        "iteration-1/judge_inputs.parquet": JUDGE_INPUTS,
    }  # fmt: skip
    writers = {name: pq.ParquetWriter(root / name, schema, compression="zstd") for name, schema in paths.items()}
    for start in range(0, cases, BLOCK):
        numbers = range(start, min(start + BLOCK, cases))
        rows: dict[str, list[dict[str, Any]]] = {
            "samples.parquet": [_sample(n // 2) for n in numbers if n % 2 == 0],
            "outputs.parquet": [_output(n, chunks, drawn) for n in numbers],
            "iteration-1/scores.parquet": [row for n in numbers for row in _scores(n, drawn)],
            "iteration-1/judge_inputs.parquet": [row for n in numbers for row in _calls(n)],
        }
        for name, found in rows.items():
            writers[name].write_table(table_of(found, paths[name]))
    for writer in writers.values():
        writer.close()


def _sample(number: int) -> dict[str, Any]:
    return sample_row(Sample(
        id=f"question-{number}", question=f"What does paragraph {number} say of it?", references=["It says this."],
        category=f"c{number % 7}", difficulty=("easy", "hard")[number % 2], question_type=f"t{number % 4}",
        tags=[f"g{number % 5}", f"h{number % 3}"], answerable=number % 10 != 0,
        meta={"region": ("north", "south", "east")[number % 3], "year": 2000 + number % 20},
    ))  # fmt: skip


def _output(number: int, chunks: int, drawn: random.Random) -> dict[str, Any]:
    return output_row(Output(
        sample_id=f"question-{number // 2}", method="ab"[number % 2], answer=f"It says this, and {number} more. " * 4,
        chunks=[
            Chunk(id=f"d{number}-{r}", doc_id=f"d{number}", rank=r + 1, score=1 / (r + 1), text=f"{TEXT}{number} {r}. " * 4,
                  doc_type="report" if r else "letter")
            for r in range(chunks)
        ],
        citations=[Citation(marker="[1]", chunk_id=f"d{number}-0", text="It says this")],
        timings={"retrieval_ms": drawn.random() * 100, "generation_ms": drawn.random() * 1000},
    ), number // 2)  # fmt: skip


def _scores(number: int, drawn: random.Random) -> Iterator[dict[str, Any]]:
    for name, scale in SPECS.items():
        low, high = scale.get("low", 0), scale.get("high", 1)
        draw = drawn.random()
        status = "error" if draw < 0.01 else "skipped" if draw < 0.03 else "ok"
        reason = {"error": "refused: it would not say", "skipped": "no_reference_answer", "ok": f"Feedback {number}: fine."}
        details = json.dumps({"claims": [{"text": f"{TEXT}{number}", "verdict": "supported"}] * 3})
        yield {
            "sample_id": f"question-{number // 2}", "method": "ab"[number % 2], "repeat": 1, "iteration": 1,
            "metric": name, "score_name": name,
            "value": low + drawn.random() * (high - low) if status == "ok" else None, "status": status,
            "reason": reason[status], "details": details if status == "ok" else None, "calls": [f"{number:032x}{name[:4]}"],
        }  # fmt: skip


def _calls(number: int) -> Iterator[dict[str, Any]]:
    for place, name in enumerate(list(SPECS)[1:]):
        for step in ("extract", "verify"):
            yield {
                **dict.fromkeys(JUDGE_INPUTS.names), "sample_id": f"question-{number // 2}", "method": "ab"[number % 2],
                "repeat": 1, "iteration": 1, "metric": name, "step": step, "turn": "ask", "key": f"{number:048x}{place:08x}{step[:1]:>8}",
                "judge": "provider/model", "messages": json.dumps([{"role": "user", "content": f"{TEXT}{number}" * 3}]),
                "reply": f"Reply {number}", "status": "ok", "flags": [], "tokens_in": 900, "tokens_out": 120,
                "tokens_cached": 0, "paid_by": "r/1", "paid_usd": 0.0004, "latency_ms": 200.0 + number % 100, "attempts": 1,
            }  # fmt: skip


def measure(code: str, *words: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak resident MiB of a Python process."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *words], env={**os.environ, "PYTHONPATH": str(ROOT)})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the process ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the tables; used again when they are there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary, "run")
        if not (root / "iteration-1").exists():
            write(root, args.cases, args.chunks)
        settings: Mapping[str, Any] = {"gates": GATES, "slices": ["method*question_type", "meta.region"]}
        reading = min((measure(READ, str(root)) for _ in range(args.rounds)), key=CPU)
        rounds = []
        for _ in range(args.rounds):
            for name in DERIVED:  # written anew each time
                (root / "iteration-1" / name).unlink(missing_ok=True)
            rounds.append(measure(SCORE, str(root), json.dumps(SPECS), json.dumps(settings)))
        wall, cpu, peak = min(rounds, key=CPU)
        size = sum(path.stat().st_size for path in root.rglob("*.parquet") if path.name != "records.parquet") / 2**20
        print(f"{args.cases:,} cases x {len(SPECS)} metrics, tables of {size:,.0f} MiB")
        print(f"reading alone   {reading[0]:6.2f} s wall, {reading[1]:6.2f} s CPU, peak {reading[2]:5.0f} MiB")
        print(
            f"the score stage {wall:6.2f} s wall, {cpu:6.2f} s CPU, peak {peak:5.0f} MiB, {cpu / reading[1]:.1f} x the CPU of reading"
        )


if __name__ == "__main__":
    main()
