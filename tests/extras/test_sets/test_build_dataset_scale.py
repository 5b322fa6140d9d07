"""A test set from 50,000 lines of the benchmark's log, in processes of their own: memory, and hashes that no order changes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

LINES, N = 50_000, 500


@pytest.fixture
def benchmark() -> ModuleType:
    """The module `benchmarks/build_dataset.py`."""
    path = Path(__file__).parents[3] / "benchmarks" / "build_dataset.py"
    spec = importlib.util.spec_from_file_location("build_dataset_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
@pytest.mark.slow
def test_the_same_set_from_another_order(benchmark: ModuleType, tmp_path: Path) -> None:
    benchmark.write_log(tmp_path, LINES, seed=1)
    small, card = benchmark.build(tmp_path, "set", N)
    assert card["cases"] == N
    rows = {row["step"]: row for row in card["steps"]}
    assert rows["records read"]["kept"] == LINES
    assert rows["exact duplicates"]["kept"] == len({_plain(line) for line in benchmark.log_lines(LINES, 1)})
    _, other = benchmark.build(tmp_path, "other-seed", N, "seed=1")
    benchmark.write_log(tmp_path, LINES, seed=1, shuffled=True)
    _, again = benchmark.build(tmp_path, "again", N)
    assert again["sha256"] == card["sha256"] != other["sha256"]
    assert small.peak < 300  # MiB; 40 bytes per line are 2 of them


def _plain(line: str) -> str:
    """The question without case, with single blanks, without the signs at its end: the log has no others."""
    return " ".join(json.loads(line)["request"]["question"].lower().split()).rstrip("?!. ")
