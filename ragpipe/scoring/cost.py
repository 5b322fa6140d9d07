"""`cost.json`: what the replies of a run cost, and what its own processes really paid."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.errors import TRANSIENT
from ragpipe.scoring.operations import judge_rates, latency_of

_TOKENS = ("tokens_in", "tokens_out", "tokens_cached")
_NUMBERS = (*_TOKENS, "cost_usd", "latency_ms", "attempts")
_TEXTS = ("metric", "judge", "status", "cost_reason")
_NOT_STORED = sorted(TRANSIENT - {"missing_reply"})  # asked and paid for by this run itself, but in no store
_SAVED = ("calls", "attempts", *_TOKENS, "usd")

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_BATCH = 65536  # rows read at once
_KEY_CHARS = 64
_NO_DIGIT = 255
_HEX = np.full(256, _NO_DIGIT, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)


@dataclass(frozen=True)
class _Calls:
    """A batch of calls, column by column; NaN stands for null. A text is a number, `names` says which one it is."""

    numbers: dict[str, Floats]
    texts: dict[str, Whole]
    names: Mapping[str, list[str | None]]

    def __len__(self) -> int:
        return len(self.texts["status"])

    def where(self, chosen: Any) -> _Calls:
        return _Calls(
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: column[chosen] for name, column in self.texts.items()},
            self.names,
        )

    def by(self, name: str) -> Iterator[tuple[str, _Calls]]:
        """The calls of each value of a text, in the order of their first appearance."""
        codes, firsts = np.unique(self.texts[name], return_index=True)
        for code in codes[np.argsort(firsts)].tolist():
            yield self.names[name][code] or "", self.where(self.texts[name] == code)

    def any_of(self, name: str, values: Collection[str]) -> NDArray[np.bool_]:
        """Where a text is one of these."""
        wanted = [code for code, value in enumerate(self.names[name]) if value in values]
        return np.isin(self.texts[name], wanted)


@dataclass
class Bill:
    """Sums over calls. `failures` are counted by kind, `retries` are the HTTP tries after a call's first. Money is null as
    soon as one price is unknown; what is known stands beside it."""

    calls: int = 0
    computed: int = 0  # answered by the embedded judge, never sent
    failed: int = 0
    attempts: int = 0
    retries: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    without_usage: int = 0
    usd: array[float] = field(default_factory=lambda: array("d"))
    unpriced: dict[str, int] = field(default_factory=dict)
    latency_ms: array[float] = field(default_factory=lambda: array("d"))

    def add(self, calls: _Calls) -> None:
        numbers = calls.numbers
        self.calls += len(calls)
        self.computed += int(np.count_nonzero(numbers["attempts"] == 0))
        broken = calls.where(~calls.any_of("status", {"ok"}))
        self.failed += len(broken)
        for kind, some in broken.by("status"):
            self.failures[kind] = self.failures.get(kind, 0) + len(some)
        self.retries += int(np.nansum(np.maximum(numbers["attempts"] - 1, 0)))
        self.attempts += int(np.nansum(numbers["attempts"]))
        self.without_usage += int(np.count_nonzero(np.isnan(numbers["tokens_in"]) | np.isnan(numbers["tokens_out"])))
        for name in _TOKENS:
            self.tokens[name] += int(np.nansum(numbers[name]))
        unknown = np.isnan(numbers["cost_usd"])
        self.usd.frombytes(numbers["cost_usd"][~unknown & (numbers["cost_usd"] != 0)].tobytes())
        for reason, some in calls.where(unknown).by("cost_reason"):
            self.unpriced[reason or "(no reason)"] = self.unpriced.get(reason or "(no reason)", 0) + len(some)
        self.latency_ms.frombytes(numbers["latency_ms"][~np.isnan(numbers["latency_ms"])].tobytes())

    def total(self) -> dict[str, Any]:
        known = math.fsum(self.usd)
        counts: dict[str, Any] = {
            "calls": self.calls,
            "calls_computed": self.computed,
            "calls_failed": self.failed,
            "failures": _by_count(self.failures),
        }
        return {
            **counts,
            **judge_rates(counts),
            "attempts": self.attempts,
            "retries": self.retries,
            **self.tokens,
            "calls_without_usage": self.without_usage,
            "usd": None if self.unpriced else known,
            "usd_known": known,
            "usd_unknown": _by_count(self.unpriced),
            "latency_ms": latency_of(self.latency_ms),
        }


def used(judge_inputs: Path, n_cases: int, case_times: array[float]) -> dict[str, Any]:
    """What the replies cost that this run rests on: in all, per metric, per judge and on average per case.

    A reply that several cases or metrics share is charged once, to the first in the order of the rows. A function of
    stored rows alone: every replay gives the same. `case_times` are what the judge took for each case that has a measured
    call, all of whose questions are counted: their times, measured when they were asked, one after the other.
    """
    total, by_metric, by_judge = Bill(), dict[str, Bill](), dict[str, Bill]()
    first, read, uses, lost = _first_uses(judge_inputs), 0, 0, Bill()
    for batch in _batches(judge_inputs):
        answered = ~batch.any_of("status", ("skipped",))  # what an embedded judge cannot answer is no call of anybody's
        calls = batch.where(first[read : read + len(batch)] & answered)
        read, uses = read + len(batch), uses + int(np.count_nonzero(answered))
        total.add(calls)
        lost.add(calls.where(calls.any_of("status", _NOT_STORED)))
        for name, bills in (("metric", by_metric), ("judge", by_judge)):
            for value, some in calls.by(name):
                bills.setdefault(value, Bill()).add(some)
    found = total.total()
    asked = {name: lost.total()[name] for name in _SAVED if name != "usd"}
    return {
        **found,
        "uses": uses,
        "not_stored": asked,
        "by_metric": {name: bill.total() for name, bill in by_metric.items()},
        "by_judge": {name: bill.total() for name, bill in by_judge.items()},
        "case_latency_ms": latency_of(case_times),
        "per_case": {name: _share(found[name], n_cases) for name in _SAVED},
    }


def cost(
    judge_inputs: Path, n_cases: int, *, case_times: array[float], spent: Mapping[str, Any], prices: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole of `cost.json`. `case_times` as for `used`. `spent` is what this folder's own processes paid (`calls`, `attempts`, `tokens_in`,
    `tokens_out`, `tokens_cached`, `usd`; null or absent = unknown; `replaced`: the part of it for calls that stand no
    more), `prices` names source and date of the price table."""
    found = used(judge_inputs, n_cases, case_times)
    gone = spent.get("replaced", {})  # what was paid for failures that were asked again saves nothing and loses nothing
    saved = {name: _difference(found[name], _difference(spent.get(name), gone.get(name, 0))) for name in _SAVED}
    if saved["calls"] is not None:
        saved["calls"] -= found["calls_computed"]  # what nobody would have been asked saves nothing
    for name, lost in found["not_stored"].items():  # asked by this run itself, and not kept: that is no saving
        if saved[name] is not None:
            saved[name] -= lost
    return {"used": found, "spent": dict(spent), "saved": saved, "prices": dict(prices)}


def _batches(path: Path) -> Iterator[_Calls]:
    with pq.ParquetFile(path, read_dictionary=list(_TEXTS)) as file:
        for batch in file.iter_batches(batch_size=_BATCH, columns=[*_TEXTS, *_NUMBERS]):
            # null is a value like the others: `cost_reason` has it wherever the price is known
            texts = {name: batch[name].cast(pa.string()).dictionary_encode("encode") for name in _TEXTS}
            yield _Calls(
                {name: batch[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in _NUMBERS},
                {name: column.indices.to_numpy().astype(np.int64) for name, column in texts.items()},
                {name: column.dictionary.to_pylist() for name, column in texts.items()},
            )


def _first_uses(path: Path) -> NDArray[np.bool_]:
    """Which rows use a reply for the first time: 16 bytes a row while it is found out, one after that."""
    halves = [np.empty((0, 2), dtype=np.uint64)]
    with pq.ParquetFile(path) as file:
        halves += [_marks(batch.column(0)) for batch in file.iter_batches(batch_size=_BATCH, columns=["key"])]
    marks = np.concatenate(halves)
    order = np.lexsort((marks[:, 1], marks[:, 0]))  # stable: equal marks stay in the order of their rows
    ordered = marks[order]
    new = np.ones(len(marks), dtype=np.bool_)
    new[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    found = np.zeros(len(marks), dtype=np.bool_)
    found[order[new]] = True
    return found


def _marks(keys: pa.Array) -> NDArray[np.uint64]:
    """128 bits of each key, which is the hex form of a sha256: its first half. Any other text is hashed to as many."""
    ends = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if keys.null_count == 0 and len(keys) and np.all(np.diff(ends) == _KEY_CHARS):
        text = np.frombuffer(keys.buffers()[2], dtype=np.uint8)[ends[0] : ends[-1]].reshape(len(keys), _KEY_CHARS)
        digits = _HEX[text[:, :32]]
        if not np.any(digits == _NO_DIGIT):
            packed = np.ascontiguousarray(digits[:, 0::2] << 4 | digits[:, 1::2])
            return packed.view(np.uint64)
    hashed = [hashlib.blake2b((key or "").encode(), digest_size=16).digest() for key in keys.to_pylist()]
    return np.frombuffer(b"".join(hashed), dtype=np.uint64).reshape(-1, 2)


def _by_count(counted: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _share(value: float | None, n: int) -> float | None:
    return value / n if value is not None and n else None


def _difference(whole: float | None, part: float | None) -> float | None:
    return whole - part if whole is not None and part is not None else None
