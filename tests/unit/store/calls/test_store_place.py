"""Which store a setting means, and what stands before it: waits that end, the notice of what is kept, recorded replies."""

import asyncio
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.config.settings import StoreSettings
from ragpipe.core import registry
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FormatMismatch, JudgeError, OutputError, Problem
from ragpipe.core.validation import NoOrigins, validated
from ragpipe.schema.call import Call, Payment
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.table_schemas import JUDGE_INPUTS
from ragpipe.store.calls.call_database import StorePlace, call_database, store_place_of
from ragpipe.store.calls.call_store import CallStore
from ragpipe.store.calls.last_resort import LastResortFile
from ragpipe.store.calls.ledger_rows import payment_entry
from ragpipe.store.calls.recorded_replies import read_recorded_file, write_recorded_file
from ragpipe.store.calls.store_requests import GetOrClaimRequest, Lookup, PaymentRequest, ReleaseRequest


def test_without_a_url_it_is_a_file() -> None:
    assert store_place_of(None, None, "out") == Path("out/.store/calls.sqlite")
    assert store_place_of(None, "mine", "out") == Path("mine/calls.sqlite")


def problems_of(section: dict[str, object]) -> list[Problem]:
    problems: list[Problem] = []
    validated(StoreSettings, section, "store", NoOrigins(), problems)
    return problems


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "hunter2", "//hunter2"])
def test_an_address_that_nothing_opens_is_refused_by_those_that_something_opens(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", lambda kind: ["mine", "other"])
    (problem,) = problems_of({"url": url})
    assert (problem.key, problem.expected) == ("store.url", "an address that begins with mine:// or other://")
    assert "hunter2" not in problem.expected


class Mine:
    """A database of an extra, as far as settings ask it."""

    def __init__(self, url: str, outage_s: float):
        self.given = url, outage_s


def test_what_is_registered_for_the_scheme_opens_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", lambda kind, name: Mine if (kind, name) == ("store", "mine") else None)
    place: StorePlace = store_place_of("mine://h/db", None, "out", 5.0)
    assert isinstance(place, Mine)
    assert place.given == ("mine://h/db", 5.0)
    assert call_database(place) is place
    (problem,) = problems_of({"path": "here", "url": "mine://h/db"})
    assert problem.key == "store.url"
    assert "one place" in problem.expected


KEYS = [sha256(f"key {number}") for number in range(2)]
PAID = Payment("openai/m", "2026-11-22T08:00:00.000+00:00", 900, 60, 0, 0, 0, 0.25)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return []


def full_store(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> CallStore:
    """A store whose disk is full."""

    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    store = CallStore(tmp_path / "calls.sqlite", run_id="mine", say=said.append)
    monkeypatch.setattr(store._worker.table, "write", refuse)
    return store


def expected_notice(tmp_path: Path) -> str:
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    command = f"task=store action=import from={kept}"
    return f"what was paid for and could not be stored is kept in {kept}: `{command}` takes it in"


async def test_replies_that_cannot_be_stored_are_told_of_once(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = full_store(tmp_path, said, monkeypatch)
    for key in KEYS:
        with pytest.raises(OutputError, match="the disk is full"):
            await store.put(Call(key, "", "judge", "ok", text="a reply"))
        assert said == [expected_notice(tmp_path)]
    store.close()
    assert said == [expected_notice(tmp_path)]


def test_payments_that_cannot_be_stored_are_told_of_at_the_end(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No event loop runs any more when the file is made."""
    store = full_store(tmp_path, said, monkeypatch)

    async def pay() -> None:
        await store.get_or_claim(KEYS[0])
        store.record_payment(KEYS[0], 1, PAID)

    asyncio.run(pay())
    with pytest.raises(OutputError, match="the disk is full"):
        store.close()
    assert said == [expected_notice(tmp_path)]


async def test_a_store_that_loses_nothing_says_nothing(tmp_path: Path, said: list[str]) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine", say=said.append) as store:
        await store.put(Call(KEYS[0], "", "judge", "ok", text="a reply"))
    assert said == []


def test_the_host_is_named_where_there_may_be_several(said: list[str]) -> None:
    file = LastResortFile("store.url=postgresql://db/x", host="node-7")
    assert file.take_notice() is None
    file.add_call(Call(KEYS[0], "", "judge", "ok", text="a reply"))
    command = f"task=store action=import from={file.file} store.url=postgresql://db/x"
    place = f"{file.file} on the host node-7"
    assert file.take_notice() == f"what was paid for and could not be stored is kept in {place}: `{command}` takes it in"
    assert file.take_notice() is None


HELD, STORED, MINE = sha256("held"), sha256("stored"), sha256("mine")
OVER = JudgeError("run_deadline", "no time is left")


def call(key: str) -> Call:
    return Call(key, "", "judge", "ok", text="a reply")


async def test_at_the_deadline_no_other_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    with CallStore(path, run_id="other") as other, CallStore(path, run_id="mine") as mine:
        assert await other.get_or_claim(HELD) is None
        await other.put(call(STORED))
        waits = asyncio.create_task(mine.get_or_claim(HELD))
        await asyncio.sleep(0.1)
        assert not waits.done()
        mine.end_waiting(OVER)
        for wait in (waits, mine.get_or_claim(HELD)):  # one that waits already, and a later one
            with pytest.raises(JudgeError, match="no time is left") as raised:
                await asyncio.wait_for(wait, 10)
            assert raised.value.kind == "run_deadline"
        assert (await mine.get_or_claim(STORED)).text == "a reply"
        assert not mine._hurry.is_set(), "a database that went away is still waited for"
        await other.put(call(HELD))
        assert (await mine.get_or_claim(HELD)).text == "a reply"


async def test_at_the_deadline_a_call_in_flight_of_the_same_store_is_waited_for(tmp_path: Path) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine") as store:
        assert await store.get_or_claim(MINE) is None
        before = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        store.end_waiting(OVER)
        after = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        assert not before.done()
        assert not after.done()
        await store.put(call(MINE))
        assert [(await wait).text for wait in (before, after)] == ["a reply"] * 2


async def test_a_stop_after_the_deadline_ends_every_wait(tmp_path: Path) -> None:
    with CallStore(tmp_path / "calls.sqlite", run_id="mine") as store:
        assert await store.get_or_claim(MINE) is None
        store.end_waiting(OVER)
        wait = asyncio.create_task(store.get_or_claim(MINE))
        await asyncio.sleep(0.1)
        store.abort(JudgeError("timeout", "the run was stopped"))
        with pytest.raises(JudgeError, match="was stopped"):
            await asyncio.wait_for(wait, 10)


async def _ended(store: CallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the thread of a store by a fault."""

    def fault() -> None:
        raise KeyError("whatever ends the thread")

    monkeypatch.setattr(store._worker.table, "sync", fault)
    store._worker._next_sync = 0.0
    store._worker.send(ReleaseRequest(MINE))
    await asyncio.to_thread(store._worker.join, 10)
    assert not store._worker.is_alive()


async def test_a_request_in_the_moment_of_the_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was made before the thread ended and is sent after it is answered all the same."""
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    await _ended(store, monkeypatch)
    request = GetOrClaimRequest(Lookup(HELD), future=asyncio.get_running_loop().create_future())
    store._worker.send(request)
    with pytest.raises(KeyError, match="whatever ends the thread"):
        await asyncio.wait_for(request.future, 10)


async def test_a_payment_in_the_moment_of_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    await _ended(store, monkeypatch)
    paid = Payment("openai/m", "2026-11-22T08:00:00.000+00:00", 900, 60, 0, 0, 0, 0.25)
    store._worker.send(PaymentRequest(payment_entry(MINE, "mine", 1, paid)))
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    assert '"usd": 0.25' in kept.read_text()


DAY = "2026-11-22"


def row(number: int, **cells: Any) -> dict[str, Any]:
    """A row of judge_inputs as a live run writes it."""
    return {
        **dict.fromkeys(JUDGE_INPUTS.names),
        "sample_id": f"q{number}", "method": "m", "repeat": 1, "iteration": 1, "metric": "correctness", "step": "grade", "turn": "ask",
        "template_version": "v2", "key": sha256(f"key {number}"), "payload_id": sha256(f"payload {number}"), "judge": "reader/m@recorded",
        "status": "ok", "reply": f'{{"score": {number}}}', "model": "m", "finish_reason": "stop", "tokens_in": 100 + number,
        "tokens_out": 7, "paid_by": "run/1", "latency_ms": 8.5, "attempts": 1, "output_mode": "json_schema",
        "sent": '{"max_tokens":2048}', "wire_hash": sha256("body"), **cells,
    }  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "replies.jsonl"
    write_recorded_file(path, rows, recorded=DAY)
    return path


def test_a_reply_is_found_by_its_key_and_paid_for_by_the_recording(tmp_path: Path) -> None:
    replies = read_recorded_file(written(tmp_path, [row(1), row(2)]))
    assert replies.get(sha256("key 2")) == Call(
        key=sha256("key 2"), payload_id="", judge="reader/m@recorded", status="ok", text='{"score": 2}', model="m",
        finish_reason="stop", tokens_in=102, tokens_out=7, answers=1, output_mode="json_schema", sent={"max_tokens": 2048},
        run_id="recording-2026-11-22",
    )  # fmt: skip
    assert replies.get(sha256("key 3")) is None
    assert len(replies) == 2


def test_the_same_replies_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    rows = [row(number) for number in range(20)] + [row(3, metric="a", reply="of an earlier place")]
    first = written(tmp_path, rows).read_bytes()
    random.Random(5).shuffle(rows)
    assert written(tmp_path, rows).read_bytes() == first
    questions = [json.loads(line)["question"] for line in first.decode().split("\n")[1:-1]]
    assert questions == sorted(questions)
    assert "q3 / m / a / grade.v2" in questions
    assert len(questions) == 20, "a question that several ask has one line"


def test_failed_calls_are_left_out_and_a_second_attempt_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [row(1), row(2, status="refused", reply=None), row(3, turn="repair")])
    assert len(read_recorded_file(path)) == 2
    assert '"q3 / m / correctness / grade.v2 / repair"' in path.read_text()


@pytest.mark.parametrize("rows", [[], [row(1), row(2, model="other")], [row(1), row(2, judge="other")]])
def test_replies_of_several_judges_are_not_one_recording(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="one judge"):
        written(tmp_path, rows)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_reply_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("recorded"), [row(1, reply=text), row(2)])
    call = read_recorded_file(path).get(sha256("key 1"))
    assert call is not None
    assert call.text == text


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text.replace('\\"score\\": 1', '\\"score\\": 5'), "not those that were written"),
        (lambda text: text[: len(text) // 2], "not those that were written"),
        (lambda text: text + text.split("\n")[1] + "\n", "not those that were written"),
        (lambda text: "", "InvalidJson"),
        (lambda text: "[]\n", "TypeError"),
        (lambda text: f'{{"format": {FORMAT}}}\n', "KeyError: 'sha256'"),
        (lambda text: text.replace('"model":"m",', ""), "KeyError: 'model'"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, damage: Any, told: str) -> None:
    path = written(tmp_path, [row(1), row(2)])
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=f"(?s)the recorded replies cannot be used.*{told}.*install ragpipe again"):
        read_recorded_file(path)


def test_a_missing_file_and_one_of_bytes_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)none\.jsonl.*No such file"):
        read_recorded_file(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UnicodeDecodeError"):
        read_recorded_file(tmp_path / "bytes.jsonl")


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, [row(1)])
    path.write_text(path.read_text().replace(f'"format":{FORMAT}', '"format":3'))
    with pytest.raises(FormatMismatch, match="format 3"):
        read_recorded_file(path)
