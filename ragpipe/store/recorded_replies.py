"""The replies of a finished run: its judge_inputs read as a call store, so that the folder alone is enough."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ragpipe.core.call import Call
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import TRANSIENT, DataError, Problem
from ragpipe.core.strict_json import strict_loads
from ragpipe.core.usage import TOKENS
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.core.yaml_files import named_text
from ragpipe.store.call_store import ReplyStore, WrappedStore
from ragpipe.store.files import atomic_write
from ragpipe.store.ledger import Freshness
from ragpipe.store.run_tables import open_parquet_file, reading_table, run_file_error

_KEPT = 6  # row groups in memory: the blocks that are open at once, and their neighbours
COLUMNS = (
    *("key", "payload_id", "judge", "status", "reply", "message", "model", "finish_reason", *TOKENS, "fingerprint"),
    *("paid_by", "paid_usd", "latency_ms", "attempts", "output_mode", "sent", "wire_hash"),
)
"""The columns of judge inputs that a call is made from."""


class RecordedReplies(ReplyStore):
    """Calls by key from `judge_inputs.parquet` files; the first row of a key counts. Read-only, no claims.

    In memory are twenty bytes per row and a few row groups: a replay reads the files once, in order. `failures` says which
    failed calls are served: `all`, or `permanent` ones. Raises DataError for a file that cannot be read
    and for one whose replies were not kept (`keep_messages=false`).
    """

    def __init__(self, files: Sequence[Path], *, failures: str = "all"):
        self._failures = failures
        self._files = [open_parquet_file(path, COLUMNS) for path in files]
        self._rows_of = lru_cache(maxsize=_KEPT)(self._decoded)
        marks, places = [], []
        for number, file in enumerate(self._files):
            for group in range(file.metadata.num_row_groups):
                with reading_table(files[number]):
                    keys = file.read_row_group(group, columns=["key"])["key"].combine_chunks()
                marks.append(_key_prefixes(files[number], keys))
                place = np.full(len(keys), number), np.full(len(keys), group), np.arange(len(keys))
                places.append(np.stack(place, axis=1).astype(np.int32))
        prefixes = np.concatenate([np.empty(0, np.uint64), *marks])
        order = np.argsort(prefixes, kind="stable")
        self._marks = prefixes[order]
        self._places = np.concatenate([np.empty((0, 3), np.int32), *places])[order]

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, key: str) -> Call | None:
        """The call of this key, None when there is none that may be used."""
        mark = np.uint64(int(key[:16], 16))
        place = int(self._marks.searchsorted(mark))
        while place < len(self._marks) and self._marks[place] == mark:
            file, group, row = self._places[place].tolist()
            cells = self._rows_of(file, group)[row]
            if cells[0] == key:
                return self._call(cells)
            place += 1
        return None

    def _decoded(self, file: int, group: int) -> list[tuple[Any, ...]]:
        """The cells of each row of a row group, in the order of `COLUMNS`."""
        rows = self._files[file].read_row_group(group, columns=list(COLUMNS))
        return list(zip(*(rows.column(name).to_pylist() for name in COLUMNS), strict=True))

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        if freshness == Freshness.NONE:
            return None
        call = self.get(key)
        return call if call is not None and freshness.accepts(call) else None

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._rows_of.cache_clear()

    def _call(self, cells: Sequence[Any]) -> Call | None:
        """The call of a row, whose cells are in the order of `COLUMNS`."""
        row = dict(zip(COLUMNS, cells, strict=True))
        reply, payer, attempts, sent = (row.pop(name) for name in ("reply", "paid_by", "attempts", "sent"))
        if self._failures != "all" and row["status"] in TRANSIENT:
            return None
        if row["status"] == "ok" and reply is None:
            fix = "it was made with keep_messages=false: re-judging and re-scoring with other parameters need the replies"
            problem = Problem("judge_inputs.parquet", "reply", "null", "the raw reply", fix)
            raise DataError("this run did not keep its replies", [problem])
        run_id, _, iteration = (payer or "").rpartition("/")
        return Call(
            text=reply,
            attempts=1 if attempts is None else attempts,
            answers=int(payer is not None),
            sent=dict(_sampling(sent or "{}")),
            run_id=run_id,
            iteration=int(iteration or 1),
            **row,
        )


class RecordedRowReplies(RecordedReplies):
    """Calls by key from rows of `judge_inputs` in memory, such as those of one case."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]):
        super().__init__(())
        self._rows: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            self._rows.setdefault(row["key"], row)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Call | None:
        row = self._rows.get(key)
        return None if row is None else self._call([row[name] for name in COLUMNS])


class FallbackStore(WrappedStore):
    """Recorded replies, then a call store for what they lack: what a finished run answered is never asked again."""

    def __init__(self, recorded: RecordedReplies, store: ReplyStore):
        super().__init__(store)
        self._recorded = recorded

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        return self.at_hand(key, freshness) or await self._store.get_or_claim(key, freshness=freshness, rejected=rejected)

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        return self._recorded.at_hand(key, freshness)

    def close(self) -> None:
        self._recorded.close()
        super().close()


@lru_cache(maxsize=64)
def _sampling(text: str) -> dict[str, Any]:
    """The sampling parameters of a row; all rows of a judge have the same. Copy it before you change it."""
    sampling: dict[str, Any] = json.loads(text)
    return sampling


def _key_prefixes(path: Path, keys: pa.Array) -> Any:
    """The first 16 hex digits of each key as a number. Raises DataError for what is no key."""
    try:
        return np.array([int(key[:16], 16) for key in keys.to_pylist()], dtype=np.uint64)
    except (TypeError, ValueError) as error:
        raise run_file_error(path, str(error), "the hash of a question in every row", key="key") from None


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
        reason = f"nothing readable: {error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
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
