"""What the system under test used for its answers: tokens, and money where prices are known."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.core.usage import Price

USD = "cost_usd"
ANY = "any"  # of each case that names some usage
_NAMES = {
    "prompt_tokens": "tokens_in",
    "input_tokens": "tokens_in",
    "completion_tokens": "tokens_out",
    "output_tokens": "tokens_out",
    "cached_tokens": "tokens_cached",
    "cache_read_input_tokens": "tokens_cached",
    "reasoning_tokens": "tokens_reasoning",
    "total_tokens": "tokens_total",
    "requests": "calls",
    "llm_calls": "calls",
    "embeddings": "embedding_calls",
}
"""The names of providers for what is one thing; a name that is not here stays what it is."""


def figures(reported: Mapping[str, float], price: Price | None) -> dict[str, float]:
    """The usage of one answer under one vocabulary: `tokens_in`, `tokens_out`, `tokens_cached` (of `tokens_in`),
    `tokens_reasoning` (of `tokens_out`), `tokens_total` (given, else in + out), `cost_usd` (given, else by `price` from in
    and out; absent when unknown), `calls` of the system to a language model and its `embedding_calls` as given."""
    usage: dict[str, float] = {}
    for name, value in reported.items():
        usage.setdefault(_NAMES.get(name, name), float(value))
    if "tokens_in" in usage and "tokens_out" in usage:
        into, out = usage["tokens_in"], usage["tokens_out"]
        usage.setdefault("tokens_total", into + out)
        usd = price.usd(into, out, usage.get("tokens_cached"), usage.get("tokens_reasoning")) if price else None
        if usd is not None:
            usage.setdefault(USD, usd)
    return usage


def json_objects(texts: pa.ChunkedArray, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a column that are not empty, each with the number of its case; `first` is that of the first row."""
    for place, text in enumerate(texts.to_pylist(), first):
        if text and text != "{}":
            yield place, from_json(text)


class CaseNumbers:
    """Numbers of all cases so far by name, such as tokens or milliseconds; a case has some of them."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[array[int], array[float]]] = {}

    def add(self, case: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            cases, values = self._parts.setdefault(name, (array("q"), array("d")))
            cases.append(case)
            values.append(number)

    def values(self, name: str, n: int) -> NDArray[np.float64]:
        """The number of this name of each of `n` cases, NaN where a case has none."""
        cases, numbers = self._parts.get(name, (array("q"), array("d")))
        found = np.full(n, np.nan)
        found[np.frombuffer(cases, dtype=np.int64)] = np.frombuffer(numbers)
        return found

    def distributions(self, member: NDArray[np.bool_]) -> dict[str, dict[str, Any]]:
        """Of each name that one of the cases `member` has: `n` of them, `sum`, `mean`, and percentiles (linear interpolation)."""
        found = {}
        for name, (cases, numbers) in self._parts.items():
            values = np.frombuffer(numbers)[member[np.frombuffer(cases, dtype=np.int64)]]
            if len(values):
                p50, p95 = np.percentile(values, [50, 95]).tolist()
                total, mean = float(values.sum()), float(values.mean())
                found[name] = {"n": len(values), "sum": total, "mean": mean, "p50": p50, "p95": p95}
        return found


def suite_seconds(operations: Mapping[str, Any]) -> float | None:
    """The time that the system took over all cases that record one, from `operations` of a summary; None where none does."""
    total = operations["latency_ms"].get("total")
    return total["n"] * total["mean"] / 1000 if total else None


def usage_summary(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`operations.usage` from the distributions of `figures` beside ANY; empty where no case names its usage.

    `n_cases` name some usage. `cost_usd` is null when the price of one of them is unknown: `n_unpriced` of them.
    """
    if ANY not in found:
        return {}
    n_cases, money = found.pop(ANY)["n"], found.pop(USD, None)
    n_unpriced = n_cases - (money["n"] if money else 0)
    return {"n_cases": n_cases, **found, USD: None if n_unpriced else money, "n_unpriced": n_unpriced}
