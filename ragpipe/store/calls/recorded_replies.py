"""The replies that a finished run holds: its judge_inputs read as a call store, so that a folder alone is enough."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.errors import TRANSIENT, DataError, Problem, RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.accepted_replies import AcceptedReplies
from ragpipe.store.calls.call_store import CallStore, Fresh, StoredCalls
from ragpipe.store.run.row_group_cache import RowGroupCache
from ragpipe.store.run.run_tables import open_parquet_file, reading_table, run_file_error

_KEPT = 6  # row groups held: the blocks that are open at once, and their neighbours
_COLUMNS = (
    "key",
    "payload_id",
    "judge",
    "status",
    "reply",
    "message",
    "model",
    "finish_reason",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_reasoning",
    "fingerprint",
    "paid_by",
    "paid_usd",
    "latency_ms",
    "attempts",
    "output_mode",
    "sent",
    "wire_hash",
)


class RecordedReplies:
    """Calls by key from `judge_inputs.parquet` files; the first row of a key counts. Read-only, no claims.

    Sixteen bytes a row are held and a few row groups: replaying a run reads its files once, in order. `failures` says
    whether calls that failed are given too: `all`, `permanent`, or `none`. Raises DataError for a file that cannot be read
    and for one whose replies were not kept (`store_inputs=false`).
    """

    def __init__(self, files: Sequence[Path], *, failures: str = "all"):
        self._failures = failures
        self._files = [open_parquet_file(path, _COLUMNS) for path in files]
        self._groups = RowGroupCache(self._files, _replies_of_group, max_groups=_KEPT)
        marks, places = [], []
        for number, file in enumerate(self._files):
            for group in range(file.metadata.num_row_groups):
                with reading_table(files[number]):
                    keys = file.read_row_group(group, columns=["key"])["key"].combine_chunks()
                marks.append(_key_prefixes(files[number], keys))
                places.append(_places(number, group, len(keys)))
        found = np.concatenate([np.empty(0, np.uint64), *marks])
        order = np.argsort(found, kind="stable")
        self._marks = found[order]
        self._places = np.concatenate([np.empty((0, 3), np.int32), *places])[order]

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, key: str) -> Call | None:
        """The call of this key, None when there is none that may be used."""
        mark = np.uint64(int(key[:16], 16))
        place = int(np.searchsorted(self._marks, mark, side="left"))
        while place < len(self._marks) and self._marks[place] == mark:
            file, group, row = self._places[place].tolist()
            cells = self._groups.group(group, file).slice(row, 1).to_pylist()[0]
            if cells["key"] == key:
                return self._call(cells)
            place += 1
        return None

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None:
        """As `CallStore.take`, without a claim."""
        found = self.get(key)
        return None if found is not None and fresh and (fresh == "all" or found.status != "ok") else found

    async def put(self, call: Call) -> Call:
        """Nothing is stored."""
        return call

    def pay(self, key: str, iteration: int, payment: Payment) -> None:
        """Nobody is asked over a finished run."""

    async def release(self, key: str) -> None:
        """Nothing was claimed."""

    def give_up(self, why: RagpipeError) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._groups.clear()

    def _call(self, cells: dict[str, Any]) -> Call | None:
        status = cells["status"]
        if status not in ("ok", "skipped") and (
            self._failures == "none" or (self._failures == "permanent" and status in TRANSIENT)
        ):
            return None
        if status == "ok" and cells["reply"] is None:
            raise DataError(
                "this run did not keep its replies",
                [
                    Problem(
                        "judge_inputs.parquet",
                        "reply",
                        "null",
                        "the raw reply",
                        "it was made with store_inputs=false: re-judging and re-scoring with other parameters need the replies",
                    )
                ],
            )
        sent, payer = json.loads(cells.pop("sent") or "{}"), cells.pop("paid_by")
        run_id, _, iteration = (payer or "").rpartition("/")
        return Call(
            text=cells.pop("reply"),
            sent=sent,
            run_id=run_id,
            iteration=int(iteration or 1),
            answers=int(payer is not None),
            **{k: v for k, v in cells.items() if v is not None or k != "attempts"},
        )


class RecordedRowReplies(RecordedReplies):
    """Calls by key from rows of `judge_inputs` that were read already: those of one case, say."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]):
        super().__init__(())
        self._rows: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            self._rows.setdefault(row["key"], row)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Call | None:
        row = self._rows.get(key)
        return None if row is None else self._call({name: row[name] for name in _COLUMNS})


class FallbackStore:
    """A call store in front of which a finished run's replies are looked at: what it answered is never asked again."""

    def __init__(self, first: RecordedReplies, then: CallStore | StoredCalls | AcceptedReplies):
        self._first, self._then = first, then

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None:
        return await self._first.take(key, fresh=fresh) or await self._then.take(key, fresh=fresh)

    async def put(self, call: Call) -> Call:
        return await self._then.put(call)

    def pay(self, key: str, iteration: int, payment: Payment) -> None:
        self._then.pay(key, iteration, payment)

    async def release(self, key: str) -> None:
        await self._then.release(key)

    def give_up(self, why: RagpipeError) -> None:
        self._then.give_up(why)

    def close(self) -> None:
        self._first.close()
        self._then.close()


def _replies_of_group(file: pq.ParquetFile, group: int) -> pa.Table:
    return file.read_row_group(group, columns=list(_COLUMNS))


def _key_prefixes(path: Path, keys: pa.Array) -> Any:
    """The first 16 hex digits of each key as a number. Raises DataError for what is no key."""
    try:
        return np.array([int(key[:16], 16) for key in keys.to_pylist()], dtype=np.uint64)
    except (TypeError, ValueError) as error:
        raise run_file_error(path, str(error), "the hash of a question in every row", key="key") from None


def _places(file: int, group: int, rows: int) -> Any:
    return np.stack([np.full(rows, file), np.full(rows, group), np.arange(rows)], axis=1).astype(np.int32)
