"""How far two ways of judging lie apart where they judged the same answers: a difference that is none of the systems'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ragpipe.comparing.comparison import paired_scores
from ragpipe.comparing.judge_bridge import judge_bridge
from ragpipe.comparing.judge_drift import Alarm, drift_differences
from ragpipe.comparing.pairing import paired_cases
from ragpipe.comparing.run_differences import MUST_MATCH, ChangedKey, setting_differences
from ragpipe.comparing.same_answers import same_answers
from ragpipe.comparing.side import Side

Shifts = Mapping[tuple[str | None, str], Mapping[str, Any]]
"""`judge_bridge` by method (None: all cases) and score."""


def judging_differences(
    base: Mapping[str, Any], candidate: Mapping[str, Any], alarms: Iterable[Alarm] = ()
) -> list[ChangedKey]:
    """What two runs differ in that `task=compare` refuses, apart from their data, by their manifests: judge, embedder, prompts,
    reading of replies, parameters of metrics. `alarms` as in `drift_differences`."""
    differences = [*setting_differences(base, candidate), *drift_differences(base, candidate, alarms)]
    return [difference for difference in differences if difference.part in MUST_MATCH]


def judging_shifts(base: Side, candidate: Side, level: float) -> Shifts:
    """For each shared score, over all cases and by method, `judge_bridge` over the cases with the same answer on both sides; nothing
    where there is no such case. Both sides are whole runs, `level` is that of the intervals."""
    pairs = paired_cases(base.cases, candidate.cases)
    same = same_answers(base, candidate, pairs)
    names = pairs.cases["method"]
    masks = {None: np.ones(len(pairs), dtype=np.bool_)} | {
        name: np.asarray(pc.equal(names, name).to_numpy(), dtype=np.bool_) for name in pc.unique(names).to_pylist()
    }
    bridges = {
        (method, score.name): judge_bridge(score, same & mask, level)
        for score in paired_scores(base, candidate, pairs)
        for method, mask in masks.items()
    }
    return {key: bridge for key, bridge in bridges.items() if bridge is not None}
