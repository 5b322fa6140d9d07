"""The figures of docs/prompts.md against the data they were measured on."""

from pathlib import Path

import pytest
import rules as benchmark

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_page_states_the_figures(real_data):
    page = (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8").split("\n")
    for name in benchmark.REFUSAL_SETS:
        assert benchmark.refusal_row(real_data, name) in page


def test_both_halves_hold_something():
    names = [str(number) for number in range(200)]
    assert 70 < sum(benchmark.untouched(name) for name in names) < 130
