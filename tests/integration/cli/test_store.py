"""What runs have paid is what the server has on its own bill, whatever became of the calls; and `task=store`."""

import json
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.digest import sha256
from ragpipe.store.call_store import census
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.integration.cli.test_iterations import rescored
from tests.support.harness import arguments, rows, start, write_cases
from tests.support.place import Place, output_of
from tests.support.waiting import HANGS_AFTER_S, wait_until

pytestmark = pytest.mark.slow  # whole runs, several per test
PRICES = "judge.prices={input: 1000.0, output: 1000.0}"  # dollars per million tokens
CASES = 6


def billed(place: Place) -> dict[str, int]:
    """The server's own bill: the answers that named a usage, and their tokens."""
    usages = [line["usage"] for line in place.server.log if line["usage"]]
    return {
        "replies": len(usages), "tokens_in": sum(u["prompt_tokens"] for u in usages),
        "tokens_out": sum(u["completion_tokens"] for u in usages),
    }  # fmt: skip


def paid(file: Path) -> dict[str, int]:
    found = census(file, ())["paid"]
    return {name: found[name] for name in ("replies", "tokens_in", "tokens_out")}


def dollars(bill: dict[str, int]) -> float:
    return (bill["tokens_in"] + bill["tokens_out"]) / 1000


def balances(found: dict[str, Any]) -> None:
    used, saved, wasted, spent = (found[part] for part in ("used", "saved", "wasted", "spent"))
    assert used["replies"] - saved["calls"] + wasted["replies"] == spent["replies"]
    for name in ("tokens_in", "tokens_out"):
        assert used[name] - saved[name] + wasted[name] == spent[name]
    assert used["usd"] - saved["usd"] + wasted["usd"] - found["repriced"]["usd"] == pytest.approx(spent["usd"])


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Place]:
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 0.01)
    data = write_cases(here / "data.jsonl", CASES)
    with serving() as server:
        words = arguments(data, here / "out", server.url, PRICES, metrics="correctness", concurrency=2)
        yield Place(server, words, here, capsys)


FAULTS = [
    ("empty_content:rate=0.5",), ("length:match=Case 1 says",), ("empty_content:first=2", "401:after=4"), ("500:first=2",),
    ("empty_content:first=3", "429:retry_after=9000,after=3"), ("content_filter:match=Case 2 says",), ("400:after=2",),
    ("content_filter_400:match=Case 3 says", "empty_content:first=1"),
]  # fmt: skip


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("faults", FAULTS)
def test_the_bill_is_the_servers(place: Place, faults: tuple[str, ...]) -> None:
    place.server.faults = [ServerFault.read(text) for text in faults]
    place.run(expected=None)
    assert paid(place.file) == billed(place)
    place.server.faults = []
    place.run("retry_errors=true")
    assert paid(place.file) == billed(place)
    found = place.json("iteration-1/cost.json")
    assert {name: found["spent"][name] for name in billed(place)} == billed(place)
    balances(found)


def test_a_repair_that_is_asked_again_takes_the_place_of_the_one_before(place: Place) -> None:
    """Each of six questions and its repair cannot be read; with `retry_errors` the repair is asked again and can. The score rests on
    the first reply and the second repair: the folder says so, and the first repair is paid for nothing."""
    place.server.faults = [ServerFault.read("not_json")]
    place.run(expected=4)
    assert billed(place)["replies"] == 12
    place.server.faults = []
    place.run("retry_errors=true")
    assert billed(place)["replies"] == 18
    used = rows(place.folder / "iteration-1" / "judge_inputs.parquet")
    turns = sorted((row["sample_id"], row["turn"], "unparsable" in row["flags"]) for row in used)
    assert turns == sorted((f"q{i:05d}", turn, is_bad) for i in range(6) for turn, is_bad in (("ask", True), ("repair", False)))
    found = place.json("iteration-1/cost.json")
    assert (found["used"]["replies"], found["wasted"]["replies"]) == (12, 6)
    balances(found)
    assert main(["task=verify", f"run={place.folder}"]) == 0, place.capsys.readouterr()
    code, again = rescored(place.folder, "scoring.thresholds.correctness=2.5")
    assert (code, main(["task=verify", f"run={again}"])) == (0, 0), place.capsys.readouterr()
    assert billed(place)["replies"] == 18


def test_another_run_saves_what_this_one_paid(place: Place) -> None:
    place.run()
    whole = billed(place)
    assert place.run("scoring.thresholds.correctness=2.5") == 0
    found = place.json("iteration-1/cost.json")
    assert (found["spent"]["replies"], found["saved"]["calls"]) == (0, 6)
    assert found["saved"]["usd"] == pytest.approx(dollars(whole))
    balances(found)


def test_a_price_given_later_prices_stored_tokens(place: Place) -> None:
    place.words.remove(PRICES)
    place.run()
    bill, found = billed(place), place.json("iteration-1/cost.json")
    assert (found["used"]["usd"], found["spent"]["usd"]) == (None, None)
    assert place.run("judge.prices={input: 1.0, output: 2.0}") == 0
    expected = (bill["tokens_in"] + 2 * bill["tokens_out"]) / 1e6
    found = place.json("iteration-1/cost.json")
    assert found["used"]["usd"] == pytest.approx(expected)
    assert found["spent"]["usd"] is None, "what it was paid then is not known by that"
    assert main(["task=verify", f"run={place.folder}"]) == 0
    assert main(["task=rescore", f"run={place.folder}", "judge.prices={input: 2.0, output: 4.0}"]) == 0
    assert place.json("iteration-1/cost.json")["used"]["usd"] == pytest.approx(2 * expected)
    assert main(["task=verify", f"run={place.folder}"]) == 0
    assert billed(place) == bill


def test_a_changed_reply_in_the_store_is_damaged_and_asked_again(place: Place) -> None:
    place.run()
    with closing(sqlite3.connect(place.file, isolation_level=None)) as db:
        db.execute("UPDATE calls SET text = replace(text, 'score', 'Score') WHERE rowid IN (2, 5)")
    assert "2 stored replies are damaged" in place.task("task=store")
    assert place.run("name=other") == 2
    assert "2 stored replies were damaged" in place.said
    assert "damaged" not in place.task("task=store")


def test_a_store_that_was_deleted_under_a_run_ends_it_and_what_was_paid_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place.root / "tmp"))
    place.server.latency_ms = 20
    stored, put = [], OpenAIServer._write

    async def write(server: OpenAIServer, *more: Any) -> Any:
        stored.append(1)
        if len(stored) == 4:
            shutil.rmtree(place.file.parent)
        return await put(server, *more)

    monkeypatch.setattr(OpenAIServer, "_write", write)
    place.run(expected=6)
    assert f"the call store {place.file} was deleted while this start used it" in place.said
    (kept,) = (place.root / "tmp").glob("ragpipe-replies-*.jsonl")
    assert str(kept) in place.said
    place.task("task=store", "action=import", f"from={kept}")
    assert paid(place.file) == billed(place)
    place.run()
    assert len(place.server.log) == 6, "nothing was asked twice"


def test_an_interrupted_start_forgets_nothing(place: Place) -> None:
    place.server.faults = [ServerFault.read("empty_content:first=3"), ServerFault.read("429:retry_after=20")]
    process = start(place.words, place.root)
    wait_until(lambda: len(place.server.log) >= 5, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, billed(place)["replies"]) == (130, 3)
    assert paid(place.file) == billed(place)


def test_stats_count_what_the_log_counts(place: Place) -> None:
    place.words.remove(PRICES)
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
