"""The replies of a finished run, or of a recording, are found by their keys in any order; the first row of a key counts."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core.call import Call
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FormatMismatch
from ragpipe.core.version import FORMAT
from ragpipe.judge.session import JudgeSession, StoredTransport
from ragpipe.store.call_store import StoredCalls, WrappedStore
from ragpipe.store.ledger import Freshness
from ragpipe.store.recorded_replies import FallbackStore, RecordedReplies, read_recorded_file, write_recorded_file
from ragpipe.store.table_rows import JUDGE_INPUTS, table_of
from tests.support.asking import question

ROWS = 700
GROUPS = 300  # rows per row group: each has a full slice of rows that are decoded at once, and a part of one


def row(number: int, **cells: Any) -> dict[str, Any]:
    empty = dict.fromkeys(JUDGE_INPUTS.names)
    return {
        **empty, "sample_id": f"q{number}", "key": sha256(f"key {number}"), "payload_id": sha256(f"payload {number}"), "judge": "m@h",
        "status": "ok", "reply": f"reply {number}", "flags": [], "tokens_in": number, "latency_ms": number / 7,
        "attempts": 1 + number % 2, "paid_by": f"run{number % 3}/2" if number % 5 else None,
        "sent": json.dumps({"temperature": 0, "seed": number % 2}), "wire_hash": sha256(number), **cells,
    }  # fmt: skip


def call(cells: dict[str, Any]) -> Call:
    payer = cells["paid_by"]
    return Call(
        key=cells["key"], payload_id=cells["payload_id"], judge=cells["judge"], status=cells["status"],
        text=cells["reply"], message=cells["message"], model=cells["model"], finish_reason=cells["finish_reason"],
        tokens_in=cells["tokens_in"], fingerprint=cells["fingerprint"], paid_usd=cells["paid_usd"],
        latency_ms=cells["latency_ms"], attempts=cells["attempts"], answers=0 if payer is None else 1,
        output_mode=cells["output_mode"], sent=json.loads(cells["sent"]), wire_hash=cells["wire_hash"],
        run_id=payer.split("/")[0] if payer else "", iteration=int(payer.split("/")[1]) if payer else 1,
    )  # fmt: skip


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(table_of(rows, JUDGE_INPUTS), path, row_group_size=GROUPS)
    return path


def test_calls_of_runs_are_served_by_their_key(tmp_path: Path) -> None:
    rows = [row(number) for number in range(ROWS)]
    rows += [{**rows[number], "reply": "a later row"} for number in (0, 1, 255, 256, 299, 300, ROWS - 1)]
    second = [row(number, reply="of the second file") for number in (3, ROWS + 1)]
    replies = RecordedReplies([table(tmp_path / "1.parquet", rows), table(tmp_path / "2.parquet", second)])
    expected: dict[str, Call] = {}
    for cells in (*rows, *second):
        expected.setdefault(cells["key"], call(cells))
    keys = list(expected) * 2
    random.Random(1).shuffle(keys)
    assert [replies.get(key) for key in keys] == [expected[key] for key in keys]
    assert replies.get(sha256("another question")) is None
    assert replies.get(rows[0]["key"][:16] + sha256("only its beginning is known")[16:]) is None
    replies.close()
    replies = RecordedReplies([table(tmp_path / "1.parquet", [row(0, reply=None)])])
    with pytest.raises(DataError, match="did not keep its replies"):
        replies.get(sha256("key 0"))
    replies.close()


@pytest.mark.parametrize(("failures", "served"), [("all", 2), ("permanent", 1)])
def test_failed_calls_are_served_as_wanted(tmp_path: Path, failures: str, served: int) -> None:
    rows = [row(0, status="deadline", reply=None), row(1, status="refused", reply=None)]
    replies = RecordedReplies([table(tmp_path / "1.parquet", rows)], failures=failures)
    assert sum(replies.get(cells["key"]) is not None for cells in rows) == served
    replies.close()


class _OnlyAwaited(WrappedStore):
    """A store without `at_hand`: every reply is awaited."""

    async def get_or_claim(self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None) -> Call | None:
        return await self._store.get_or_claim(key, freshness=freshness, rejected=rejected)


@pytest.mark.parametrize("retry_errors", [False, True])
async def test_replies_at_hand_are_those_that_would_be_awaited(tmp_path: Path, retry_errors: bool) -> None:
    """With `retry_errors` a stored failure is no reply; nor is anything where the question is asked again."""
    questions = [question(text) for text in ("a reply", "a failure", "nothing")]
    rows = [row(1, key=questions[0].key), row(2, key=questions[1].key, status="refused", reply=None)]
    recorded = RecordedReplies([table(tmp_path / "1.parquet", rows)])
    stores = [recorded, FallbackStore(recorded, StoredCalls(tmp_path / "none.sqlite"))]
    given = []
    for store in [*stores, *map(_OnlyAwaited, stores)]:
        session = JudgeSession(identity={"model": "m"}, label="m", transport=StoredTransport(), store=store, retry_errors=retry_errors)
        given.append([(await session.reply(asked, again=again)).status for asked in questions for again in (False, True)])
    failure = "missing_reply" if retry_errors else "refused"
    assert given == [["ok", "missing_reply", failure, "missing_reply", "missing_reply", "missing_reply"]] * len(given)
    recorded.close()


def asked(number: int, **cells: Any) -> dict[str, Any]:
    """A row of a recording, with the place where it was asked."""
    return {
        **row(number), "method": "m", "repeat": 1, "iteration": 1, "metric": "correctness", "step": "grade", "turn": "ask",
        "template_version": "v2", "judge": "reader/m@recorded", "reply": f'{{"score": {number}}}', "model": "m",
        "finish_reason": "stop", "tokens_out": 7, "paid_by": "run/1", "attempts": 1, "output_mode": "json_schema",
        "sent": '{"max_tokens":2048}', "wire_hash": sha256("body"), **cells,
    }  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "replies.jsonl"
    write_recorded_file(path, rows, recorded="2026-11-22")
    return path


def test_a_reply_is_found_by_its_key_and_paid_for_by_the_recording(tmp_path: Path) -> None:
    replies = read_recorded_file(written(tmp_path, [asked(1), asked(2)]))
    assert replies.get(sha256("key 2")) == Call(
        key=sha256("key 2"), payload_id="", judge="reader/m@recorded", status="ok", text='{"score": 2}', model="m",
        finish_reason="stop", tokens_in=2, tokens_out=7, answers=1, output_mode="json_schema", sent={"max_tokens": 2048},
        run_id="recording-2026-11-22",
    )  # fmt: skip
    assert replies.get(sha256("key 3")) is None
    assert len(replies) == 2


def test_a_recording_has_one_reply_a_key_in_any_order(tmp_path: Path) -> None:
    rows = [asked(number) for number in range(20)] + [asked(3, metric="a", reply="of an earlier place")]
    first = written(tmp_path, rows).read_bytes()
    random.Random(5).shuffle(rows)
    assert written(tmp_path, rows).read_bytes() == first
    questions = [json.loads(line)["question"] for line in first.decode().split("\n")[1:-1]]
    assert questions == sorted(questions)
    assert "q3 / m / a / grade.v2" in questions
    assert len(questions) == 20, "a question that several ask has one line"
    path = written(tmp_path, [asked(1), asked(2, status="refused", reply=None), asked(3, turn="repair")])
    assert len(read_recorded_file(path)) == 2
    assert '"q3 / m / correctness / grade.v2 / repair"' in path.read_text()
    path = written(tmp_path, [asked(1)])
    path.write_text(path.read_text().replace(f'"format":{FORMAT}', '"format":3'))
    with pytest.raises(FormatMismatch, match="format 3"):
        read_recorded_file(path)


@pytest.mark.parametrize("rows", [[], [asked(1), asked(2, model="other")], [asked(1), asked(2, judge="other")]])
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
    path = written(tmp_path, [asked(1), asked(2)])
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=f"(?s)the recorded replies cannot be used.*{told}.*install ragpipe again"):
        read_recorded_file(path)
