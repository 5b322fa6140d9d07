"""Whole runs with a small window: long contexts are judged in parts, and every later task comes to the same without a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.support.bench import bench, server
from tests.support.checks import Bench
from tests.support.harness import rows

__all__ = ["bench", "server"]

pytestmark = pytest.mark.slow

Make = Callable[..., Bench]
WINDOW = ["judge.max_tokens=200", "judge.capabilities.context_tokens=1900"]


def _lengthened(path: Path, contexts: int) -> None:
    """The first case gets so many contexts of about 220 tokens each."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0]["contexts"] = [f"Passage {n}. " + "word " * 210 for n in range(contexts)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_long_contexts_are_judged_in_parts(bench: Make, capsys: pytest.CaptureFixture[str]) -> None:
    b = bench(cases=4)
    _lengthened(b.data, 12)
    alone = b.run(*WINDOW)
    assert [row["status"] for row in alone.rows()] == ["error", "ok", "ok", "ok"]
    kinds = [json.loads(row["details"] or "{}").get("kind") for row in alone.rows()]
    assert kinds[0] == "too_long"

    before = len(b.server.log)
    split = b.run(*WINDOW, "judge.overflow=split")
    assert split.code == 0
    assert [row["status"] for row in split.rows()] == ["ok"] * 4
    asked = [r for r in rows(split.folder / "iteration-1" / "judge_inputs.parquet") if r["step"] == "verify"]
    parts = [row for row in asked if row["sample_id"] == "q00000"]
    assert len(parts) == 4, "12 contexts: halves of 6 do not fit, quarters of 3 do"
    assert all("split" in row["flags"] for row in parts)
    assert not any("split" in row["flags"] for row in asked if row["sample_id"] != "q00000")
    assert len(b.server.log) - before == 4, "everything else had been asked"
    assert all(line["usage"]["prompt_tokens"] <= 1700 for line in b.server.log[before:])
    for words in (
        ["task=rescore", "scoring.thresholds.faithfulness=0.9"],
        ["task=rejudge", "rejudge.mode=stored"],
        ["task=verify"],
    ):
        assert main([*words, f"run={split.folder}"]) == 0, capsys.readouterr()
    assert len(b.server.log) - before == 4
    assert b.run(*WINDOW, "judge.overflow=split").bodies == {}
