"""Which price of a finished run's configuration is not the one that its replies were paid by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.judging.settings import JudgeSettings, Price
from ragpipe.tasks.finished import Finished

_TOKENS = ("tokens_in", "tokens_out", "tokens_cached")
_MILLION = 1e6
_EQUAL = 1e-6  # relative: costs are sums of floats

Numbers = NDArray[np.float64]


def changed_price(finished: Finished) -> str | None:
    """`judge.prices.input: 1 -> 1.5, by what the replies cost`; None where tokens and costs do not contradict the prices.

    Prices are no part of a run's identity and stand in its configuration alone; what they were shows in what was paid, by
    an earlier run where its replies were taken over. Where no single price explains the costs, `judge.prices` is named
    as a whole.
    """
    judge = finished.config.judge
    if not isinstance(judge, JudgeSettings):
        return None
    own = str((finished.manifest.get("prices") or {}).get("source", "")).startswith("judge.prices")
    if own != (judge.prices is not None):
        return f"judge.prices: {'set -> null' if own else 'null -> set'}"
    try:
        paid = _paid(finished, judge.label)
    except (pa.ArrowException, OSError):  # the table itself is a finding
        return None
    return _explained(judge.prices, paid) if judge.prices and len(paid) else None


def _paid(finished: Finished, judge: str) -> Numbers:
    """A row for each priced reply of this judge: tokens in, out and cached, and dollars."""
    found = [np.empty((0, 4))]
    for path in finished.judge_inputs():
        rows: list[dict[str, Any]] = pq.read_table(path, columns=["judge", *_TOKENS, "cost_usd"]).to_pylist()
        told = [
            (row["tokens_in"], row["tokens_out"], row["tokens_cached"] or 0, row["cost_usd"])
            for row in rows
            if row["judge"] == judge and None not in (row["tokens_in"], row["tokens_out"], row["cost_usd"])
        ]
        found.append(np.array(told, dtype=np.float64).reshape(-1, 4))
    return np.concatenate(found)


def _explained(prices: Price, paid: Numbers) -> str | None:
    into, out, cached, usd = paid.T
    apart = prices.cached_input is not None
    tokens = {"input": into - cached if apart else into, "output": out} | ({"cached_input": cached} if apart else {})
    now = {name: float(getattr(prices, name)) for name in tokens}
    rest = usd * _MILLION - sum(tokens[name] * now[name] for name in tokens)
    if np.allclose(rest, 0, atol=_EQUAL * max(1.0, float(np.max(np.abs(usd))) * _MILLION)):
        return None
    fitting = {}
    for name, count in tokens.items():
        if (whole := float(count.sum())) and np.allclose(rest, count * (per := float(rest.sum()) / whole), rtol=_EQUAL):
            fitting[name] = now[name] + per
    if len(fitting) != 1:
        return "judge.prices: not what the replies were paid by"
    ((name, before),) = fitting.items()
    return f"judge.prices.{name}: {before:.6g} -> {now[name]:.6g}, by what the replies cost"
