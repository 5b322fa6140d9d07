"""Replies that were recorded in a file: found by their keys, and refused as a whole when a character is not as it was written."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FormatMismatch
from ragpipe.schema.call import Call
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.table_schemas import JUDGE_INPUTS
from ragpipe.store.calls.recorded_replies import read_recorded_file, write_recorded_file

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
