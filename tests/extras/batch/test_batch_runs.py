"""Whole runs with `transport=batch`: the scores of live runs, the plan's words, and what is refused before anything is sent."""

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main

pytestmark = pytest.mark.slow  # whole runs, several per test

MODEL = "openai/gpt-4o-mini-2024-07-18"
BATCH = ["transport=batch"]


def words(server, folder, *more):
    judge = ["judge=llm", f"judge.model={MODEL}", f"judge.api_base={server.url}", "judge.endpoint=test"]
    return ["+experiment=quickstart", *judge, f"output_dir={folder}", *more]


def scores(folder):
    (table,) = folder.glob("quickstart/latest/iteration-1/scores.parquet")
    return pq.read_table(table).to_pylist()


def test_a_run_by_batch_has_the_scores_of_a_live_run(serve, tmp_path):
    server = serve()
    assert main(words(server, tmp_path / "live")) == 0
    asked_live = len(server.log)
    fates = {1: "expired", 4: "500", 7: "missing"}
    server.batches.delay_s = 0.1
    server.batches.fate = lambda batch, line: fates.get(line, "ok") if batch == 0 else "ok"
    assert main(words(server, tmp_path / "batch", *BATCH)) == 0
    assert scores(tmp_path / "batch") == scores(tmp_path / "live")
    assert len(server.log) == asked_live  # nothing of it was asked live
    counts = server.batches.asked.values()
    assert (len(counts), sorted(counts)[-4:]) == (asked_live, [1, 2, 2, 2])


def test_the_plan_says_rounds_and_prices_and_recommends(serve, tmp_path, capsys):
    server = serve()
    few = ["dataset.limit=4", "metrics=[faithfulness]"]
    prices = ["judge.prices={input: 2.0, output: 8.0}"]
    own = ["transport=batch", "transport.prices={input: 1.0, output: 4.0}"]
    assert main(["task=plan", *words(server, tmp_path, *few, *prices, *own)]) == 0
    out = capsys.readouterr().out
    assert "up to 2 rounds" in out  # extract, then verify
    assert "recommended: transport=batch" in out
    assert main(["task=plan", *words(server, tmp_path, *few, *prices)]) == 0
    out = capsys.readouterr().out
    assert "by batch: price unknown" in out
    assert "no recommendation without both prices" in out
    assert not server.batches.log


def test_rounds_of_the_plan_are_those_of_the_run(serve, tmp_path, capsys):
    server = serve()
    few = ["dataset.limit=3", "metrics=[chunk_faithfulness]", "metrics.chunk_faithfulness.exhaustive=true"]
    assert main(["task=plan", *words(server, tmp_path, *few)]) == 0
    out = capsys.readouterr().out
    assert main(words(server, tmp_path, *few, *BATCH)) == 0
    assert f"up to {len(server.batches.made)} rounds" in out
    assert len(server.batches.made) > 2


def test_a_budget_ends_a_run_by_batch_and_a_higher_one_goes_on(serve, tmp_path, capsys):
    server = serve()
    few = [*BATCH, "dataset.limit=6", "metrics=[correctness]"]
    assert main(words(server, tmp_path, *few, "judge.budget.calls=4")) == 4
    assert sum(server.batches.asked.values()) == 4
    said = " ".join(capsys.readouterr().err.split())
    assert "judge.budget.calls=4 is used up: 4 calls spent" in said
    assert "judge.budget.calls=8" in said
    states = [row["status"] for row in scores(tmp_path)]
    assert (states.count("ok"), states.count("error")) == (4, len(states) - 4)
    assert main(words(server, tmp_path, *few, f"judge.budget.calls={len(states)}")) == 0
    assert sorted(server.batches.asked.values()) == [1] * len(states)
    assert {row["status"] for row in scores(tmp_path)} == {"ok"}
    assert main(words(server, tmp_path, *few, "judge.budget.usd=1")) == 2
    assert "transport.prices" in " ".join(capsys.readouterr().err.split())


def test_a_jury_is_refused_before_anything(tmp_path, capsys):
    jury = ["judge=llm", f"judge.model={MODEL}", "jury.repeats=2", "transport=batch", f"output_dir={tmp_path}"]
    assert main(["+experiment=quickstart", *jury]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "batch, with a jury" in text
    assert "run each member alone" in text
