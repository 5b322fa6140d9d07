"""Rows of a file of calls that have no digest: they are refused by their number, and nothing is taken in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.digest import sha256
from ragpipe.errors import DataError
from ragpipe.schema.format import FORMAT
from ragpipe.store.exchange import DIGEST, NAMES, NUMBER, import_calls

FIELDS = json.dumps({"messages": [{"role": "user", "content": "Why?"}]})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ('"cost_usd": NaN', "cells that are not those of its row_sha256"),
        ('"text": "\\ud800"', "cells that are not those of its row_sha256"),
        (f'"{DIGEST}": null', "a digest that is no text"),
        ('"key": 7', "a digest that is no text"),
    ],
)
def test_a_row_that_has_no_digest_is_refused(tmp_path: Path, changed: str, told: str) -> None:
    row = {NUMBER: FORMAT, **dict.fromkeys(NAMES), "key": "k", "payload_id": "p", "fields": FIELDS, DIGEST: "0" * 64}
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps(row)[:-1] + ", " + changed + "}\n")  # of two equal names the last one counts
    with pytest.raises(DataError, match=rf"row 1(?s:.*){told}"):
        import_calls(tmp_path / "store" / "calls.sqlite", file)
    assert not (tmp_path / "store").exists()


def test_fields_with_half_a_character_are_refused(tmp_path: Path) -> None:
    """The row's own digest is right: it is of the text, in which the half character is escaped."""
    cells = {NUMBER: FORMAT, **dict.fromkeys(NAMES), "key": "k", "payload_id": "p", "fields": '{"messages": "\\ud800"}'}
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps({**cells, DIGEST: sha256(cells)}) + "\n")
    with pytest.raises(DataError, match=r"row 1(?s:.*)a key that is not that of its fields"):
        import_calls(tmp_path / "calls.sqlite", file)


def test_a_line_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text("[" * 100_000 + "\n")
    with pytest.raises(DataError, match="cannot be taken in"):
        import_calls(tmp_path / "calls.sqlite", file)
