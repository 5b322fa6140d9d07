"""Replies of a judge that were recorded once, as a text file that is only read: one line of JSON per reply.

The first line says what all replies have in common, and has the number of the lines that follow and their sha256. A reply is
found by the key of its question, so that another case, template or judge does not find it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.named_files import named_text
from ragpipe.core.strict_json import strict_loads
from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.store.calls.recorded_replies import COLUMNS, RecordedRowReplies
from ragpipe.store.files.atomic import atomic_write

_SHARED = ("judge", "model", "finish_reason", "output_mode", "sent")
_OWN = ("key", "reply", "tokens_in", "tokens_out")
"""The columns of judge inputs that all replies of a file share, and those that each has for itself."""


def read_recorded_file(path: Path) -> RecordedRowReplies:
    """The replies of a file, as a store that is only read. How long each took is not known.

    Raises DataError for a file that is missing or is not as it was written, FormatMismatch for one of another format.
    """
    try:
        first, _, body = named_text(path).partition("\n")
        header = strict_loads(first)
        if header["format"] != FORMAT:
            fix = "take the file that belongs to this ragpipe, or record the replies again"
            raise format_mismatch("the recorded replies cannot be used", path, header["format"], None, fix)
        if header["sha256"] != sha256(body) or header["replies"] != body.count("\n"):
            raise ValueError("lines that are not those that were written")
        payer = f"recording-{header['recorded']}/1"
        shared = {**dict.fromkeys(COLUMNS), "payload_id": "", "status": "ok", "paid_by": payer}
        shared |= {name: header[name] for name in _SHARED}
        lines = map(json.loads, body.split("\n")[:-1])
        return RecordedRowReplies({**shared, **{name: line[name] for name in _OWN}} for line in lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "install ragpipe again if the file is its own (package:...); else write it again, or set store.recorded=null"
        reason = (
            f"nothing readable: {error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        )
        problem = Problem(str(path), "store.recorded", reason, "replies as they were recorded", fix)
        raise DataError("the recorded replies cannot be used", [problem]) from error


def write_recorded_file(path: Path, rows: Iterable[Mapping[str, Any]], *, recorded: str) -> int:
    """Write the replies of judge inputs, each question once, in the order of cases and steps. Returns their number.

    Failed calls are left out. `recorded` is the day of the recording. Raises ValueError unless all replies are of one judge
    that was asked in one way.
    """
    replies: dict[str, Mapping[str, Any]] = {}
    for row in sorted((row for row in rows if row["status"] == "ok"), key=_question):
        replies.setdefault(row["key"], row)
    shared = {tuple(row[name] for name in _SHARED) for row in replies.values()}
    if len(shared) != 1:
        raise ValueError(f"replies of one judge that was asked in one way are needed, found {len(shared)} ways")
    body = "".join(f"{canonical_json(_line(row))}\n" for row in replies.values())
    common = dict(zip(_SHARED, shared.pop(), strict=True))
    header = {"format": FORMAT, "recorded": recorded, **common, "replies": len(replies), "sha256": sha256(body)}
    atomic_write(path, f"{canonical_json(header)}\n{body}")
    return len(replies)


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"question": _question(row), **{name: row[name] for name in _OWN}}


def _question(row: Mapping[str, Any]) -> str:
    """Who asked, for people: the first case and metric that asked it."""
    turn = "" if row["turn"] == "ask" else f" / {row['turn']}"
    return f"{row['sample_id']} / {row['method']} / {row['metric']} / {row['step']}.{row['template_version']}{turn}"
