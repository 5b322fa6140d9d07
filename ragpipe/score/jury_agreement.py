"""How far the members of a jury agree, with each other and with themselves, and what a cascade left out: `jury` of `metrics.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.core.score import ScoreSpec
from ragpipe.stats.agreement import cohen_kappa, equal_share, spearman
from ragpipe.stats.corrected_mean import corrected_mean
from ragpipe.stats.several_raters import fleiss_kappa, krippendorff_alpha
from ragpipe.store.run_tables import batches

Floats = NDArray[np.float64]

_COLUMNS = ("score_name", "value", "status", "details")
_MARK = '"jury"'
_LEAST_CASES, _FEWEST_ANSWERED, _FAR = 10, 0.9, 0.25
"""Of a member that is warned of: cases that tell anything, the share of cases it should answer, and how far its mean may be from
that of the others, as a share of the scale."""


@dataclass(slots=True)
class _Score:
    """What a jury said of one score: a row per case. `values` are the members' (NaN: none), `final` those that count."""

    rule: str = ""
    values: list[list[float]] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    flags: Counter[str] = field(default_factory=Counter)
    consistency: dict[str, list[float]] = field(default_factory=dict)
    cascades: list[tuple[bool, float, float]] = field(default_factory=list)
    """By case with a value: whether the second member decided, and the values of both members (NaN: not asked)."""


def jury_document(scores: Path, specs: Sequence[ScoreSpec], members: Mapping[str, str]) -> dict[str, Any]:
    """`jury` of `metrics.json`, from `scores.parquet` of an iteration that a jury judged. `members` has the label of each."""
    names, scores_by_name = list(members), dict[str, _Score]()
    for batch in batches(scores, _COLUMNS):
        judged = batch.filter(pc.match_substring(batch["details"], _MARK))
        for row in judged.to_pylist():
            if (jury := json.loads(row["details"]).get("jury")) is not None:
                _add(scores_by_name.setdefault(row["score_name"], _Score()), names, row, jury)
    described = {spec.name: _described(scores_by_name[spec.name], spec, names) for spec in specs if spec.name in scores_by_name}
    return {"members": dict(members), "scores": described}


def _add(score: _Score, names: Sequence[str], row: Mapping[str, Any], jury: Mapping[str, Any]) -> None:
    by_member = jury["members"]
    score.rule = jury["rule"]
    score.values.append([_number(by_member.get(name, {}).get("value")) for name in names])
    score.final.append(_number(row["value"]))
    score.flags.update(jury.get("flags", ()))
    if row["status"] == "error":
        score.flags["no_majority"] += json.loads(row["details"]).get("kind") == "no_majority"
    for name, share in jury.get("self_consistency", {}).items():
        score.consistency.setdefault(name, []).append(share)
    if (cascade := jury.get("cascade")) is not None and row["value"] is not None:
        first, then = cascade.get("values", (row["value"], None))
        score.cascades.append(("values" in cascade and not cascade["drawn"], _number(first), _number(then)))


def _described(score: _Score, spec: ScoreSpec, names: Sequence[str]) -> dict[str, Any]:
    values = np.array(score.values, dtype=np.float64)
    present = [place for place in range(len(names)) if not np.isnan(values[:, place]).all()]
    document: dict[str, Any] = {
        "rule": score.rule,
        "cases": len(values),
        "means": {names[place]: float(np.nanmean(values[:, place])) for place in present},
        **{flag: score.flags[flag] for flag in ("no_majority", "self_inconsistent")},
    }
    if score.consistency:
        document["self_consistency"] = {name: float(np.mean(shares)) for name, shares in score.consistency.items()}
    if score.cascades:
        return document | {"cascade": _cascade(score, spec)}
    document["odd_members"] = _odd_members(values, spec, names)
    if len(present) > 1:
        nominal = spec.binary or spec.in_class is not None
        document |= raters_agreement(values[:, present], [names[place] for place in present], nominal=nominal)
    return document


def _odd_members(values: Floats, spec: ScoreSpec, names: Sequence[str]) -> dict[str, str]:
    """By member what makes its values suspect: hardly any, one grade only, or a mean far from that of the others."""
    odd = {}
    due = ~np.isnan(values).all(axis=1)
    span = 0.0 if spec.low is None or spec.high is None else spec.high - spec.low
    for place, name in enumerate(names):
        own, rest = values[due, place], np.delete(values[due], place, axis=1)
        answered, found = own[~np.isnan(own)], []
        if len(answered) < _FEWEST_ANSWERED * len(own):
            found.append(f"answered in {len(answered):,} of {len(own):,} cases")
        both = ~np.isnan(own) & ~np.isnan(rest).all(axis=1)
        if np.count_nonzero(both) >= _LEAST_CASES:
            others = rest[:, ~np.isnan(rest).all(axis=0)]
            if not np.ptp(own[both]) and np.any(np.nanmax(others, axis=0) > np.nanmin(others, axis=0)):
                found.append(f"gave {own[both][0]:g} in all {np.count_nonzero(both):,} cases")
            apart = min((float(np.nanmean(own - other)) for other in others.T), key=abs)  # from the nearest of them
            if span and abs(apart) >= _FAR * span:
                found.append(f"is {abs(apart):.2f} {'below' if apart < 0 else 'above'} the others in the mean")
        if found:
            odd[name] = " and ".join(found)
    return odd


def raters_agreement(values: Floats, names: Sequence[str], *, nominal: bool) -> dict[str, Any]:
    """Agreement of several raters, at least two: a row of `values` per case, a column per rater, NaN where one gave none.

    `n` counts the cases that all of them rated: on these stand `unanimous` (the share on which all are equal) and `fleiss_kappa`.
    `alpha` is Krippendorff's, over all cases with two ratings: nominal, or with squared differences. Each of `pairs` has the
    cases that both rated, the share of equal ones, and `kappa`, or for grades and numbers `spearman`. None where a figure is not
    defined.
    """
    complete = values[~np.isnan(values).any(axis=1)]
    pairs = {}
    for first, second in combinations(range(len(names)), 2):
        both = values[~np.isnan(values[:, [first, second]]).any(axis=1)][:, [first, second]]
        left, right = both[:, 0], both[:, 1]
        figure = {"kappa": cohen_kappa(left, right).value} if nominal else {"spearman": spearman(left, right).value}
        pairs[f"{names[first]}, {names[second]}"] = {"n": len(both), "equal": equal_share(left, right), **figure}
    return {
        "n": len(complete),
        "unanimous": float(np.mean(np.ptp(complete, axis=1) <= 1e-9)) if len(complete) else None,
        "fleiss_kappa": fleiss_kappa(complete).value if nominal else None,
        "alpha": krippendorff_alpha(values, squared=not nominal).value,
        "pairs": pairs,
    }


def _cascade(score: _Score, spec: ScoreSpec) -> dict[str, Any]:
    """How often the second member decided, and how the mean differs from its own alone (docs/statistics.md)."""
    decided = np.array([sent for sent, _, _ in score.cascades])
    first = np.array([value for _, value, _ in score.cascades])
    then = np.array([value for _, _, value in score.cascades])
    mean = float(np.mean(np.where(decided, then, first)))
    document: dict[str, Any] = {"decided_by_second": float(np.mean(decided)), "drawn": int(np.sum(~decided & ~np.isnan(then)))}
    usable = ~np.isnan(first)
    if spec.low is None or spec.high is None or not usable.all():
        return document
    strata = decided.astype(np.int64)
    corrected = corrected_mean(first, then, strata=strata, low=spec.low, high=spec.high, only_these=True)
    if corrected.value is None or corrected.interval is None:
        return document | {"bias": None, "reason": corrected.reason}
    low, high = mean - corrected.interval.high, mean - corrected.interval.low
    return document | {"bias": mean - corrected.value, "bias_interval": [low, high]}


def jury_warnings(document: Mapping[str, Any]) -> list[str]:
    """What to know of the members before relying on their scores: who hardly answers, has one grade or is far from the others, how
    often they were tied or unlike themselves, and how far a cascade moves a mean."""
    lines = []
    for name, score in document["scores"].items():
        lines += [f"{name}: jury member {member} {text}" for member, text in score.get("odd_members", {}).items()]
        flags = {
            "no_majority": "no majority among the members",
            "self_inconsistent": "a member contradicts itself over its repeats",
        }
        for flag, words in flags.items():
            lines += [f"{name}: {words} in {score[flag]:,} of {score['cases']:,} cases"] if score[flag] else []
        if interval := score.get("cascade", {}).get("bias_interval"):
            bias = score["cascade"]["bias"]
            lines.append(
                f"{name}: the cascade moves the mean by {bias:+.3f} [{interval[0]:+.3f}, {interval[1]:+.3f}] against its second "
                "member alone"
            )
    return lines


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
