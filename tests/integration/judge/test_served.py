"""Replies of another model than the pinned one: told apart, refused or flagged, counted, and checked when read."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.score import warning_texts
from ragpipe.judge.provider_state import ServedModel
from ragpipe.judge.settings import JudgeSettings
from ragpipe.store.call_store import census
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow  # whole runs, several per test

PINNED = "openai/gpt-4o-mini-2024-07-18"


@pytest.mark.thorough(tried=6)
@pytest.mark.parametrize(("asked", "served", "kind"), [
    (PINNED, "gpt-4o-mini-2024-07-18", "asked"),
    (PINNED, "openai/gpt-4o-mini-2024-07-18", "asked"),
    (PINNED, "GPT-4o-mini-2024-07-18", "asked"),
    (PINNED, "gpt-4o-mini", "other"),
    (PINNED, "gpt-4o-mini-2024-07-19", "other"),
    (PINNED, "gpt-4o-mini-2024-07-18-001", "other"),
    (PINNED, None, "unknown"),
    (PINNED, "", "unknown"),
    (PINNED, "my-deployment", "asked"),  # declared below
    ("openrouter/openai/gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06", "asked"),
    ("openrouter/openai/gpt-4o-2024-08-06", "gpt-4o-2024-08-06", "asked"),
    ("gemini/gemini-1.5-pro-002", "models/gemini-1.5-pro-002", "asked"),
    ("hosted_vllm/Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B", "asked"),
    ("ollama/llama3.1", "llama3.1:latest", "asked"),
    ("openai/gpt-4o", "gpt-4o-2024-08-06", "dated"),
    ("openai/gpt-4", "gpt-4-0613", "dated"),
    ("anthropic/claude-3-5-haiku", "claude-3-5-haiku-20241022", "dated"),
    ("openai/gpt-4o", "gpt-4o-mini-2024-07-18", "other"),
    ("openai/gpt-4", "gpt-4o", "other"),
    ("openai/gpt-4o", "claude-3-5-haiku-20241022", "other"),
])  # fmt: skip
def test_which_model_answered(asked, served, kind):
    found = JudgeSettings(model=asked, allow_unpinned=True, served_as=["My-Deployment"])
    assert ServedModel(found).kind(served) == kind


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(("keys", "refuses"), [
    ({"model": PINNED}, True),
    ({"model": "openai/gpt-4o", "allow_unpinned": True}, False),
    ({"model": PINNED, "api_base": "http://h/v1"}, False),
    ({"model": "ollama/m@sha256:0123456789ab"}, False),
    ({"model": PINNED, "served_model": "warn"}, False),
    ({"model": PINNED, "api_base": "http://h/v1", "served_model": "refuse"}, True),
])  # fmt: skip
def test_who_is_refused_by_default(keys, refuses):
    assert ServedModel(JudgeSettings(**keys)).refuses is refuses


def run(tmp_path, server, *words, metrics="correctness"):
    """The exit code, and the folder of the iteration where there is one."""
    data = write_cases(tmp_path / "cases.jsonl", 4)
    code = main(arguments(data, tmp_path / "out", server.url, *words, concurrency=1, metrics=metrics))
    found = list((tmp_path / "out").glob("*/*/iteration-1/cost.json"))
    return code, max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def test_a_run_says_whose_replies_it_rests_on(serve, tmp_path, capfd):
    code, folder = run(tmp_path, serve("other_model:nth=2"), metrics="correctness,faithfulness")
    assert code == 0
    served = json.loads((folder / "cost.json").read_text())["used"]["served_models"]
    rows = pq.read_table(folder / "judge_inputs.parquet").to_pylist()
    calls = {row["key"]: row for row in rows if row["attempts"]}
    assert Counter(row["model"] for row in calls.values())["another-model-2020-01-01"] == 1
    assert served["other"] == {"another-model-2020-01-01": 1}
    assert (served["requested"], served["dated"], served["unknown"]) == (len(calls) - 1, 0, 0)
    flagged = [row["flags"] for row in rows if row["model"] == "another-model-2020-01-01"]
    assert flagged == [["other_model"]] * len(flagged)
    line = f"1 of {len(calls)} replies are of another model (another-model-2020-01-01)"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert f" | {line} | iteration 1" in metrics["signature"]
    assert line in warning_texts(metrics)
    assert f"**Warning:** `{line}`" in (folder.parent / "report.md").read_text()
    assert line in (folder.parent / "report.html").read_text()
    assert "such replies are kept and flagged (other_model)" in capfd.readouterr().err


def test_a_stored_reply_of_another_model_is_asked_again_where_it_is_refused(serve, tmp_path, capfd):
    server = serve("other_model:nth=2")
    assert run(tmp_path, server)[0] == 0
    assert server.tries == 4
    server.faults.clear()
    capfd.readouterr()
    assert run(tmp_path, server, "task=plan", "judge.served_model=refuse", "name=other")[0] == 0
    assert "3" in next(line for line in capfd.readouterr().out.splitlines() if "stored" in line)
    assert run(tmp_path, server, "judge.served_model=refuse", "name=other")[0] == 0
    assert server.tries == 5
    code, folder = run(tmp_path, server, "name=third")
    assert (code, server.tries) == (0, 5)
    assert json.loads((folder / "cost.json").read_text())["used"]["served_models"]["other"] == {}


@pytest.mark.parametrize("client", ["direct", "litellm"])
def test_a_refused_run_ends_with_5_and_keeps_the_rest(serve, tmp_path, capfd, client):
    server = serve("other_model:nth=3")
    refusing = ("judge.served_model=refuse", f"judge.client={client}")
    assert run(tmp_path, server, *refusing)[0] == 5
    said = capfd.readouterr().err
    assert server.tries == 3
    assert "its reply is of 'another-model-2020-01-01', and 'test-model-2026-01-01' was asked" in said
    assert "judge.served_as=[another-model-2020-01-01]" in said
    assert "judge.served_model=warn" in said
    assert census(tmp_path / "out/.store/calls.sqlite", ())["paid"]["replies"] == 3, "the refused one is paid too"
    server.faults.clear()
    assert run(tmp_path, server, *refusing)[0] == 0
    assert sorted(Counter(line["body"] for line in server.log).values()) == [1, 1, 1, 2]  # only the refused one again
