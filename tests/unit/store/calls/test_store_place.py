"""Which store a setting means, and what stands before it: waits that end, the notice of what is kept, recorded replies."""

import asyncio
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core import registry
from ragpipe.core.call import Call, Payment
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FormatMismatch, OutputError, Problem
from ragpipe.core.settings import NoOrigins, validated
from ragpipe.core.version import FORMAT
from ragpipe.runs.settings import StoreSettings
from ragpipe.store.call_database import StorePlace, call_database, store_place_of
from ragpipe.store.call_store import CallStore
from ragpipe.store.recorded_replies import read_recorded_file, write_recorded_file
from ragpipe.store.table_rows import JUDGE_INPUTS


def test_a_store_is_a_file_or_what_is_registered_for_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_place_of(None, None, "out") == Path("out/.store/calls.sqlite")
    assert store_place_of(None, "mine", "out") == Path("mine/calls.sqlite")
    monkeypatch.setattr(registry, "find", lambda kind, name: Mine if (kind, name) == ("store", "mine") else None)
    place: StorePlace = store_place_of("mine://h/db", None, "out")
    assert isinstance(place, Mine)
    assert place.given == "mine://h/db"
    assert call_database(place) is place
    (problem,) = problems_of({"path": "here", "url": "mine://h/db"})
    assert problem.key == "store.url"
    assert "one place" in problem.expected


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

    def __init__(self, url: str):
        self.given = url


KEYS = [sha256(f"key {number}") for number in range(2)]
PAID = Payment("openai/m", "2026-11-22T08:00:00.000+00:00", 900, 60, 0, 0, 0, 0.25)


def call(key: str) -> Call:
    return Call(key, "", "judge", "ok", text="a reply")


@pytest.mark.parametrize("paid_only", [False, True])
def test_what_cannot_be_stored_is_told_of_once(tmp_path, monkeypatch, caplog, paid_only: bool) -> None:
    """On a full disk: replies, and payments that are written at the end, when no event loop runs any more."""

    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    async def work(store: CallStore) -> None:
        for key in KEYS:
            if paid_only:
                await store.get_or_claim(key)
                store.record_payment(key, 1, PAID)
                continue
            with pytest.raises(OutputError, match=r"the disk is full.*action=import"):
                await store.put(call(key))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    monkeypatch.setattr(store._worker.table, "write", refuse)
    asyncio.run(work(store))
    if paid_only:
        with pytest.raises(OutputError, match=r"the disk is full.*action=import"):
            store.close()
    else:
        store.close()
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    command = f"task=store action=import from={kept}"
    assert caplog.messages == [f"what was paid for and could not be stored is kept in {kept}: `{command}` takes it in"]


DAY = "2026-11-22"


def row(number: int, **cells: Any) -> dict[str, Any]:
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


def test_a_recording_has_one_reply_a_key_in_any_order(tmp_path: Path) -> None:
    rows = [row(number) for number in range(20)] + [row(3, metric="a", reply="of an earlier place")]
    first = written(tmp_path, rows).read_bytes()
    random.Random(5).shuffle(rows)
    assert written(tmp_path, rows).read_bytes() == first
    questions = [json.loads(line)["question"] for line in first.decode().split("\n")[1:-1]]
    assert questions == sorted(questions)
    assert "q3 / m / a / grade.v2" in questions
    assert len(questions) == 20, "a question that several ask has one line"
    path = written(tmp_path, [row(1), row(2, status="refused", reply=None), row(3, turn="repair")])
    assert len(read_recorded_file(path)) == 2
    assert '"q3 / m / correctness / grade.v2 / repair"' in path.read_text()
    path = written(tmp_path, [row(1)])
    path.write_text(path.read_text().replace(f'"format":{FORMAT}', '"format":3'))
    with pytest.raises(FormatMismatch, match="format 3"):
        read_recorded_file(path)


@pytest.mark.parametrize("rows", [[], [row(1), row(2, model="other")], [row(1), row(2, judge="other")]])
def test_replies_of_several_judges_are_not_one_recording(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="one judge"):
        written(tmp_path, rows)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("damage", "told"), [
    (lambda text: text.replace('\\"score\\": 1', '\\"score\\": 5'), "not those that were written"),
    (lambda text: text[: len(text) // 2], "not those that were written"),
    (lambda text: text + text.split("\n")[1] + "\n", "not those that were written"),
    (lambda text: "", "InvalidJson"),
    (lambda text: "[]\n", "TypeError"),
    (lambda text: f'{{"format": {FORMAT}}}\n', "KeyError: 'sha256'"),
    (lambda text: text.replace('"model":"m",', ""), "KeyError: 'model'"),
])  # fmt: skip
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, damage: Any, told: str) -> None:
    path = written(tmp_path, [row(1), row(2)])
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=f"(?s)the recorded replies cannot be used.*{told}.*install ragpipe again"):
        read_recorded_file(path)
