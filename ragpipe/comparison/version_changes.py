"""From one version of the system to the next: the cases that it repaired, and those that it broke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ragpipe.comparison.score_differences import PairedScore
from ragpipe.comparison.side import Pairs, Side
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.store.run_tables import read_columns


def version_changes(base: Side, candidate: Side, pairs: Pairs, scores: Sequence[PairedScore]) -> dict[str, Any] | None:
    """`versions` of a comparison; None where both sides have the same version, or one names none.

    A case is `repaired` where it failed one of these scores and now passes all of them that have a verdict on both sides, and `broke`
    where it passed all and now fails one: keys as the candidate names them.
    """
    names = _versions(base), _versions(candidate)
    if names[0] == names[1] or not all(names):
        return None
    failed = np.zeros((2, len(pairs)), dtype=np.bool_)
    known = np.zeros(len(pairs), dtype=np.bool_)
    for score in scores:
        before, after = score.passed()
        judged = np.isfinite(before) & np.isfinite(after)
        known |= judged
        failed |= judged & (np.stack([before, after]) == 0)
    keys = list(zip(*(pairs.cases[name].to_pylist() for name in OUTPUT_KEY), strict=True))
    changes = (("repaired", failed[0] & ~failed[1]), ("broke", failed[1] & ~failed[0]))
    return {
        "base": names[0],
        "candidate": names[1],
        "scores": [score.name for score in scores],
        "n": int(np.count_nonzero(known)),
        **{word: [list(keys[place]) for place in np.flatnonzero(flags)] for word, flags in changes},
    }


def _versions(side: Side) -> list[str]:
    """The versions that the outputs name, in their order; else the `system.version` of the configuration."""
    named: list[str] = pc.unique(read_columns(side.records, ["version"])["version"].take(side.rows).drop_null()).to_pylist()
    configured = side.manifest["identity"]["system"].get("version")
    return named or ([str(configured)] if configured else [])
