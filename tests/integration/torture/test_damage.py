"""Damage to a run folder and to the call store: told before it costs, fixed where it can be, never taken for a bug."""

import contextlib
import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.runs import iteration_judging, load_dataset
from tests.support.checks import Bench, Ran, strict
from tests.support.harness import run_folder
from tests.support.thoroughness import some_of

pytestmark = pytest.mark.slow  # several whole runs
Make = Callable[..., Bench]
CASES = 12


def stopped(b: Bench, after: int = 16, **options: Any) -> Ran:
    b.fault(f"401:after={after}")
    ran = b.run(concurrency=4, **options)
    assert ran.code == 5, ran.text
    b.fault()
    return ran


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("table", ["samples", "outputs"])
@pytest.mark.parametrize("damage", [cut, Path.unlink, flip])
def test_damaged_frozen_cases_are_refused_and_made_again_as_the_message_says(bench, table, damage) -> None:
    b = bench(cases=CASES)
    stopped(b)
    answered = {line["body"] for line in b.server.log if line["status"] == 200}
    path = run_folder(b.folder / "out") / f"{table}.parquet"
    whole = path.read_bytes()
    damage(path)
    before = len(b.server.log)
    refused = _start(b, b.args())
    assert refused.code == 2
    assert "the frozen cases of a run are damaged" in refused.text
    assert f"{table}.parquet" in refused.text
    assert len(b.server.log) == before
    (path.parent / "manifest.json").unlink()  # as the message says
    ran = b.run()
    assert (ran.code, path.read_bytes()) == (0, whole)
    assert not answered & {line["body"] for line in b.server.log[before:]}
    assert [row["status"] for row in ran.rows()] == ["ok"] * CASES


def test_a_new_run_takes_no_damaged_tables_from_another(bench: Make) -> None:
    b = bench(cases=CASES)
    first = b.run()
    path = first.folder / "outputs.parquet"
    outputs = pq.read_table(path)  # a table that can be read, and is not the one that was sealed
    pq.write_table(outputs.set_column(outputs.schema.get_field_index("answer"), "answer", outputs["sample_id"]), path)
    second = b.run(metrics="answer_relevance")
    assert (second.code, second.folder != first.folder) == (0, True), second.text
    assert (second.folder / "outputs.parquet").read_bytes() != path.read_bytes()


@pytest.mark.parametrize(("damage", "told"), [
    (shutil.rmtree, r"does not exist \(any more\)|was removed (while|or replaced)"),  # whichever file is missed first
    (lambda run: (run / ".lock").unlink(), r"\.lock was removed or replaced while this process worked"),
    (lambda run: shutil.copy(run / "manifest.json", run / ".new").replace(run / ".lock"), r"\.lock was removed or replaced while this process worked"),
])  # fmt: skip
def test_a_folder_or_its_lock_that_goes_away_during_the_run(bench, damage: Callable[[Path], object], told: str, monkeypatch) -> None:
    """A second start could work in the folder from then on."""
    monkeypatch.setattr(iteration_judging, "_LOOK_S", 0.05)
    b = bench(cases=40)
    b.server.latency_ms = 30
    ran = b.meanwhile(20, lambda: damage(run_folder(b.folder / "out")))
    assert ran.code == 6, ran.text
    assert re.search(told, ran.text)
    answered = {line["body"] for line in b.server.log if line["status"] == 200}
    assert len(answered) < 80
    again = b.run()
    assert again.code == 0
    assert not answered & set(again.bodies)
    assert [row["status"] for row in again.rows()] == ["ok"] * 40


def test_what_was_asked_again_is_told_where_it_contradicts(bench: Make) -> None:
    b = bench(cases=CASES)
    stopped(b, after=6, metrics="correctness")
    shutil.rmtree(b.folder / "out" / ".store")
    b.server.script = [{"match": ".*", "reply": json.dumps({"reason": "otherwise", "score": 2}), "times": 10**6}]
    ran = b.run(metrics="correctness")
    assert ran.code == 0
    assert f"about {CASES} new calls" in ran.text, "the plan counts what is asked again"
    assert "came out otherwise than an earlier start of this run had written down" in ran.text
    found = _task(b, "task=verify")
    assert found.code == 3
    for said in ("iteration-1/journal.jsonl", "finished twice with different results", "correctness"):
        assert said in found.text


def test_what_was_asked_again_on_purpose_is_no_contradiction(bench: Make) -> None:
    b = bench(cases=4)
    b.server.script = [{"match": ".*", "reply": "no answer at all", "times": 2}]
    assert b.run(metrics="answer_relevance").code in (0, 4)
    ran = b.run("retry_errors=true", metrics="answer_relevance")
    assert ran.code == 0, ran.text
    assert "otherwise" not in ran.text
    assert _task(b, "task=verify").code == 0


def _task(b: Bench, *words: str) -> Ran:
    return _start(b, [*words, f"run={run_folder(b.folder / 'out')}"])


def _start(b: Bench, words: list[str]) -> Ran:
    """A start, without the checks of a whole folder: what is damaged stays so where the start is refused."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = main(words)
    assert "Traceback" not in shown.getvalue(), shown.getvalue()
    return Ran(code, shown.getvalue(), [], run_folder(b.folder / "out"))


VICTIMS = (
    "manifest.json", "samples.parquet", "outputs.parquet", "config.yaml", "iteration-1/journal.jsonl", "iteration-1/.progress.json",
    "iteration-1/.wall.json", "iteration-1/.parts/scores/part-000000.parquet", "iteration-1/.parts/judge_inputs/part-000001.parquet",
    "iteration-1/.parts/scores/part-000001.sha256", "iteration-1/scores.parquet", "iteration-1/judge_inputs.parquet", "seal.json",
)  # fmt: skip


def harm(path: Path, chance: random.Random) -> str:
    """Do something to a file, as a disk, an editor or a half copy would. Returns what."""
    data = path.read_bytes()
    place = chance.randrange(max(1, len(data)))
    kind = chance.choice(["flip", "flip", "flip", "cut", "delete", "double", "zeros", "noise"])
    if kind == "delete":
        path.unlink()
    elif kind == "flip" and data:
        path.write_bytes(data[:place] + bytes([data[place] ^ chance.randrange(1, 256)]) + data[place + 1 :])
    elif kind == "cut":
        path.write_bytes(data[:place])
    elif kind == "double":
        lines = data.splitlines(keepends=True)
        path.write_bytes(b"".join([*lines, *lines[-3:]]))
    elif kind == "zeros":
        path.write_bytes(data[:place] + b"\0" * min(512, len(data) - place) + data[place + 512 :])
    else:
        path.write_bytes(data[:place] + chance.randbytes(64) + data[place:])
    return f"{kind} at {place} of {len(data)}"


@pytest.mark.thorough(tried=2)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("start", range(0, 100, 20))
def test_random_damages(bench: Make, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """Of a run that was stopped, and of a finished one: the numbers of an undamaged run, or a sentence that says why not;
    no traceback, no code that is not documented."""
    monkeypatch.setattr(load_dataset, "BLOCK", 3)
    b = bench(cases=9)
    stopped(b, after=14)
    shutil.copytree(b.folder / "out", b.folder / "half", symlinks=True)
    whole = b.run()
    assert whole.code == 0
    right = strict(whole.folder / "iteration-1" / "metrics.json")
    shutil.copytree(b.folder / "out", b.folder / "done", symlinks=True)
    for seed in some_of(range(start, start + 20), 5):
        chance = random.Random(seed)
        shutil.rmtree(b.folder / "out")
        state = chance.choice(["half", "done"])
        shutil.copytree(b.folder / state, b.folder / "out", symlinks=True)
        folder = run_folder(b.folder / "out")
        there = [name for name in VICTIMS if (folder / name).is_file()]
        told = [f"seed {seed}, {state}"]
        for name in chance.sample(there, chance.choice([1, 1, 2])):
            told.append(f"{name}: {harm(folder / name, chance)}")
        tasks: list[Callable[[], Ran]] = [lambda: _start(b, b.args())]
        if state == "done":
            tasks += [lambda: _task(b, "task=verify"), lambda: _task(b, "task=rescore", "scoring.coverage_floor=0.1")]
        for number, task in enumerate(tasks):
            ran = task()
            about = f"{'; '.join(told)}: task {number}: {ran.text}"
            assert "bug in ragpipe" not in ran.text, about
            assert ran.code in ((0, 2, 4, 5, 6) if number != 1 else (0, 2, 3, 6)), about
            if ran.code:
                assert "expected" in ran.text or "To fix" in ran.text or "To fix" in ran.text or "differ" in ran.text, about
            if number == 0 and not ran.code:
                found = strict(run_folder(b.folder / "out") / "iteration-1" / "metrics.json")
                assert found["overall"] == right["overall"], about
