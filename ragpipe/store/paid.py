"""What a run's own processes paid, from the calls that stand in the call store under its id and those that did."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from ragpipe.digest import sha256
from ragpipe.store.call_errors import translated
from ragpipe.store.calls import open_to_read
from ragpipe.store.replaced import NAMES, SUMS

_STANDING = f"SELECT {SUMS} FROM calls WHERE run_id = ? AND json_extract(fields, '$.iteration') = ? AND attempts > 0"
"""Without attempts a reply was computed in the process itself (a vector): nobody was asked or paid."""
_REPLACED = f"SELECT {', '.join(NAMES)} FROM replaced WHERE run_id = ? AND iteration = ?"
_NOTHING = (0, 0, 0, 0, 0, 0.0, 0, 0)


def paid_by(path: Path, run_id: str, iteration: int) -> dict[str, Any]:
    """Committed calls of one iteration of a run over all its processes: calls, attempts, tokens, money.

    `usd` is None when no price is known; `calls_without_price` and `calls_without_usage` say how many are not in
    the sums. `replaced` is the part of it that was paid for calls which stand no more: failures that were asked again,
    and what was pruned. Calls that were in flight when a process was killed, and tries that failed, are not in it.
    """
    standing: tuple[Any, ...] = _NOTHING
    gone: tuple[Any, ...] = _NOTHING
    path = Path(path).absolute()
    if path.exists():
        with closing(open_to_read(path)) as db, translated(path):
            wanted = (run_id, sha256(iteration))  # hashed as in the key
            standing = db.execute(_STANDING, wanted).fetchone()
            gone = db.execute(_REPLACED, wanted).fetchone() or _NOTHING
    whole = _named([a + b for a, b in zip(standing, gone, strict=True)])
    return {**whole, "replaced": _named(gone)} if gone[0] else whole


def _named(sums: Any) -> dict[str, Any]:
    calls, attempts, tokens_in, tokens_out, cached, usd, unpriced, unused = sums
    return {
        "calls": calls, "attempts": attempts, "tokens_in": tokens_in, "tokens_out": tokens_out, "tokens_cached": cached,
        "usd": None if calls and unpriced == calls else float(usd), "calls_without_price": unpriced,
        "calls_without_usage": unused,
    }  # fmt: skip
