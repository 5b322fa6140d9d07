"""How the values of a score are spread: grades and classes counted, best and worst per method, a judge of one grade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.score import ScoreSpec
from ragpipe.score.accumulators import Accumulators, ScoreLedger, membership
from ragpipe.score.normalisation import OK, OVERALL, TOLERANCE
from ragpipe.stats.intervals import in_all

Whole = NDArray[np.int64]

BY = ("method", "question_type", "method*question_type")
"""The fields by which grades and classes are counted, crossed where there are several methods and several types; means by any
other field stand under `by`."""
METHODS_MAX = 200
_LEAST_CASES = 20
_ONE_GRADE = 0.95


def grades(ledger: Accumulators, specs: Sequence[ScoreSpec]) -> dict[str, Any]:
    """By graded score, and by group of scores that are the classes of one thing: `overall` and `by` field and group, how
    many cases have each grade (class). A value between two grades counts as the lower one; without a value a case counts
    nowhere. What has no case is left out."""
    by_score: dict[str, Any] = {}
    for name, labels, cases, codes in (*_graded(ledger, specs), *_classed(ledger, specs)):
        if len(cases):
            by = {field: _by_group(ledger, field, labels, cases, codes) for field in BY}
            by_score[name] = {
                "overall": _counted(labels, codes),
                "by": {field: counts for field, counts in by.items() if counts},
            }
    return by_score


def extremes(ledger: Accumulators, specs: Sequence[ScoreSpec]) -> dict[str, Any]:
    """By score that is neither 0/1 nor a count, and by method: `best`, `worst` and `mean` value of a case, in the native
    scale, over the `n_questions` for which every method that has the score at all has a value; `n` cases. `specs` are those
    that the run shows, the overall score among them."""
    cases, codes = ledger.pairs["method"]
    names = ledger.fields["method"].names
    if len(names) > METHODS_MAX:
        return {}
    scores = {**ledger.scores, OVERALL.name: ledger.overall}
    by_score: dict[str, Any] = {}
    for spec in specs:
        if not spec.binary and spec.low is not None:
            extreme = _extremes(scores[spec.name], ledger.samples, cases, codes, names, up=spec.higher_is_better)
            by_score |= {spec.name: extreme} if extreme["methods"] else {}
    return by_score


def lone_grades(ledger: Accumulators, specs: Sequence[ScoreSpec]) -> list[str]:
    """A warning for each graded score of which one value is that of nearly all cases: such a judge tells little apart."""
    warnings = []
    for spec in specs:
        values = ledger.scores[spec.name].values[ledger.scores[spec.name].status == OK] if spec.grades else ()
        if len(values) < _LEAST_CASES:
            continue
        different, counts = np.unique(values, return_counts=True)
        most = int(np.argmax(counts))
        if counts[most] >= _ONE_GRADE * len(values) - TOLERANCE:
            warnings.append(
                f"{spec.name}: the judge gave {different[most]:g} in {counts[most]} of {len(values)} cases "
                f"({counts[most] / len(values):.0%}): a grade that hardly varies tells few answers apart"
            )
    return warnings


def _graded(ledger: Accumulators, specs: Sequence[ScoreSpec]) -> Iterator[tuple[str, list[str], Whole, Whole]]:
    """Graded scores: name, grades from the best down, the cases with a value, and the number of the grade of each."""
    for spec in specs:
        if spec.grades:
            score = ledger.scores[spec.name]
            cases = np.flatnonzero(score.status == OK)
            lowest = np.array([low for _, low in spec.grades])
            reached = score.values[cases][:, None] >= lowest[None, :] - TOLERANCE
            yield spec.name, [label for label, _ in spec.grades], cases, np.argmax(reached, axis=1).astype(np.int64)


def _classed(ledger: Accumulators, specs: Sequence[ScoreSpec]) -> Iterator[tuple[str, list[str], Whole, Whole]]:
    """Groups of 0/1 scores of which each case has one: the same, with the class whose score is 1."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for spec in specs:
        if spec.in_class:
            groups.setdefault(spec.in_class[0], []).append((spec.in_class[1], spec.name))
    for group, members in groups.items():
        scores = [ledger.scores[name] for _, name in members]
        holds = np.stack([(score.status == OK) & (score.values == 1) for score in scores], axis=1)
        cases = np.flatnonzero(holds.any(axis=1))
        yield group, [label for label, _ in members], cases, np.argmax(holds[cases], axis=1).astype(np.int64)


def _by_group(ledger: Accumulators, field: str, labels: Sequence[str], cases: Whole, codes: Whole) -> dict[str, Any]:
    """The counts of each group of a field; empty where the data does not have it."""
    of_case = np.full(ledger.n, -1, dtype=np.int64)
    of_case[cases] = codes
    if "*" in field and any(len(ledger.fields[part].names) < 2 for part in field.split("*")):
        return {}
    names, members, groups = membership(ledger, field)
    if len(names) > METHODS_MAX:
        return {}
    counted = {name: of_case[members[groups == code]] for code, name in enumerate(names)}
    return {
        name: _counted(labels, group_codes[group_codes >= 0])
        for name, group_codes in counted.items()
        if np.any(group_codes >= 0)
    }


def _counted(labels: Sequence[str], codes: Whole) -> dict[str, int]:
    return dict(zip(labels, np.bincount(codes, minlength=len(labels)).tolist(), strict=True))


def _extremes(
    score: ScoreLedger, samples: Whole, cases: Whole, codes: Whole, names: Sequence[str], *, up: bool
) -> dict[str, Any]:
    valued = score.status == OK
    of_method = {
        name: method_cases[valued[method_cases]] for code, name in enumerate(names) if len(method_cases := cases[codes == code])
    }
    of_method = {name: method_cases for name, method_cases in of_method.items() if len(method_cases)}
    shared = in_all([samples[method_cases] for method_cases in of_method.values()])
    methods: dict[str, Any] = {}
    for name, method_cases in of_method.items():
        values = score.values[method_cases[np.isin(samples[method_cases], shared)]]
        if len(values):
            least, most = float(values.min()), float(values.max())
            best, worst = (most, least) if up else (least, most)
            methods[name] = {"n": len(values), "mean": float(values.mean()), "best": best, "worst": worst}
    return {"n_questions": len(shared), "methods": methods}


def added(parts: Sequence[Any]) -> Any:
    """Numbers of several iterations summed, objects key by key."""
    if not isinstance(parts[0], Mapping):
        return sum(parts)
    keys = dict.fromkeys(key for part in parts for key in part)
    return {key: added([part[key] for part in parts if key in part]) for key in keys}


def merge_extremes(per_iteration: Sequence[Mapping[str, Any]], declared: Mapping[str, Any]) -> dict[str, Any]:
    """`extremes` of several iterations: the best and the worst of all, the mean of the means."""
    merged: dict[str, Any] = {}
    for score in dict.fromkeys(name for iteration in per_iteration for name in iteration):
        of_score = [iteration[score] for iteration in per_iteration if score in iteration]
        higher_is_better = declared[score]["higher_is_better"]
        names = dict.fromkeys(name for entry in of_score for name in entry["methods"])
        methods = {
            name: _merged_method([e["methods"][name] for e in of_score if name in e["methods"]], higher_is_better)
            for name in names
        }
        merged[score] = {"n_questions": max(entry["n_questions"] for entry in of_score), "methods": methods}
    return merged


def _merged_method(rows: Sequence[Mapping[str, Any]], higher_is_better: bool) -> dict[str, Any]:
    """One method's extremes over the iterations that have them."""
    best, worst = (max, min) if higher_is_better else (min, max)
    return {
        "n": sum(row["n"] for row in rows),
        "mean": sum(row["mean"] for row in rows) / len(rows),
        "best": best(row["best"] for row in rows),
        "worst": worst(row["worst"] for row in rows),
    }
