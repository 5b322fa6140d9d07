"""Memory is bounded by the bytes of a few blocks, however many cases and metrics there are."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import ROOT, Server, arguments, start
from tests.support.process_memory import peak_mib

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
CASES, LIMIT_MIB = 600, 340
METRICS = "faithfulness,answer_relevance,context_relevance,context_precision,context_recall,correctness,groundedness,chunk_relevancy"


def large_cases(path: Path) -> Path:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(5000)]

    def text(size: int) -> str:
        return " ".join(chance.choices(words, k=size // 4))[:size]

    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES):
            record = {
                "id": f"q{i}", "question": f"What of {i}?", "reference": f"It is {i}.", "answer": f"It is {i}. {text(200)}.",
                "contexts": [text(2000) for _ in range(10)],
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    return path


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


CASES_OF_HUNDRED_THOUSAND, CHUNKS = 100_000, 8
MOST_MIB = 400
"""Resident memory."""


def write_cases(path: Path) -> None:
    draw = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES_OF_HUNDRED_THOUSAND):
            ids = draw.sample(range(500), CHUNKS)
            chunks = [{"id": f"d{d}-0", "doc_id": f"d{d}", "score": 1 - rank / CHUNKS} for rank, d in enumerate(ids)]
            relevant = [f"d{d}" for d in draw.sample(range(500), 3)]
            record = {"id": f"q{i}", "question": f"question {i}", "answer": "an answer", "chunks": chunks}
            file.write(json.dumps({**record, "relevant_docs": relevant}) + "\n")


def peak_of_run(folder: Path) -> int:
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=large"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *words, "report.formats=[terminal]"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    peak = peak_mib(process)
    assert process.returncode == 0
    return peak


def test_a_run_is_bounded_in_memory(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.jsonl")
    assert peak_of_run(tmp_path) <= MOST_MIB


PROFILE = """
import sys
from pathlib import Path
from ragpipe.data.dataset import Record
from ragpipe.core.sample import Chunk, Output, Sample
from ragpipe.runs.data_profile import DataProfile
from ragpipe.runs.load_dataset import load_dataset
from ragpipe.store.run_folder import RunFolder
def records(i):
    sample = Sample(id=f"q{i}", question=f"Question {i}? " * 20, references=["A reference. " * 20], meta={"day": i % 365})
    for method in ("a", "b"):
        chunks = [Chunk(id=f"c{i}-{k}", rank=k + 1, score=1 / (k + 1), text=f"Passage {i} {k}. " * 40) for k in range(3)]
        answer = f"Answer {i} of {method}. " * 30
        output = Output(sample_id=sample.id, method=method, answer=answer, chunks=chunks, timings={"total": 900.0 + i})
        yield Record(sample, output, "")
folder = RunFolder(Path(sys.argv[2]))
load_dataset((record for i in range(int(sys.argv[1])) for record in records(i)), samples=folder.samples, outputs=folder.outputs)
found = DataProfile().read(folder.samples, folder.outputs).document()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(found["samples"], sum(found["cases"].values()), len(found["findings"]), int(peak.split()[1]) >> 10)
"""


def test_a_profile_takes_the_memory_of_ids_and_hashes_and_not_of_texts(tmp_path: Path) -> None:
    peaks = {}
    for samples in (5_000, 25_000):
        args = [sys.executable, "-c", PROFILE, str(samples), str(tmp_path)]
        read, cases, findings, peak = map(int, subprocess.run(args, check=True, capture_output=True, text=True).stdout.split())
        assert (read, cases, findings) == (samples, 2 * samples, 0)
        peaks[samples] = peak
    assert peaks[25_000] - peaks[5_000] <= 50  # MiB for 40,000 cases, whose texts are 110 MiB
