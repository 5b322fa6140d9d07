"""Missing replies: what to do when a run over stored replies did not find some, and which failures may pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ragpipe.core.errors import TRANSIENT

MISSING_REPLY = "missing_reply"
MISSING_REPLY_FIX = (
    "name this judge (for vectors: this embedder) with transport=live (and not rejudge.mode=stored, but replay), and only they "
    "are asked for; or take them in from another store with task=store action=import from=FILE. Recorded replies "
    "(store.recorded) are of their own cases and templates: judge=llm judge.model=... transport=live asks a model of yours"
)
_ADVICE = f"Replies are missing: {MISSING_REPLY_FIX}."
_USELESS = "retry_errors"


def transient_errors(metrics: Mapping[str, Any]) -> set[str]:
    """The kinds of failures in `metrics.json` that another start may fix."""
    return error_kinds(metrics) & TRANSIENT


def advice_for(diagnosis: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """The advice of a diagnosis of `metrics.json`, for a report.

    Where replies are missing, the advice that fixes this comes first, and advice to repeat failed calls (`retry_errors`)
    is left out unless something else failed too: a missing reply is not stored as a failure.
    """
    advice: list[str] = list(diagnosis["advice"])
    kinds = error_kinds(metrics)
    if MISSING_REPLY not in kinds or not any(_USELESS in text for text in advice):
        return advice
    others = kinds - {MISSING_REPLY}
    return [_ADVICE, *(text for text in advice if others or _USELESS not in text)]


def error_kinds(metrics: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Why judgements of the scores `names` (None: of all) failed, by `metrics.json`.

    Scores that failed because a part of them failed are not counted.
    """
    scores = metrics["overall"]["scores"]
    chosen = (score for name, score in scores.items() if names is None or name in names)
    return {kind for score in chosen for kind in score.get("errors") or ()} - {"part_error"}
