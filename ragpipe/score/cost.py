"""`cost.json`: the usage behind a run's results, its spend, its savings, and what was paid and not used.

`used - saved + wasted = spent`, in replies, tokens, and money as long as no price changed since it was paid. And how the system
under test ran, whatever the metrics: failures, empty answers, latency by stage.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.core.errors import TRANSIENT
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.usage import NO_USAGE, TOKENS, Price, Usage, UsageSum
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.case_blocks import Key, ScoreRows
from ragpipe.score.diagnosis import share
from ragpipe.score.system_usage import usage_summary
from ragpipe.store.run_tables import batches, read_columns

_NUMBERS = (*TOKENS, "paid_usd", "latency_ms", "attempts")
_TEXTS = ("metric", "judge", "status", "paid_by")
_PER_CASE = ("calls", "attempts", *TOKENS, "usd")
_TINY = 1e-9  # dollars: what sums of floats may be apart

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_BATCH = 65536  # rows read at once


def _numbers(calls: pa.RecordBatch, name: str) -> Floats:
    """A column of numbers; NaN is null."""
    numbers: Floats = calls[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def _any_of(calls: pa.RecordBatch, name: str, values: Collection[str | None]) -> Flags:
    """Where a column of texts has one of these values, which may be None."""
    flags: Flags = pc.is_in(calls[name], value_set=pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
    return flags


def _where(calls: pa.RecordBatch, chosen: Flags) -> pa.RecordBatch:
    return calls.filter(pa.array(chosen))


def _by(calls: pa.RecordBatch, name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The calls by their values in a column, in the order in which these come."""
    for value in calls[name].unique().to_pylist():
        yield value or "", _where(calls, _any_of(calls, name, [value]))


def _with_reply(calls: pa.RecordBatch) -> Flags:
    """Those with a reply of a provider that results use: what failed for a passing reason is asked again."""
    return ~_any_of(calls, "paid_by", [None]) & ~_any_of(calls, "status", TRANSIENT)


def _usage(calls: pa.RecordBatch, usd: Floats) -> Usage:
    """Their counts, each call with one reply; `usd` are their prices, NaN where unknown. `usd_known` stays 0."""
    tokens = {name: int(np.nansum(_numbers(calls, name))) for name in TOKENS}
    no_tokens = np.isnan(_numbers(calls, "tokens_in")) | np.isnan(_numbers(calls, "tokens_out"))
    unpriced, without_usage = np.count_nonzero(np.isnan(usd)), np.count_nonzero(no_tokens)
    return Usage(len(calls), len(calls), **tokens, unpriced=int(unpriced), without_usage=int(without_usage))


class Cost:
    """What results rest on: calls added up, how they went, and the usage of those with a reply of a provider that results use.

    `failures` are counted by kind, `retries` are the HTTP attempts after a call's first, `computed` the calls that the
    rules judge answered. `unpriced_reasons` says why a price is unknown, and for how many replies.
    """

    def __init__(self) -> None:
        self.calls = self.computed = self.failed = self.attempts = self.retries = 0
        self.failures: dict[str, int] = {}
        self.unpriced_reasons: dict[str, int] = {}
        self.latency_ms = array("d")
        self._usage = UsageSum()

    def add(self, calls: pa.RecordBatch, rates: Mapping[str, Price]) -> None:
        """Add a batch of calls; `rates` are the prices by the judge's printable name."""
        attempts, latency_ms = _numbers(calls, "attempts"), _numbers(calls, "latency_ms")
        self.calls += len(calls)
        self.computed += int(np.count_nonzero(attempts == 0))
        failed = _where(calls, ~_any_of(calls, "status", ["ok"]))
        self.failed += len(failed)
        for kind, calls_of_kind in _by(failed, "status"):
            self.failures[kind] = self.failures.get(kind, 0) + len(calls_of_kind)
        self.retries += int(np.nansum(np.maximum(attempts - 1, 0)))
        self.attempts += int(np.nansum(attempts))
        self.latency_ms.frombytes(latency_ms[~np.isnan(latency_ms)].tobytes())
        for judge, calls_of_judge in _by(_where(calls, _with_reply(calls)), "judge"):
            self._price(calls_of_judge, rates.get(judge, Price(judge, "", reason=f"no price is known for {judge}")))

    def _price(self, calls: pa.RecordBatch, rates: Price) -> None:
        """Add the usage of calls to one judge, with their price; what was paid, where no price is known."""
        by_rates = rates.usd_of(*(_numbers(calls, name) for name in TOKENS))
        usd = by_rates if rates.tiers else _numbers(calls, "paid_usd")
        usage = _usage(calls, usd)
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
        counts: dict[str, Any] = {"calls": self.calls, "calls_computed": self.computed, "calls_failed": self.failed}
        counts["failures"] = _by_count(self.failures)
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
    judge_inputs: Path, n_cases: int, *, case_times: array[float], payer: str, spent: Usage, rates: Mapping[str, Price]
) -> dict[str, Any]:
    """The content of `cost.json`; docs/how-a-run-works.md describes its parts.

    A reply that several cases or metrics share is charged once, to the first in the order of the rows. `case_times` are the
    milliseconds that the judge took for each case with a measured call; `payer` is `<run_id>/<iteration>`, as in the column
    `paid_by`, and `spent` what it has paid by the ledger (`ragpipe.store.call_store.paid_by`): `wasted` is null where the
    ledger lacks some of that. `rates` are the prices of now, by the judge's printable name.
    """
    totals = _Totals(payer)
    first, n_read = _first_uses(judge_inputs), 0
    for batch in batches(judge_inputs, [*_TEXTS, *_NUMBERS], size=_BATCH):
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
            "per_case": {name: share(used[name], n_cases) for name in _PER_CASE},
        },
        "spent": spent.as_json(),
        "saved": totals.saved.usage.as_json(),
        "wasted": _wasted(spent, totals.own_then.total()),
        "repriced": {"usd": totals.price_change()},
        "prices": {name: price.document() for name, price in rates.items()},
    }


class _Totals:
    def __init__(self, payer: str):
        self._payer = payer
        self.uses = 0
        self.used, self.saved, self.own_now, self.own_then = Cost(), Cost(), Cost(), UsageSum()
        self.by: dict[str, dict[str, Cost]] = {"metric": {}, "judge": {}}

    def add(self, batch: pa.RecordBatch, first: Flags, rates: Mapping[str, Price]) -> None:
        """Add a batch of uses; `first` marks those that use a reply for the first time."""
        answered = ~_any_of(batch, "status", ["skipped"])  # what a rules judge cannot answer is no call
        self.uses += int(np.count_nonzero(answered))
        calls = _where(batch, first & answered)
        self.used.add(calls, rates)
        with_reply, is_own = _with_reply(calls), _any_of(calls, "paid_by", [self._payer])
        self.saved.add(_where(calls, with_reply & ~is_own), rates)
        own_calls = _where(calls, with_reply & is_own)
        self.own_now.add(own_calls, rates)
        paid = _numbers(own_calls, "paid_usd")
        self.own_then.add_batch(_usage(own_calls, paid), paid[~np.isnan(paid)].tolist())
        for name, totals in self.by.items():
            for value, calls_of_value in _by(calls, name):
                totals.setdefault(value, Cost()).add(calls_of_value, rates)

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


def _first_uses(path: Path) -> Flags:
    """Which rows use a reply for the first time."""
    codes = read_columns(path, ["key"])["key"].combine_chunks().dictionary_encode("encode").indices.to_numpy()
    is_first = np.zeros(len(codes), dtype=np.bool_)
    is_first[np.unique(codes, return_index=True)[1]] = True
    return is_first


def _by_count(counted: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


_SHOWN = 20
_COLUMNS = ("status", "attempts", "flags", "model", "fingerprint")


def served(judge_inputs: Path, first: Flags) -> dict[str, Any]:
    """Replies of a provider by who gave them: `requested` the model that was asked (or a declared name of it), `dated` a dated
    version of it, `other` by name, `unknown` where the reply named none; `prompts_cut` where there are any; and `fingerprints` with their counts, the 20 most
    frequent. `first` are the rows that use a reply for the first time."""
    counts, others, fingerprints = Counter[str](), Counter[str](), Counter[str]()
    read = 0
    for batch in batches(judge_inputs, _COLUMNS, size=_BATCH):
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
        parts.append(f"{n_cut:,} of {total:,} prompts were cut by the server, which counted far fewer tokens than were sent")
    return "; ".join(parts) or None


def signed(signature: str, counts: Mapping[str, Any]) -> str:
    """The signature with a part that says so, before the iteration's."""
    line = served_line(counts)
    head, mark, iteration = signature.rpartition(" | iteration ")
    return signature if line is None else f"{head} | {line.replace('|', '/')}{mark}{iteration}"


class JudgeTimes:
    """The times of `judge_inputs.parquet`, read forward beside the cases, whose order the table has. `measured` are those of
    all cases so far that have one, in milliseconds."""

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


Places = NDArray[np.int64]

_NEVER_SENT = frozenset({"missing_reply", "breaker", "budget"})  # failures before anything went over the wire


def operations(ledger: Accumulators, places: Places) -> dict[str, Any]:
    """`operations` of a summary of `metrics.json`, over the cases at `places`.

    An error is a case with `error`; a timeout is an error whose text says so (`is_timeout`); an empty answer is a recorded
    one without a word and without an error; a retried case is one whose output took more than one request. Rates are shares of all cases, 0 to 1, null where there is no case; that of
    empty answers is one of the cases that record an answer or an error. `latency_ms` has for each stage of the system's own
    timings, and for `total`, the number of cases that name it, mean and percentiles (linear interpolation); the means of the
    stages add up, the percentiles do not. `usage` is what the system used (`usage_summary`).
    """
    errors = ledger.marks["error"][places]
    counts = {
        "n_error": int(np.count_nonzero(errors)),
        "n_timeout": int(np.count_nonzero(ledger.marks["timeout"][places])),
        "n_empty": int(np.count_nonzero(ledger.marks["empty"][places] & ~errors)),
        "n_abstained": int(np.count_nonzero(ledger.marks["abstained"][places])),
        "n_retried": int(np.count_nonzero(ledger.marks["retried"][places])),
    }
    known = len(places) - int(np.count_nonzero(ledger.marks["unrecorded"][places]))
    rates = {f"{name}_rate": share(counts[f"n_{name}"], len(places)) for name in ("error", "timeout")}
    rates["empty_rate"] = share(counts["n_empty"], known)
    member = np.zeros(ledger.n, dtype=np.bool_)
    member[places] = True
    times = ledger.timings.distributions(member)
    latency = {stage: {name: time[name] for name in ("n", "mean", "p50", "p95")} for stage, time in times.items()}
    return {**counts, **rates, "latency_ms": latency, "usage": usage_summary(ledger.usage.distributions(member))}


def judge_rates(bill: Mapping[str, Any]) -> dict[str, float | None]:
    """The judge's rates, 0 to 1 of the calls that were sent, from the sums of a bill of `cost.json`.

    A call failed when no reply to parse came in the end, of whatever kind; it timed out with the kind `deadline`, and was
    empty with `empty_reply`. A reply that came and cannot be parsed fails the score, not the call. What a rules judge
    computed, what the store did not have and what a breaker or a budget held back was never sent. Null where nothing was.
    """
    sent, failures = bill["calls"] - bill["calls_computed"], bill["failures"]
    return {
        "error_rate": share(sum(n for kind, n in failures.items() if kind not in _NEVER_SENT), sent),
        "timeout_rate": share(failures.get("deadline", 0), sent),
        "empty_rate": share(failures.get("empty_reply", 0), sent),
    }


def latency_of(times: array[float]) -> dict[str, Any] | None:
    """Number, percentiles and sum of some times in milliseconds; None without any."""
    if not times:
        return None
    p50, p95 = np.percentile(np.array(times), [50, 95]).tolist()
    return {"n": len(times), "p50": p50, "p95": p95, "sum": math.fsum(times)}
