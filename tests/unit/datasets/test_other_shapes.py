"""The language holds for data sets that were not in mind when it was made: real files, a mapping in YAML, no code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ragpipe.datasets.dataset import Record, open_dataset
from ragpipe.datasets.settings import DatasetSettings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

Real = Callable[[str], Path]


def mapped(path: Path, text: str) -> list[Record]:
    return list(open_dataset(DatasetSettings.model_validate({"path": str(path), **yaml.safe_load(text)}), Path("/")))


@pytest.mark.parametrize("judge", ["GPT-4/CoT", "ChatGPT/Rating", "LLaMA2/Vanilla"])
def test_llmbar_a_judge_asked_in_both_orders(real_data: Real, judge: str) -> None:
    """The last of a judge's tries counts; 1 where the winner is the output that people prefer."""
    records = mapped(
        real_data(f"llmbar/Natural/{judge}/result.json"),
        """
        fields:
          id: to_string(_line)
          question: input
          answer: "join(' | ', [output_1, output_2])"
          recorded:
            fields:
              as_given: &right
                path: "join(' ', [to_string(label), results[-1].\\"swap = False\\".winner])"
                map: {1 1: 1, 2 2: 1, 1 2: 0, 2 1: 0}
                otherwise: {unreadable: no winner}
              swapped: {<<: *right, path: "join(' ', [to_string(label), results[-1].\\"swap = True\\".winner])"}
    """,
    )
    wanted = json.loads(real_data("EXPECTED.json").read_text())["llmbar"][f"Natural/{judge}"]
    pairs = [(r.output.recorded["as_given"], r.output.recorded["swapped"]) for r in records if r.output]
    assert len(pairs) == wanted["n"]
    assert sum(first for first, _ in pairs) == wanted["correct_False"]
    assert sum(second for _, second in pairs) == wanted["correct_True"]
    assert sum(first * second for first, second in pairs) == wanted["correct_both"]
    assert sum(first == second for first, second in pairs) == wanted["equal"]


def test_ragas_annotations_a_list_inside_a_document(real_data: Real) -> None:
    records = mapped(
        real_data("ragas_annotated/sample_annotated_summary.json"),
        """
        records: summary_accuracy
        fields:
          id: to_string(_line)
          question: metric_input.user_input
          answer: metric_input.response
          meta: {fields: {accepted: is_accepted}}
    """,
    )
    assert len(records) == 19
    assert sum(r.sample.meta["accepted"] for r in records) == 10
