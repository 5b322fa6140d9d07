"""What runs have paid is what the server has on its own bill: to the token, whatever became of the calls."""

import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.store.call_store import census
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import arguments, rows, start, write_cases
from tests.support.place import Place
from tests.support.waiting import HANGS_AFTER_S, wait_until

pytestmark = pytest.mark.slow  # whole runs, several per test
PRICES = "judge.prices={input: 1000.0, output: 1000.0}"  # dollars per million tokens


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
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt: 0.01)
    data = write_cases(here / "data.jsonl", 6)
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
    run = place.folder
    assert main(["task=verify", f"run={run}"]) == 0, place.capsys.readouterr()
    others = {*run.parent.iterdir()}
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.correctness=2.5"]) == 0
    (rescored,) = {*run.parent.iterdir()} - others
    assert main(["task=verify", f"run={rescored}"]) == 0, place.capsys.readouterr()
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
    words = [word for word in place.words if word != PRICES]
    assert main(words) == 0
    place.capsys.readouterr()
    bill, found = billed(place), place.json("iteration-1/cost.json")
    assert (found["used"]["usd"], found["spent"]["usd"]) == (None, None)
    asked = len(place.server.log)
    assert main([*words, "judge.prices={input: 1.0, output: 2.0}"]) == 0
    expected = (bill["tokens_in"] + 2 * bill["tokens_out"]) / 1e6
    found = place.json("iteration-1/cost.json")
    assert found["used"]["usd"] == pytest.approx(expected)
    assert found["spent"]["usd"] is None, "what it was paid then is not known by that"
    assert main(["task=verify", f"run={place.folder}"]) == 0
    assert main(["task=rescore", f"run={place.folder}", "judge.prices={input: 2.0, output: 4.0}"]) == 0
    assert place.json("iteration-1/cost.json")["used"]["usd"] == pytest.approx(2 * expected)
    assert main(["task=verify", f"run={place.folder}"]) == 0
    assert len(place.server.log) == asked


def test_a_changed_reply_in_the_store_is_damaged_and_asked_again(place: Place) -> None:
    place.run()
    with closing(sqlite3.connect(place.file, isolation_level=None)) as db:
        db.execute("UPDATE calls SET text = replace(text, 'score', 'Score') WHERE rowid IN (2, 5)")
    assert "2 stored replies are damaged" in place.task("task=store")
    assert place.run("name=other") == 2
    assert "2 stored replies were damaged" in place.said
    assert "damaged" not in place.task("task=store")


def test_a_store_that_was_deleted_under_a_run_ends_it_and_what_was_paid_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

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
