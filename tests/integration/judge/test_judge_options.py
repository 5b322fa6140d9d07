"""What options of the judge do in whole runs: a plan says what it cannot know of them, and members of a jury have orders of their own."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs

CASES = 10


def test_a_plan_says_what_its_tokens_are_without(serve, tmp_path, capsys):
    words = write_cases(tmp_path / "cases.jsonl", CASES, chunks=4), tmp_path / "out", serve().url

    def planned(*extra: str) -> str:
        assert main(arguments(*words, "task=plan", *extra, metrics="faithfulness")) == 0
        return " ".join("".join(capsys.readouterr()).split())

    assert "are without the thoughts" in planned("judge.reasoning_effort=low")
    assert "without the reasons step by step" in planned("metrics.faithfulness.reasoning=true")
    assert "are without the" not in planned() + planned("judge.reasoning_effort=none")
    assert main(arguments(*words, "judge.reasoning_effort=low", metrics="faithfulness")) == 0, capsys.readouterr()
    assert "are without the" not in planned("judge.reasoning_effort=low"), "its replies are measured"
    assert "are without the thoughts" in planned("judge.reasoning_effort=high"), "they say nothing of another effort"


def test_the_members_of_a_jury_are_shown_items_in_orders_of_their_own(serve, tmp_path, capsys):
    server = serve()
    data = write_cases(tmp_path / "cases.jsonl", CASES, chunks=4)
    words = ["dataset=jsonl", f"dataset.path={data}", "metrics=[context_precision]", "name=torture", f"output_dir={tmp_path}/out"]
    for name in "ab":
        member = f"jury.members.{name}"
        words += [f"+judge@{member}=llm", f"{member}.model=openai/m-{name}-2026-01-01", f"{member}.api_base={server.url}"]
        words += [f"{member}.api_key_env=RAGPIPE_TEST_KEY"]
    assert main([*words, "jury.members.b.shuffle_seed=7"]) == 0, capsys.readouterr()
    sent: dict[str, set[tuple[int, ...]]] = {}
    for row in _inputs(tmp_path):
        text = json.loads(row["messages"])[-1]["content"]
        sent.setdefault(row["judge"], set()).add(tuple(_order(text)))
    plain, drawn = (orders for _, orders in sorted(sent.items()))
    assert plain == {(0, 1, 2, 3)}
    assert len(drawn) > 4
    run = f"run={_latest(tmp_path)}"
    capsys.readouterr()
    assert main(["task=explain", run, "case=q00000", "metric=context_precision"]) == 0
    assert "jury.members.b.shuffle_seed=7" in capsys.readouterr().out
    assert main(["task=verify", run]) == 0


def _inputs(tmp_path: Path) -> list[dict[str, Any]]:
    return pq.read_table(_latest(tmp_path) / "iteration-1" / "judge_inputs.parquet").to_pylist()


def _order(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"Passage (\d) of case", text)]


def _latest(tmp_path: Path) -> Path:
    return tmp_path / "out" / "torture" / "latest"
