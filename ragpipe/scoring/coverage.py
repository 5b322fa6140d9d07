"""Coverage: of the judgements that were due those that came out, one figure for tables, gates and files.

    coverage = ok / (ok + error + system errors + not recorded)

A system error counts where the metric applies to the question; a part of the output that is not recorded counts where the
same method records it in other cases. What no case of a method can have is not due there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragpipe.schema.sample import NOT_RECORDED, PARTS
from ragpipe.scoring.accumulators import Accumulators, ScoreLedger
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.scored_columns import SKIPPED
from ragpipe.scoring.settings import ScoringSettings

Flags = NDArray[np.bool_]

LOST = ("n_error", "n_system_error", "n_not_recorded")
"""The counts of a score whose judgements were due and did not come out."""
SYSTEM_ERROR = "system_error"
_NAMES_SHOWN = 6


class Lost(NamedTuple):
    """The skipped cases of a score that were due: by a failure of the system, by a part that is not recorded."""

    system_error: Flags
    not_recorded: Flags


def due(counts: Mapping[str, int]) -> int:
    """How many judgements of a score were due, from its counts; a count that is not there is 0."""
    return counts["n_ok"] + sum(counts.get(name, 0) for name in LOST)


def coverage(counts: Mapping[str, int]) -> float | None:
    """The share of them that came out, 0 to 1; None where none was due."""
    return counts["n_ok"] / total if (total := due(counts)) else None


def lost(ledger: Accumulators, name: str, settings: ScoringSettings) -> Lost:
    """The cases that a score lost, over all cases; worked out once. Of a composite those that one of its parts lost."""
    if name not in ledger.lost:
        composites = settings.active_composites()
        weights = (
            settings.weight_shares()
            if name == OVERALL.name
            else composites[name].weights
            if name in composites
            else None
        )
        if weights is None:
            ledger.lost[name] = _measured(ledger, ledger.scores[name])
        else:
            parts = [part for part, weight in weights.items() if weight > 0 and part in ledger.scores]
            score = ledger.overall if name == OVERALL.name else ledger.scores[name]
            ledger.lost[name] = _composed(score, [lost(ledger, part, settings) for part in parts])
        ledger.lost[name] = Lost(*(flags if flags.any() else ledger.nobody for flags in ledger.lost[name]))
    cases: Lost = ledger.lost[name]
    return cases


def _measured(ledger: Accumulators, score: ScoreLedger) -> Lost:
    skipped, methods = score.status[:] == SKIPPED, ledger.methods
    failed = skipped & score.has_reason(SYSTEM_ERROR)
    absent = np.zeros(ledger.n, dtype=np.bool_)
    for part in PARTS:
        absent |= skipped & score.has_reason(f"{NOT_RECORDED}{part}") & ledger.recorded[part][methods]
    # where no case of a method was tried and some were skipped for another reason (no embedder, a judge that cannot answer, a
    # part that is recorded in none), the metric does not apply to the method, and nothing is lost
    tried = np.bincount(methods[~skipped], minlength=len(ledger.method_names)) > 0
    barred = np.bincount(methods[skipped & ~failed & ~absent], minlength=len(ledger.method_names)) > 0
    applies = (tried | ~barred)[methods]
    return Lost(failed & applies, absent & applies)


def _composed(score: ScoreLedger, parts: Sequence[Lost]) -> Lost:
    skipped = score.status[:] == SKIPPED
    failed = skipped & np.any([np.zeros_like(skipped), *(part.system_error for part in parts)], axis=0)
    absent = skipped & ~failed & np.any([np.zeros_like(skipped), *(part.not_recorded for part in parts)], axis=0)
    return Lost(failed, absent)


def coverage_warnings(scores: Mapping[str, Mapping[str, Any]], floor: float) -> list[str]:
    """A warning for the scores of a summary whose coverage is under the floor, one for all that lost the same number of
    judgements of as many for the same causes."""
    by_loss: dict[str, list[str]] = {}
    for name, score in scores.items():
        if score["coverage"] is None or score["coverage"] >= floor:
            continue
        kinds = [f"{kind} {count}" for kind, count in score.get("errors", {}).items()]
        words = (("n_system_error", "system errors"), ("n_not_recorded", "not recorded"))
        kinds += [f"{word} {score[key]}" for key, word in words if key in score]
        loss = (
            f"only {score['n_ok']} of {due(score)} judgements came out "
            f"({score['coverage']:.1%}, floor {floor:.0%}; {', '.join(kinds)})"
        )
        by_loss.setdefault(loss, []).append(name)
    return [f"{loss}: {_listed(names)}" for loss, names in by_loss.items()]


def _listed(names: Sequence[str]) -> str:
    """The names; of many the first ones, and how many there are."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown}, ... ({len(names)} scores)"
