"""How many grades are means over the probabilities of their tokens, where the judge was asked for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ragpipe.schema.reply_flags import UNWEIGHTED, WEIGHTED
from ragpipe.store.run.run_tables import batches

_BATCH = 16_384


def weighted_grades(judge_inputs: Path) -> dict[str, dict[str, int]]:
    """By metric the replies whose grades are `weighted`, and those with a grade that stayed as it was written (`not_weighted`)."""
    counts: dict[str, Counter[str]] = {}
    for batch in batches(judge_inputs, ("metric", "flags"), size=_BATCH):
        for row in batch.to_pylist():
            flags = {WEIGHTED, UNWEIGHTED}.intersection(row["flags"] or ())
            if flags:
                counts.setdefault(row["metric"], Counter()).update(flags)
    return {metric: {flag: counts[metric][flag] for flag in (WEIGHTED, UNWEIGHTED)} for metric in sorted(counts)}


def weighting_warnings(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A warning for each metric with a grade that is not weighted: its values are of two kinds."""
    return [
        f"{metric}: {count[UNWEIGHTED]:,} of {count[WEIGHTED] + count[UNWEIGHTED]:,} grades are not weighted: the reply has no "
        "probabilities of its grade, or less than 0.9 on the scale"
        for metric, count in counts.items()
        if count[UNWEIGHTED]
    ]
