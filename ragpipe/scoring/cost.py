"""`cost.json`: what the replies of a run cost, what its own processes really paid, what was saved and what was wasted.

`used - saved + wasted = spent`, in questions, tries, tokens, and money as long as no price changed since it was paid.
"""

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

from ragpipe.core.errors import TRANSIENT
from ragpipe.schema.price_rates import NO_USAGE, Rates
from ragpipe.scoring.operations import judge_rates, latency_of
from ragpipe.scoring.served_models import served

_TOKENS = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning")
_NUMBERS = (*_TOKENS, "paid_usd", "latency_ms", "attempts")
_TEXTS = ("metric", "judge", "status", "paid_by")
_PER_CASE = ("calls", "attempts", *_TOKENS, "usd")
_TINY = 1e-9  # dollars: what sums of floats may be apart

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

    def stand(self) -> NDArray[np.bool_]:
        """Those with a reply of a provider on which a result rests: what failed for a passing reason is asked again."""
        return ~self.any_of("paid_by", {None}) & ~self.any_of("status", TRANSIENT)

    def any_of(self, name: str, values: Collection[str | None]) -> NDArray[np.bool_]:
        """Where a text is one of these."""
        wanted = [code for code, value in enumerate(self.names[name]) if value in values]
        return np.isin(self.texts[name], wanted)


@dataclass
class Bill:
    """Sums over calls. `failures` are counted by kind, `retries` are the HTTP tries after a call's first. `answered` are the
    calls with a reply of a provider on which results rest: tokens and money are theirs. Money is null as soon as one price
    is unknown; what is known stands beside it."""

    calls: int = 0
    computed: int = 0  # answered by the embedded judge, never sent
    answered: int = 0
    failed: int = 0
    attempts: int = 0
    retries: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    without_usage: int = 0
    usd: array[float] = field(default_factory=lambda: array("d"))
    unpriced: dict[str, int] = field(default_factory=dict)
    latency_ms: array[float] = field(default_factory=lambda: array("d"))

    def add(self, calls: _Calls, rates: Mapping[str, Rates]) -> None:
        numbers = calls.numbers
        self.calls += len(calls)
        self.computed += int(np.count_nonzero(numbers["attempts"] == 0))
        broken = calls.where(~calls.any_of("status", {"ok"}))
        self.failed += len(broken)
        for kind, some in broken.by("status"):
            self.failures[kind] = self.failures.get(kind, 0) + len(some)
        self.retries += int(np.nansum(np.maximum(numbers["attempts"] - 1, 0)))
        self.attempts += int(np.nansum(numbers["attempts"]))
        self.latency_ms.frombytes(numbers["latency_ms"][~np.isnan(numbers["latency_ms"])].tobytes())
        self._pay(calls.where(calls.stand()), rates)

    def _pay(self, calls: _Calls, rates: Mapping[str, Rates]) -> None:
        self.answered += len(calls)
        for name in _TOKENS:
            self.tokens[name] += int(np.nansum(calls.numbers[name]))
        for judge, some in calls.by("judge"):
            tokens = [some.numbers[name] for name in _TOKENS]
            no_usage = np.isnan(tokens[0]) | np.isnan(tokens[1])
            self.without_usage += (unused := int(np.count_nonzero(no_usage)))
            found = rates.get(judge, Rates(judge, "", reason=f"no price is known for {judge}"))
            usd = found.usd_of(*tokens)
            self.usd.frombytes(usd[~np.isnan(usd)].tobytes())
            for reason, count in ((NO_USAGE, unused), (found.reason, 0 if found.tiers else len(some) - unused)):
                if count:
                    self.unpriced[reason] = self.unpriced.get(reason, 0) + count

    def paid(self) -> dict[str, Any]:
        """Calls that were answered, their tokens and their price."""
        known = math.fsum(self.usd)
        return {"calls": self.answered, **self.tokens, "usd": None if self.unpriced else known, "usd_known": known}

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
            "calls_answered": self.answered,
            "attempts": self.attempts,
            "retries": self.retries,
            **self.tokens,
            "calls_without_usage": self.without_usage,
            "usd": None if self.unpriced else known,
            "usd_known": known,
            "usd_unknown": _by_count(self.unpriced),
            "latency_ms": latency_of(self.latency_ms),
        }


@dataclass
class Own:
    """The used replies that a run and iteration paid for itself, and what they cost on that day."""

    bill: Bill = field(default_factory=Bill)
    usd: array[float] = field(default_factory=lambda: array("d"))
    unpriced: int = 0

    def add(self, calls: _Calls, rates: Mapping[str, Rates]) -> None:
        self.bill.add(calls, rates)
        paid = calls.numbers["paid_usd"]
        self.usd.frombytes(paid[~np.isnan(paid)].tobytes())
        self.unpriced += int(np.count_nonzero(np.isnan(paid)))


def cost(
    judge_inputs: Path,
    n_cases: int,
    *,
    case_times: array[float],
    payer: str,
    spent: Mapping[str, Any],
    rates: Mapping[str, Rates],
) -> dict[str, Any]:
    """The whole of `cost.json`.

    `used` is what the replies cost that this run rests on, at the prices of `rates` (by the judge's printable name): in all,
    per metric, per judge and on average per case. A reply that several cases or metrics share is charged once, to the first
    in the order of the rows. `case_times` are what the judge took for each case that has a measured call, all of whose
    questions are counted: their times, measured when they were asked, one after the other.

    `spent` is what `payer` (`<run_id>/<iteration>`) has paid, as the ledger says it (`ragpipe.store.calls.spend.PaymentSums`); `saved`
    what others paid of `used`; `wasted` what `payer` paid for tries and calls on which nothing rests, null where the ledger
    lacks some of what it paid; `repriced` by how much its own used replies cost more now than on the day they were paid.
    """
    total, by_metric, by_judge = Bill(), dict[str, Bill](), dict[str, Bill]()
    saved, own = Bill(), Own()
    first, read, uses = _first_uses(judge_inputs), 0, 0
    for batch in _batches(judge_inputs):
        answered = ~batch.any_of("status", ("skipped",))  # what an embedded judge cannot answer is no call of anybody's
        calls = batch.where(first[read : read + len(batch)] & answered)
        read, uses = read + len(batch), uses + int(np.count_nonzero(answered))
        total.add(calls, rates)
        stand, mine = calls.stand(), calls.any_of("paid_by", {payer})
        saved.add(calls.where(stand & ~mine), rates)
        own.add(calls.where(stand & mine), rates)
        for name, bills in (("metric", by_metric), ("judge", by_judge)):
            for value, some in calls.by(name):
                bills.setdefault(value, Bill()).add(some, rates)
    found = total.total()
    used = {
        **found,
        "uses": uses,
        "served": served(judge_inputs, first),
        "by_metric": {name: bill.total() for name, bill in by_metric.items()},
        "by_judge": {name: bill.total() for name, bill in by_judge.items()},
        "case_latency_ms": latency_of(case_times),
        "per_case": {name: _share(found[name], n_cases) for name in _PER_CASE},
    }
    wasted, repriced = _wasted(spent, own)
    return {
        "used": used,
        "spent": dict(spent),
        "saved": saved.paid(),
        "wasted": wasted,
        "repriced": repriced,
        "prices": {name: one.document() for name, one in rates.items()},
    }


def _wasted(spent: Mapping[str, Any], own: Own) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was paid for nothing, and what the own replies cost more now."""
    now, then = own.bill.paid(), math.fsum(own.usd)
    repriced = None if now["usd"] is None or own.unpriced else _money(now["usd"] - then)
    names = ("calls", "tries", *_TOKENS)
    left = {name: spent[name] - now["calls" if name == "tries" else name] for name in names}
    if min(left.values()) < 0:  # another store held the rest: there is no knowing
        return {**dict.fromkeys(names), "usd": None}, {"usd": repriced}
    unknown = spent["tries_without_price"] - own.unpriced
    return {**left, "usd": None if unknown else _money(spent["usd_known"] - then)}, {"usd": repriced}


def _money(usd: float) -> float:
    return 0.0 if abs(usd) < _TINY else usd


def _batches(path: Path) -> Iterator[_Calls]:
    with pq.ParquetFile(path, read_dictionary=list(_TEXTS)) as file:
        for batch in file.iter_batches(batch_size=_BATCH, columns=[*_TEXTS, *_NUMBERS]):
            # null is a value like the others: `paid_by` has it wherever nobody was paid
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
