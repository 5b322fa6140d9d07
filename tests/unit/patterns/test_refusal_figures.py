"""The figures of docs/citations.md against the data they were measured on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("refusals_benchmark", ROOT / "benchmarks" / "refusals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.slow
def test_the_page_states_the_figures(benchmark, real_data):
    page = (ROOT / "docs" / "citations.md").read_text(encoding="utf-8").split("\n")
    for name in benchmark.SETS:
        assert benchmark.measure(real_data, name) in page


def test_both_halves_hold_something(benchmark):
    names = [str(number) for number in range(200)]
    assert 70 < sum(benchmark.held_out(name) for name in names) < 130
