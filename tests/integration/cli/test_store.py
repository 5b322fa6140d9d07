"""task=store over the store of real runs against the local server, and retry_errors by the server's log."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.digest import sha256
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases
from tests.support.place import Place, output_of

pytestmark = pytest.mark.slow  # whole runs, several per test
CASES = 4


@pytest.fixture
def place(here: Path, capsys: Any) -> Iterator[Place]:
    data = write_cases(here / "data.jsonl", CASES)
    with serving() as server:
        yield Place(server, arguments(data, here / "out", server.url, metrics="correctness"), here, capsys)


def test_stats_count_what_the_log_counts(place: Place) -> None:
    assert place.run() == CASES
    assert "price unknown" in place.task("task=store", f"to={place.root / 'stats.json'}")
    found = json.loads((place.root / "stats.json").read_text())
    used = place.json("iteration-1/cost.json")["used"]
    assert (found["replies"]["calls"], found["failures"]["calls"]) == (CASES, 0)
    assert found["replies"]["tokens_in"] == used["tokens_in"] > 0
    paid = found["paid"]
    assert (paid["replies"], paid["tokens_in"], paid["usd"], paid["unpriced"]) == (
        CASES, sum(line["usage"]["prompt_tokens"] for line in place.server.log), None, CASES,
    )  # fmt: skip
    assert found["paid_by_run"] == {place.folder.name: {**paid, "folder": True}}


def test_prune_counts_then_deletes_and_the_bill_stays(place: Place) -> None:
    place.run()
    first = place.folder
    place.run("judge.temperature=0.5")
    run = f"run={first}"
    assert f"would go: {CASES} calls" in place.task("task=store", "action=prune", run)
    assert "would go: 0 calls" in place.task("task=store", "action=prune", "unused=true")
    assert f"deleted: {CASES} calls" in place.task("task=store", "action=prune", run, "dry_run=false")
    assert "would go: 0 calls" in place.task("task=store", "action=prune", run)
    with closing(sqlite3.connect(place.file)) as db:
        assert db.execute("SELECT COUNT(*) FROM payments").fetchone() == (2 * CASES,)
        assert db.execute("SELECT COUNT(*) FROM calls").fetchone() == (CASES,)
    assert "prune of everything" in place.task("task=store", "action=prune", expected=2)
    assert "older_then_days" in place.task("task=store", "action=prune", "unused=true", "older_then_days=9", expected=2)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("days", ["-1", "100001", "1e12", ".inf", ".nan"])
def test_an_age_that_no_call_can_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str) -> None:
    words = ["task=store", "action=prune", f"older_than_days={days}", f"output_dir={tmp_path}"]
    assert "older_than_days" in output_of(words, 2, capsys).err


def test_unused_is_what_no_run_rests_on(place: Place) -> None:
    import shutil

    place.run()
    first = place.folder
    place.run("judge.temperature=0.5")
    shutil.rmtree(first)
    assert f"deleted: {CASES} calls" in place.task("task=store", "action=prune", "unused=true", "dry_run=false")
    assert place.run("judge.temperature=0.5") == 0
    assert place.run() == CASES


@pytest.mark.thorough(tried=1)
def test_another_store_takes_the_replies_and_asks_nobody(place: Place) -> None:
    place.run()
    file = place.root / "replies.jsonl"
    assert f"{CASES} calls" in place.task("task=store", "action=export", f"to={file}")
    assert b"sk-sentinel" not in file.read_bytes()
    other = f"store.path={place.root / 'other'}"
    assert f"{CASES} calls imported, 0 were in the store already" in place.task("task=store", "action=import", f"from={file}", other)
    assert f"0 calls imported, {CASES} were in the store already" in place.task("task=store", "action=import", f"from={file}", other)
    assert place.run(other, f"output_dir={place.root / 'out2'}") == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("column", "value"), [("text", "other"), ("key", "0" * 64), ("paid_usd", 0.0), ("fields", "{}")])
def test_a_changed_row_is_refused_before_anything_is_taken_in(place: Place, column: str, value: Any) -> None:
    place.run()
    file = place.root / "replies.jsonl"
    place.task("task=store", "action=export", f"to={file}")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[CASES - 1][column] = value
    for resealed in (False, True):
        if resealed:
            if column in ("text", "paid_usd"):
                break  # a row of another reply under the same question: nothing but its digest can tell
            cells = {name: cell for name, cell in rows[CASES - 1].items() if name != "row_sha256"}
            rows[CASES - 1]["row_sha256"] = sha256(cells)
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        text = place.task("task=store", "action=import", f"from={file}", f"store.path={place.root / 'other'}", expected=2)
        assert f"row {CASES}" in text
        assert not (place.root / "other" / "calls.sqlite").exists()
