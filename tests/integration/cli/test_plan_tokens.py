"""The tokens of a plan, step by step, against what a server counted and what a recorded judge wrote."""

import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.resources import data_path
from ragpipe.judge.pricing import count_tokens
from ragpipe.testing.openai_server import serving
from tests.support.harness import write_cases

MODEL = "openai/gpt-4o-2024-08-06"
FIXED_STEPS = {"faithfulness/extract", "groundedness/grade", "correctness/grade", "chunk_faithfulness/first"}
"""Steps whose questions follow from the case alone. What the others show are replies, which a plan can only guess."""


pytestmark = pytest.mark.usefixtures("here")


def planned_steps(*words: str) -> dict[str, dict]:
    assert main(["task=plan", "plan.out=plan.json", *words]) == 0
    steps = json.loads(Path("plan.json").read_text())["steps"]
    return {f"{step['metric']}/{step['prompt'].rpartition('/')[2].partition('.')[0]}": step for step in steps}


@pytest.mark.thorough
@pytest.mark.slow
def test_prompts_are_counted_as_the_server_counts_them() -> None:
    """120 cases of growing length, of which 50 are rendered: the rest is counted by its length."""
    lines = write_cases(Path("data.jsonl"), 120).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for number, record in enumerate(records):
        record["contexts"] = [text * (1 + number // 15) for text in record["contexts"]]
        record["answer"] += " It names a third thing, which is longer." * (number // 10)
    Path("data.jsonl").write_text("\n".join(map(json.dumps, records)))
    with serving(count=partial(count_tokens, model=MODEL)) as server:
        words = [
            "dataset=jsonl", "dataset.path=data.jsonl", "metrics=[faithfulness,groundedness,correctness,chunk_faithfulness]",
            "judge=llm", f"judge.model={MODEL}", f"judge.api_base={server.url}", "judge.api_key_env=RAGPIPE_TEST_KEY",
            "name=counted", "judge.endpoint=test",
        ]  # fmt: skip
        before = planned_steps(*words)
        assert main(words) == 0
        bill = sum(line["usage"]["prompt_tokens"] for line in server.log)
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    replies: defaultdict[str, list[int]] = defaultdict(list)
    for row in pq.read_table("outputs/counted/latest/iteration-1/judge_inputs.parquet").to_pylist():
        tokens[f"{row['metric']}/{row['step']}"].append(row["tokens_in"])
        replies[f"{row['metric']}/{row['step']}"].append(row["tokens_out"])
    assert sum(map(sum, tokens.values())) == bill
    for step in FIXED_STEPS:
        assert before[step]["calls"] == len(tokens[step]) == 120
        assert before[step]["tokens_in"] == pytest.approx(sum(tokens[step]), rel=0.05), step
    after = planned_steps(*words, "judge.season=again")
    for step in FIXED_STEPS:
        assert after[step]["earlier_replies"] == 120
        assert after[step]["tokens_out"] == pytest.approx(sum(replies[step]), rel=0.01), step
    assert not any(step["earlier_replies"] for step in planned_steps(*words, "judge.endpoint=other").values())


@pytest.mark.slow
def test_completions_are_those_of_a_recorded_judge_by_step() -> None:
    """The recording has the completion tokens of a large language model for seven steps: the plan knows none of its replies."""
    recorded: defaultdict[str, list[int]] = defaultdict(list)
    _, *lines = data_path("package:demo/judge_replies.jsonl").read_text(encoding="utf-8").splitlines()
    for reply in map(json.loads, lines):
        *_, metric, step = reply["question"].split(" / ")
        if "repair" not in step:
            recorded[f"{metric}/{step.partition('.')[0]}"].append(reply["tokens_out"])
    steps = planned_steps("+experiment=quickstart_llm")
    assert set(recorded) <= set(steps)
    for name, tokens in recorded.items():
        per_call = steps[name]["tokens_out"] / steps[name]["calls"]
        assert per_call == pytest.approx(sum(tokens) / len(tokens), rel=0.25), name
        assert steps[name]["earlier_replies"] == 0
