"""A profile of 50,000 cases takes the memory of ids and hashes, not of texts."""

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_50_000_cases(tmp_path: Path) -> None:
    peaks = {}
    for samples in (5_000, 25_000):
        args = [sys.executable, "-c", PROFILE, str(samples), str(tmp_path)]
        read, cases, findings, peak = map(int, subprocess.run(args, check=True, capture_output=True, text=True).stdout.split())
        assert (read, cases, findings) == (samples, 2 * samples, 0)
        peaks[samples] = peak
    assert peaks[25_000] - peaks[5_000] <= 50  # MiB for 40,000 cases, whose texts are 110 MiB
