"""Whole runs with each option of the judge: off asks nothing new, on asks new questions, and a resumed or explained run sees the
order that was shown. Calls are counted from the server's own log, by the hash of each body."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs

METRICS = "faithfulness,context_precision,answer_relevance"
CASES = 10


def _questions(server: Any) -> int:
    return len({line["body"] for line in server.log if line["status"] == 200})


@pytest.mark.thorough
def test_each_option_asks_for_what_it_changes_and_off_asks_nothing(serve, tmp_path, capsys):
    server = serve()
    data = write_cases(tmp_path / "cases.jsonl", CASES, chunks=4)

    def asked_by(*extra: str) -> tuple[int, dict[str, int]]:
        """How many questions this run sends, and the rows of its questions by step; the run is complete."""
        before = _questions(server)
        assert main(arguments(data, tmp_path / "out", server.url, *extra, metrics=METRICS)) == 0, capsys.readouterr()
        return _questions(server) - before, Counter(row["step"] for row in _inputs(tmp_path))

    first, steps = asked_by()
    assert first == sum(steps.values()) > 0
    off = ("judge.reasoning_effort=null", "judge.shuffle_seed=null")
    assert asked_by(*off)[0] == 0
    shuffled, _ = asked_by("judge.shuffle_seed=7")
    assert 0 < shuffled <= steps["verify"] + steps["grade"]  # nothing to shuffle in `direct` and `extract`
    assert asked_by("judge.shuffle_seed=7")[0] == 0
    run = f"run={_latest(tmp_path)}"
    sent = {r["sample_id"]: json.loads(r["messages"])[-1]["content"] for r in _inputs(tmp_path) if r["step"] == "grade"}
    orders = {sample: _order(text) for sample, text in sent.items()}
    assert len({*map(tuple, orders.values())}) > 4
    sample = next(name for name, order in orders.items() if order != [0, 1, 2, 3])
    capsys.readouterr()
    assert main(["task=explain", run, f"case={sample}", "metric=context_precision", "messages=true"]) == 0
    text = capsys.readouterr().out
    assert "judge.shuffle_seed=7" in text
    assert _order(text[text.rindex("Contexts:") :]) == orders[sample]
    assert main(["task=rejudge", run, "rejudge.mode=stored"]) == 0
    assert main(["task=verify", run]) == 0
    graded, _ = asked_by("metrics.faithfulness.examples.verify=v1")
    assert graded == steps["verify"]
    copied = _latest(tmp_path) / "prompts" / "faithfulness" / "verify.examples.v1.yaml"
    assert copied.is_file()
    assert main(["task=rescore", f"run={_latest(tmp_path)}", "scoring.thresholds.faithfulness=0.9"]) == 0
    assert main(["task=verify", f"run={_latest(tmp_path)}"]) == 0
    reasoned, with_reasoning = asked_by("metrics.faithfulness.reasoning=true")
    assert 0 < reasoned <= sum(with_reasoning.values())
    thoughtful, _ = asked_by("judge.reasoning_effort=low")
    assert thoughtful == sum(steps.values())
    assert {json.loads(row["sent"])["reasoning_effort"] for row in _inputs(tmp_path)} == {"low"}

    def planned(*extra: str) -> str:
        capsys.readouterr()
        assert main(arguments(data, tmp_path / "out", server.url, "task=plan", *extra, metrics=METRICS)) == 0
        return " ".join("".join(capsys.readouterr()).split())

    thoughts = "are without the thoughts"
    measured, other = planned("judge.reasoning_effort=low"), planned("judge.reasoning_effort=high")
    assert f"{CASES} earlier replies" in measured
    assert thoughts not in measured
    assert "earlier replies" not in other  # another effort: its replies say nothing of these
    assert thoughts in other
    assert "without the reasons step by step" in planned("metrics.faithfulness.reasoning=true")
    assert "are without the" not in planned()


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
    rows: list[dict[str, Any]] = pq.read_table(_latest(tmp_path) / "iteration-1" / "judge_inputs.parquet").to_pylist()
    return rows


def _order(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"Passage (\d) of case", text)]


def _latest(tmp_path: Path) -> Path:
    return tmp_path / "out" / "torture" / "latest"
