"""Replies that a run over stored replies did not find: what to do about them, in place of advice that cannot help."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ragpipe.core.errors import TRANSIENT

MISSING_REPLY = "missing_reply"
MISSING_REPLY_FIX = (
    "name this judge (for vectors: this embedder) with transport=live (and not rejudge.mode=stored, but replay), and only they "
    "are asked for; or take them in from another store with task=store action=import from=FILE"
)
_ADVICE = f"Replies are missing: {MISSING_REPLY_FIX}."
_USELESS = "retry_errors"


def transient_errors(metrics: Mapping[str, Any]) -> set[str]:
    """The kinds of failures among `metrics.json`'s scores that another start may fix."""
    return error_kinds(metrics) & TRANSIENT


def advice_for(diagnosis: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """The advice of a diagnosis of `metrics.json`. Where replies are missing, advice to ask again what failed
    (`retry_errors`) comes after what helps, and is left out where nothing else failed: a missing reply is no failure that
    is kept, and who gave none has no network. The words of the configuration stay in `metrics.json` as they are."""
    advice: list[str] = list(diagnosis["advice"])
    kinds = error_kinds(metrics)
    if MISSING_REPLY not in kinds or not any(_USELESS in text for text in advice):
        return advice
    others = kinds - {MISSING_REPLY}
    return [_ADVICE, *(text for text in advice if others or _USELESS not in text)]


def error_kinds(metrics: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Why judgements failed, by `metrics.json`: of the scores `names` (None: of all), without those that failed because
    another one did."""
    scores = metrics["overall"]["scores"]
    chosen = (score for name, score in scores.items() if names is None or name in names)
    return {kind for score in chosen for kind in score.get("errors") or ()} - {"part_error"}
