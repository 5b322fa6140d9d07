"""What the system under test used for its answers: tokens, and money where prices are known."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic_core import from_json

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Price = Callable[[float, float, float, float], float]
"""Dollars for prompt tokens, completion tokens, the cached part of the prompt tokens, the reasoning part of the others."""

USD = "cost_usd"
_NAMES = {
    "prompt_tokens": "tokens_in",
    "input_tokens": "tokens_in",
    "completion_tokens": "tokens_out",
    "output_tokens": "tokens_out",
    "cached_tokens": "tokens_cached",
    "cache_read_input_tokens": "tokens_cached",
    "reasoning_tokens": "tokens_reasoning",
    "total_tokens": "tokens_total",
}
"""The names of providers for what is one thing; a name that is not here stays what it is."""


def figures(reported: Mapping[str, float], price: Price | None) -> dict[str, float]:
    """The usage of one answer under one vocabulary: `tokens_in`, `tokens_out`, `tokens_cached` (of `tokens_in`),
    `tokens_reasoning` (of `tokens_out`), `tokens_total` (given, else in + out), `cost_usd` (given, else by `price` from in
    and out; absent when unknown)."""
    usage: dict[str, float] = {}
    for name, value in reported.items():
        usage.setdefault(_NAMES.get(name, name), float(value))
    if "tokens_in" in usage and "tokens_out" in usage:
        into, out = usage["tokens_in"], usage["tokens_out"]
        usage.setdefault("tokens_total", into + out)
        if price is not None:
            usage.setdefault(USD, price(into, out, usage.get("tokens_cached", 0.0), usage.get("tokens_reasoning", 0.0)))
    return usage


def json_objects(texts: pa.ChunkedArray, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a column that are not empty, each with the number of its case; `first` is that of the first row."""
    for place, text in enumerate(texts.to_pylist(), first):
        if text and text != "{}":
            yield place, from_json(text)


class UsageLedger:
    """The usage of all cases so far, by name."""

    def __init__(self, price: Price | None = None):
        self._price = price
        self._parts: dict[str, tuple[array[int], array[float]]] = {}
        self._used = array("q")
        self._columns: dict[str, tuple[Whole, Floats]] = {}

    def add(self, texts: pa.ChunkedArray, first: int) -> None:
        """The usage of consecutive cases as JSON objects; `first` is the number of the first case."""
        for place, reported in json_objects(texts, first):
            usage = figures(reported, self._price)
            self._used.append(place)
            for name, value in usage.items():
                cases, values = self._parts.setdefault(name, (array("q"), array("d")))
                cases.append(place)
                values.append(value)

    def close(self) -> None:
        """To be called after the last block."""
        self._columns = {
            name: (np.array(cases, dtype=np.int64), np.array(values, dtype=np.float64))
            for name, (cases, values) in self._parts.items()
        }
        self._with_usage = np.array(self._used, dtype=np.int64)
        self._parts.clear()
        self._used = array("q")

    def summary(self, places: Whole, n: int) -> dict[str, Any]:
        """`operations.usage` of some of `n` cases, given by their numbers; empty where none of them names its usage.

        `n_cases` name some usage. For every figure the number of cases that name it, their sum, the mean per case and
        percentiles (linear interpolation). `cost_usd` is null when the price of one of the `n_cases` is unknown:
        `n_unpriced` of them.
        """
        member = np.zeros(n, dtype=np.bool_)
        member[places] = True
        n_cases = int(np.count_nonzero(member[self._with_usage]))
        if not n_cases:
            return {}
        by_name = {name: _distribution(values[member[cases]]) for name, (cases, values) in self._columns.items()}
        money = by_name.pop(USD, None)
        priced = money["n"] if money else 0
        named = {name: distribution for name, distribution in by_name.items() if distribution}
        return {"n_cases": n_cases, **named, USD: money if priced == n_cases else None, "n_unpriced": n_cases - priced}


def _distribution(values: Floats) -> dict[str, Any] | None:
    if not len(values):
        return None
    p50, p95 = np.percentile(values, [50, 95]).tolist()
    return {"n": len(values), "sum": float(values.sum()), "mean": float(values.mean()), "p50": p50, "p95": p95}
