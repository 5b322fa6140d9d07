"""From Python: several runs in one process, with and without a running loop, and texts of every script."""

import json
import subprocess
import sys
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.support.checks import Bench
from tests.support.harness import environment
from tests.support.waiting import HANGS_AFTER_S

Make = Callable[..., Bench]
NOISE = (
    "Task was destroyed",
    "never awaited",
    "never retrieved",
    "Unclosed",
    "Event loop is closed",
    "Exception ignored",
    "Traceback",
    "unclosed",
)

TWICE = """
import asyncio, sys
import ragpipe
words = sys.argv[1:]
one = ragpipe.run(words)
assert one.scores.shape[0] == 6, one.scores
two = ragpipe.run([*words, "judge.season=s2"])
assert two.path != one.path

async def notebook():
    three = ragpipe.run([*words, "judge.season=s3"])
    await asyncio.sleep(0)
    return three

three = asyncio.run(notebook())
again = ragpipe.load(one.path.parent / "latest")
assert again.path == three.path
assert list(again.records["sample_id"]) == [f"q{i:05d}" for i in range(6)]
assert set(again.scores["status"]) == {"ok"}
assert len(again.judge_inputs) == 12
assert again.metrics["overall"]["n"] if "n" in again.metrics["overall"] else True
assert again.cost["used"]["calls"] == 12
print("done")
"""


def _python(code: str, b: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "default", "-c", code, *words], cwd=b.folder, env=environment(), capture_output=True,
        text=True, timeout=HANGS_AFTER_S,
    )  # fmt: skip


@pytest.mark.slow
def test_three_runs_in_one_process_one_of_them_inside_a_loop(bench: Make) -> None:
    b = bench(cases=6)
    done = _python(TWICE, b, *b.args())
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout
    assert [word for word in NOISE if word in done.stderr] == [], done.stderr
    assert len(b.server.log) == 36, "three seasons of twelve questions"


@pytest.mark.slow
def test_errors_are_raised_and_a_later_run_works(bench: Make) -> None:
    b = bench(cases=6)
    b.fault("401:first=1")
    code = """
import sys
import ragpipe
from ragpipe.core.errors import ConfigError, ProviderUnusable
words = sys.argv[1:]
try:
    ragpipe.run(words)
except ProviderUnusable as error:
    assert "RAGPIPE_TEST_KEY" in str(error)
else:
    raise SystemExit("nothing was raised")
try:
    ragpipe.run([*words, "judge.concurrency=no"])
except ConfigError as error:
    assert "judge.concurrency" in str(error)
else:
    raise SystemExit("nothing was raised")
assert set(ragpipe.run(words).scores["status"]) == {"ok"}
"""
    done = _python(code, b, *b.args())
    assert done.returncode == 0, done.stderr
    assert [word for word in NOISE if word in done.stderr] == [], done.stderr
    assert len(b.server.log) == 13


SCRIPTS = {
    "漢字-１２３": "日本語の答え。もう一つ。", "עברית 123": "\u202bתשובה\u202c ועוד.", "👩‍👩‍👧‍👦🏳️‍🌈": "🙂 Emoji. 🧪 And more.",
    "a\u2028b\u2029c": "Line\u2028separator. Para\u2029graph.", "e\u0301 vs é": "Combining e\u0301. Composed é.", "tab\tand\u00a0space": "A\tb. C\u000bd\u000ce\x1cf.",
    "\ufeffbom inside\ufeff": "\ufeffBOM. \u200bzero\u200dwidth.", "007": "None", "1e5": "NaN", "null": "null",
}  # fmt: skip


@pytest.mark.slow
def test_texts_of_every_script_survive(bench: Make) -> None:
    b = bench()
    records = [
        {"id": i, "question": f"{i}?", "answer": a, "reference": a, "category": i, "contexts": [a, i]}
        for i, a in SCRIPTS.items()
    ]
    b.data.write_text(
        "".join(json.dumps(r, ensure_ascii=place % 2 == 0) + "\n" for place, r in enumerate(records)), encoding="utf-8"
    )
    ran = b.run()
    assert ran.code == 0, ran.text
    rows = ran.rows("records")
    assert [row["sample_id"] for row in rows] == list(SCRIPTS)
    outputs = pq.read_table(ran.folder / "outputs.parquet").to_pylist()
    assert [row["answer"] for row in outputs] == list(SCRIPTS.values())
    assert {row["sample_id"]: row["category"] for row in rows} == {i: i for i in SCRIPTS}
    asked = {r["sample_id"]: r["messages"] for r in ran.rows("judge_inputs") if r["step"] == "extract"}
    for name, answer in SCRIPTS.items():
        assert answer in json.loads(asked[name])[-1]["content"]
    entries = [json.loads(line) for line in (ran.folder / "iteration-1/journal.jsonl").read_bytes().split(b"\n")[1:-1]]
    assert {e["sample_id"] for e in entries} == set(SCRIPTS)
    assert b.run().requests == []


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    "fault",
    ["nul", "surrogate", "half_escape", *(pytest.param(f, marks=pytest.mark.slow) for f in ("raw_newlines", "bom"))],
)
@pytest.mark.slow
def test_odd_characters_in_a_reply_survive_or_are_replaced(bench: Make, fault: str) -> None:
    b = bench(cases=6)
    b.fault(fault)
    ran = b.run()
    assert ran.code == 0, ran.text
    assert [row["status"] for row in ran.rows()] == ["ok"] * 6
    assert not any("\x00" in (r["reply"] or "") for r in ran.rows("judge_inputs"))
    if fault == "half_escape":
        assert {"characters_replaced"} <= {flag for r in ran.rows("judge_inputs") for flag in r["flags"]}
    assert b.run().requests == []
