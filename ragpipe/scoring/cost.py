"""`cost.json`: the usage behind a run's results, its spend, its savings, and what was paid and not used.

`used - saved + wasted = spent`, in replies, tokens, and money as long as no price changed since it was paid.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.core.errors import TRANSIENT
from ragpipe.schema.price_rates import NO_USAGE, Rates
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.usage import TOKENS, Usage, UsageSum
from ragpipe.scoring.case_blocks import Key, ScoreRows
from ragpipe.scoring.operations import judge_rates, latency_of
from ragpipe.store.run.run_tables import batches, open_table

_NUMBERS = (*TOKENS, "paid_usd", "latency_ms", "attempts")
_TEXTS = ("metric", "judge", "status", "paid_by")
_PER_CASE = ("calls", "attempts", *TOKENS, "usd")
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
    """A batch of calls, column by column; NaN is null. Texts are codes; `names` has the text of each code."""

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
        codes, firsts = np.unique(self.texts[name], return_index=True)
        for code in codes[np.argsort(firsts)].tolist():
            yield self.names[name][code] or "", self.where(self.texts[name] == code)

    def with_reply(self) -> NDArray[np.bool_]:
        """Those with a reply of a provider that results use: what failed for a passing reason is asked again."""
        return ~self.any_of("paid_by", {None}) & ~self.any_of("status", TRANSIENT)

    def usage(self, usd: Floats) -> Usage:
        """Their counts, each call with one reply; `usd` are their prices, NaN where unknown. `usd_known` stays 0."""
        tokens = {name: int(np.nansum(self.numbers[name])) for name in TOKENS}
        no_tokens = np.isnan(self.numbers["tokens_in"]) | np.isnan(self.numbers["tokens_out"])
        unpriced, without_usage = np.count_nonzero(np.isnan(usd)), np.count_nonzero(no_tokens)
        return Usage(len(self), len(self), **tokens, unpriced=int(unpriced), without_usage=int(without_usage))

    def any_of(self, name: str, values: Collection[str | None]) -> NDArray[np.bool_]:
        codes = [code for code, value in enumerate(self.names[name]) if value in values]
        return np.isin(self.texts[name], codes)


class CallTotals:
    """Adds up calls: how they went, and the usage of those with a reply of a provider that results use.

    `failures` are counted by kind, `retries` are the HTTP attempts after a call's first, `computed` the calls that the
    embedded judge answered. `unpriced_reasons` says why a price is unknown, and for how many replies.
    """

    def __init__(self) -> None:
        self.calls = self.computed = self.failed = self.attempts = self.retries = 0
        self.failures: dict[str, int] = {}
        self.unpriced_reasons: dict[str, int] = {}
        self.latency_ms = array("d")
        self._usage = UsageSum()

    def add(self, calls: _Calls, rates: Mapping[str, Rates]) -> None:
        """Add a batch of calls; `rates` are the prices by the judge's printable name."""
        numbers = calls.numbers
        self.calls += len(calls)
        self.computed += int(np.count_nonzero(numbers["attempts"] == 0))
        failed = calls.where(~calls.any_of("status", {"ok"}))
        self.failed += len(failed)
        for kind, calls_of_kind in failed.by("status"):
            self.failures[kind] = self.failures.get(kind, 0) + len(calls_of_kind)
        self.retries += int(np.nansum(np.maximum(numbers["attempts"] - 1, 0)))
        self.attempts += int(np.nansum(numbers["attempts"]))
        self.latency_ms.frombytes(numbers["latency_ms"][~np.isnan(numbers["latency_ms"])].tobytes())
        for judge, calls_of_judge in calls.where(calls.with_reply()).by("judge"):
            self._price(calls_of_judge, rates.get(judge, Rates(judge, "", reason=f"no price is known for {judge}")))

    def _price(self, calls: _Calls, rates: Rates) -> None:
        """Add the usage of calls to one judge, with their price; what was paid, where no price is known."""
        by_rates = rates.usd_of(*(calls.numbers[name] for name in TOKENS))
        usd = by_rates if rates.tiers else calls.numbers["paid_usd"]
        usage = calls.usage(usd)
        self._usage.add_batch(usage, usd[~np.isnan(usd)].tolist())
        without_price = 0 if rates.tiers else max(0, usage.unpriced - usage.without_usage)
        for reason, count in ((NO_USAGE, usage.without_usage), (rates.reason, without_price)):
            if count:
                self.unpriced_reasons[reason] = self.unpriced_reasons.get(reason, 0) + count

    @property
    def usage(self) -> Usage:
        """The usage of the calls with a reply that results use."""
        return self._usage.total()

    def total(self) -> dict[str, Any]:
        """As it is written to `cost.json`. `calls` are all calls, `replies` those with a reply of a provider."""
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
            **{name: value for name, value in self.usage.as_json().items() if name != "calls"},
            "unpriced_reasons": _by_count(self.unpriced_reasons),
            "latency_ms": latency_of(self.latency_ms),
        }


def cost(
    judge_inputs: Path, n_cases: int, *, case_times: array[float], payer: str, spent: Usage, rates: Mapping[str, Rates]
) -> dict[str, Any]:
    """The content of `cost.json`; docs/call-store.md describes its parts.

    A reply that several cases or metrics share is charged once, to the first in the order of the rows. `wasted` is null
    where the ledger lacks some of what `payer` paid.

    Args:
        judge_inputs: the iteration's `judge_inputs.parquet`.
        n_cases: the number of cases, for the figures per case.
        case_times: milliseconds that the judge took for each case with a measured call.
        payer: `<run_id>/<iteration>`, as in the column `paid_by`.
        spent: what the payer has paid by the ledger (`ragpipe.store.calls.spend.paid_by`).
        rates: the prices of now, by the judge's printable name.
    """
    totals = _Totals(payer)
    first, n_read = _first_uses(judge_inputs), 0
    for batch in _numbered_calls(judge_inputs):
        totals.add(batch, first[n_read : n_read + len(batch)], rates)
        n_read += len(batch)
    used = totals.used.total()
    return {
        "used": {
            **used,
            "uses": totals.uses,
            "served_models": served(judge_inputs, first),
            "by_metric": {name: calls.total() for name, calls in totals.by["metric"].items()},
            "by_judge": {name: calls.total() for name, calls in totals.by["judge"].items()},
            "case_latency_ms": latency_of(case_times),
            "per_case": {name: _share(used[name], n_cases) for name in _PER_CASE},
        },
        "spent": spent.as_json(),
        "saved": totals.saved.usage.as_json(),
        "wasted": _wasted(spent, totals.own_then.total()),
        "repriced": {"usd": totals.price_change()},
        "prices": {name: price.document() for name, price in rates.items()},
    }


class _Totals:
    """The sums behind `cost.json`."""

    def __init__(self, payer: str):
        self._payer = payer
        self.uses = 0
        self.used, self.saved, self.own_now, self.own_then = CallTotals(), CallTotals(), CallTotals(), UsageSum()
        self.by: dict[str, dict[str, CallTotals]] = {"metric": {}, "judge": {}}

    def add(self, batch: _Calls, first: NDArray[np.bool_], rates: Mapping[str, Rates]) -> None:
        """Add a batch of uses; `first` marks those that use a reply for the first time."""
        answered = ~batch.any_of("status", ("skipped",))  # what an embedded judge cannot answer is no call
        self.uses += int(np.count_nonzero(answered))
        calls = batch.where(first & answered)
        self.used.add(calls, rates)
        with_reply, is_own = calls.with_reply(), calls.any_of("paid_by", {self._payer})
        self.saved.add(calls.where(with_reply & ~is_own), rates)
        own_calls = calls.where(with_reply & is_own)
        self.own_now.add(own_calls, rates)
        paid = own_calls.numbers["paid_usd"]
        self.own_then.add_batch(own_calls.usage(paid), paid[~np.isnan(paid)].tolist())
        for name, totals in self.by.items():
            for value, calls_of_value in calls.by(name):
                totals.setdefault(value, CallTotals()).add(calls_of_value, rates)

    def price_change(self) -> float | None:
        """By how much the payer's own used replies cost more now than then; None where a price is unknown."""
        now, then = self.own_now.usage.usd, self.own_then.total().usd
        return None if now is None or then is None else _money(now - then)


def _wasted(spent: Usage, used: Usage) -> dict[str, Any]:
    """What was paid and not used, of `used` the used replies. All null where the ledger lacks some of what was paid."""
    wasted = replace(spent - used, damaged=0)
    if min(wasted.calls, wasted.replies, *wasted.token_counts().values()) < 0:  # another store has the rest
        return dict.fromkeys(Usage().as_json())
    return replace(wasted, usd_known=_money(wasted.usd_known)).as_json()


def _money(usd: float) -> float:
    return 0.0 if abs(usd) < _TINY else usd


def _numbered_calls(path: Path) -> Iterator[_Calls]:
    with open_table(path, [*_TEXTS, *_NUMBERS], read_dictionary=list(_TEXTS)) as file:
        for batch in file.iter_batches(batch_size=_BATCH, columns=[*_TEXTS, *_NUMBERS]):
            # null is a value like the others: `paid_by` has it wherever nobody was paid
            texts = {name: batch[name].cast(pa.string()).dictionary_encode("encode") for name in _TEXTS}
            yield _Calls(
                {name: batch[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in _NUMBERS},
                {name: column.indices.to_numpy().astype(np.int64) for name, column in texts.items()},
                {name: column.dictionary.to_pylist() for name, column in texts.items()},
            )


def _first_uses(path: Path) -> NDArray[np.bool_]:
    """Which rows use a reply for the first time: 16 bytes per row while it works, one byte after that."""
    halves = [np.empty((0, 2), dtype=np.uint64)]
    halves += [_marks(batch.column(0)) for batch in batches(path, ["key"], size=_BATCH)]
    marks = np.concatenate(halves)
    order = np.lexsort((marks[:, 1], marks[:, 0]))  # stable: equal marks stay in the order of their rows
    ordered = marks[order]
    new = np.ones(len(marks), dtype=np.bool_)
    new[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    is_first = np.zeros(len(marks), dtype=np.bool_)
    is_first[order[new]] = True
    return is_first


def _marks(keys: pa.Array) -> NDArray[np.uint64]:
    """128 bits of each key, which is the hex form of a sha256: its first half. Any other text is hashed to as many."""
    ends = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if keys.null_count == 0 and len(keys) and np.all(np.diff(ends) == _KEY_CHARS):
        text = np.frombuffer(keys.buffers()[2], dtype=np.uint8)[ends[0] : ends[-1]].reshape(len(keys), _KEY_CHARS)
        digits = _HEX[text[:, :32]]
        if not np.any(digits == _NO_DIGIT):
            return np.ascontiguousarray(digits[:, 0::2] << 4 | digits[:, 1::2]).view(np.uint64)
    hashed = [hashlib.blake2b((key or "").encode(), digest_size=16).digest() for key in keys.to_pylist()]
    return np.frombuffer(b"".join(hashed), dtype=np.uint64).reshape(-1, 2)


def _by_count(counted: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _share(value: float | None, n: int) -> float | None:
    return value / n if value is not None and n else None


_SHOWN = 20
_COLUMNS = ("status", "attempts", "flags", "model", "fingerprint")
_INPUTS_BATCH = 16_384


def served(judge_inputs: Path, first: NDArray[np.bool_]) -> dict[str, Any]:
    """Replies of a provider by who gave them: `requested` the model that was asked (or a declared name of it), `dated` a dated
    version of it, `other` by name, `unknown` where the reply named none; `prompts_cut` where there are any; and `fingerprints` with their counts, the 20 most
    frequent. `first` are the rows that use a reply for the first time."""
    counts, others, fingerprints = Counter[str](), Counter[str](), Counter[str]()
    read = 0
    for batch in batches(judge_inputs, _COLUMNS, size=_INPUTS_BATCH):
        mask = first[read : read + len(batch)]
        read += len(batch)
        for row in batch.filter(mask).to_pylist():
            if row["status"] != "ok" or not row["attempts"]:
                continue
            flags = row["flags"] or ()
            counts["cut"] += "prompt_cut" in flags
            if "other_model" in flags:
                others[row["model"]] += 1
            else:
                counts["unknown" if not row["model"] else "dated" if "dated_model" in flags else "requested"] += 1
            if row["fingerprint"]:
                fingerprints[row["fingerprint"]] += 1
    return {
        "requested": counts["requested"],
        "dated": counts["dated"],
        "other": dict(others.most_common(_SHOWN)),
        "unknown": counts["unknown"],
        "fingerprints": dict(fingerprints.most_common(_SHOWN)),
        **({"prompts_cut": counts["cut"]} if counts["cut"] else {}),
    }


def served_line(counts: Mapping[str, Any]) -> str | None:
    """What to say where replies are another model's, or name none; None where there is nothing to say."""
    n_other, n_unknown = sum(counts["other"].values()), counts["unknown"]
    total = n_other + n_unknown + counts["requested"] + counts["dated"]
    parts = [f"{n_other:,} of {total:,} replies are of another model ({', '.join(counts['other'])})"] if n_other else []
    if n_unknown:
        parts.append(f"{n_unknown:,} of {total:,} replies name no model")
    if n_cut := counts.get("prompts_cut", 0):
        parts.append(
            f"{n_cut:,} of {total:,} prompts were cut by the server, which counted far fewer tokens than were sent"
        )
    return "; ".join(parts) or None


def signed(signature: str, counts: Mapping[str, Any]) -> str:
    """The signature with a part that says so, before the iteration's."""
    line = served_line(counts)
    head, mark, iteration = signature.rpartition(" | iteration ")
    return signature if line is None else f"{head} | {line.replace('|', '/')}{mark}{iteration}"


class JudgeTimes:
    """The times of `judge_inputs.parquet`, read forward beside the cases, whose order the table has.

    `measured` are those of all cases so far that have one, in milliseconds.
    """

    def __init__(self, judge_inputs: Path):
        self._rows = ScoreRows(judge_inputs, (*OUTPUT_KEY, "latency_ms"))
        self.measured = array("d")

    def take(self, keys: Sequence[Key]) -> Floats:
        """Milliseconds for each of the next cases, a call that several cases share counted with each; NaN for a case
        without a measured call (none was asked, or what answered keeps no time)."""
        n = len(keys)
        rows, cases = self._rows.take(keys)
        times = rows["latency_ms"].to_numpy().astype(np.float64)
        timed = ~np.isnan(times)
        sums = np.bincount(cases[timed], weights=times[timed], minlength=n)
        durations = np.where(np.bincount(cases[timed], minlength=n) > 0, sums, np.nan)
        self.measured.frombytes(durations[~np.isnan(durations)].tobytes())
        return durations
