"""Rows of a file of calls that cannot be taken in: they are refused by their number, and nothing is taken in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.ledger_rows import PaymentEntry
from ragpipe.store.calls.transfer import DIGEST, import_calls, row_of_call, row_of_payment

FIELDS = {"messages": sha256("m"), "schema": sha256("s")}
CALL = row_of_call(Call(sha256(FIELDS), sha256(FIELDS), "j", "ok", fields=FIELDS, run_id="r"))
PAYMENT = row_of_payment(PaymentEntry(7, "r", 1, Payment("m", "2026-01-01T00:00:00.000+00:00", 1, 2, usd=0.5)))


def sealed(given: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The row with other cells, and the digest of these."""
    row = {**given, **changed}
    del row[DIGEST]
    return {**row, DIGEST: sha256(row)}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ('"paid_usd": NaN', "cells that are not those of its row_sha256"),
        ('"text": "\\ud800"', "cells that are not those of its row_sha256"),
        ('"key": 7', "cells that are not those of its row_sha256"),
        (f'"{DIGEST}": null', "a digest that is no text"),
    ],
)
def test_a_row_without_its_digest_is_refused(tmp_path: Path, changed: str, told: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps(CALL)[:-1] + ", " + changed + "}\n")  # of two equal names the last one counts
    with pytest.raises(DataError, match=rf"row 1(?s:.*){told}"):
        import_calls(tmp_path / "store" / "calls.sqlite", file)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (sealed(CALL, key="k"), "cells that are no call"),
        (sealed(CALL, key=sha256("other")), "a key that is not that of its fields"),
        (sealed(CALL, payload_id="p"), "a payload_id that is not that of its fields"),
        (sealed(CALL, fields="{"), "cells that are no call"),
        (sealed(CALL, fields='{"messages": "\\ud800"}'), "a key that is not that of its fields"),
        (sealed(CALL, created_at="yesterday"), "cells that are no call"),
        (sealed(CALL, tokens_in=2**70), "cells that are no call"),
        (sealed(CALL, row="reply"), "a row of the kind 'reply'"),
        (sealed(PAYMENT, mark="7"), "cells that are no payment"),
        (sealed(PAYMENT, at="yesterday"), "cells that are no payment"),
        (sealed(PAYMENT, usd="0.5"), "cells that are no payment"),
    ],
)
def test_a_row_that_says_what_no_store_wrote_is_refused(tmp_path: Path, row: dict[str, Any], told: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps(CALL) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=rf"row 2(?s:.*){told}"):
        import_calls(tmp_path / "store" / "calls.sqlite", file)
    assert not (tmp_path / "store").exists()


def test_a_line_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text("[" * 100_000 + "\n")
    with pytest.raises(DataError, match="cannot be taken in"):
        import_calls(tmp_path / "calls.sqlite", file)
