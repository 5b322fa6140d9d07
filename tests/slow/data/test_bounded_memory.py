"""Reading 100,000 records takes the memory of their ids, not of their texts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import sys
from pathlib import Path
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings
count = sum(1 for _ in open_dataset(DatasetSettings(path=sys.argv[1]), Path(sys.argv[2])))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(count, int(peak.split()[1]) >> 10)
"""


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_100_000_records(tmp_path: Path, form: str) -> None:
    peaks = {}
    for count in (10_000, 100_000):
        with open(tmp_path / f"d.{form}", "w", encoding="utf-8") as file:
            file.write("[" if form == "json" else "")
            for i in range(count):
                chunks = [{"id": f"d{i}-{k}", "score": 1 / (k + 1), "text": "some words " * 8} for k in range(5)]
                record = {"id": f"q{i}", "question": f"Question {i}?", "answer": "words " * 20, "chunks": chunks}
                file.write(("," if form == "json" and i else "") + json.dumps(record) + "\n")
            file.write("]" if form == "json" else "")
        args = [sys.executable, "-c", READ, f"d.{form}", str(tmp_path)]
        read, peak = subprocess.run(args, check=True, capture_output=True, text=True).stdout.split()
        assert int(read) == count
        peaks[count] = int(peak)
    assert peaks[100_000] <= 150  # MiB; ids and places of 100,000 cases are about 45
    assert peaks[100_000] - peaks[10_000] <= 70
