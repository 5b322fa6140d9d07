"""The replies that a finished run holds: its judge_inputs read as a call store, so that a folder alone is enough."""

from __future__ import annotations

import json
from collections import OrderedDict
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
        self._files = [_open(path) for path in files]
        self._groups: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()
        marks, places = [], []
        for number, file in enumerate(self._files):
            for group in range(file.metadata.num_row_groups):
                keys = file.read_row_group(group, columns=["key"])["key"].combine_chunks()
                marks.append(_marks(keys))
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
            cells = self._group(file, group).slice(row, 1).to_pylist()[0]
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

    def _group(self, file: int, group: int) -> pa.Table:
        if (file, group) not in self._groups:
            if len(self._groups) == _KEPT:
                self._groups.popitem(last=False)
            self._groups[file, group] = self._files[file].read_row_group(group, columns=list(_COLUMNS))
        self._groups.move_to_end((file, group))
        return self._groups[file, group]


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


def _open(path: Path) -> pq.ParquetFile:
    problem = "a symbolic link" if path.is_symlink() else "no such file" if not path.is_file() else ""
    if not problem:
        try:
            file = pq.ParquetFile(path)
            if set(_COLUMNS) <= set(file.schema_arrow.names):
                return file
            problem = "a table of another form"
        except (pa.ArrowException, OSError) as error:
            problem = f"no readable Parquet file ({error})"
    raise DataError(
        "a run's replies cannot be read",
        [
            Problem(
                str(path),
                "file",
                problem,
                "the judge_inputs.parquet that ragpipe wrote",
                "copy the whole run folder",
            )
        ],
    )


def _marks(keys: pa.Array) -> Any:
    """The first 16 hex digits of each key as a number. Raises DataError for what is no key."""
    try:
        return np.array([int(key[:16], 16) for key in keys.to_pylist()], dtype=np.uint64)
    except (TypeError, ValueError) as error:
        raise DataError(
            "a run's replies cannot be read",
            [
                Problem(
                    "judge_inputs.parquet",
                    "key",
                    str(error),
                    "the hash of a question in every row",
                    "copy the whole run folder",
                )
            ],
        ) from None


def _places(file: int, group: int, rows: int) -> Any:
    return np.stack([np.full(rows, file), np.full(rows, group), np.arange(rows)], axis=1).astype(np.int32)
