"""Which answers a judge preferred: the figures of a preference run for a comparison, and the same in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparison.headline import percent
from ragpipe.comparison.score_differences import interval_document
from ragpipe.comparison.side import Pairs, Side, paired_cases, question_numbers
from ragpipe.stats.intervals import Estimate, estimate_mean
from ragpipe.stats.preference import bradley_terry, decide_preference, rate_at_equal_length
from ragpipe.store.run_tables import read_columns

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SCORE = "preference"
"""The name of the score in a preference run."""


def pair_name(base: str | None, candidate: str | None) -> str:
    """What a pair of two methods of one run is called in the place of a method."""
    return f"{candidate} vs {base}"


def preference_document(asked: Side, base: Side, candidate: Side, pairs: Pairs, level: float) -> dict[str, Any] | None:
    """What `comparison.json` says of the pairs of these two sides in the preference run `asked`; None where it has none.

    `win_rate` counts a tie as half a win; `first` is the share of choices for the answer shown first, `inconsistent` that of pairs whose
    two orders gave different results, `longer` the win rate of the longer answer, `equal_length` that of the candidate were both as long
    (`rate_at_equal_length`, of answers that differ). `identical` answers are ties without a call; `left_out` counts by reason the pairs without a result.
    """
    rows, flipped = _rows_of(asked, base, candidate, pairs)
    if not len(rows):
        return None
    values = asked.values(SCORE)[0][rows]
    values = 1 - values if flipped else values
    known = ~np.isnan(values)
    values, places = values[known], rows[known]
    questions = question_numbers(asked.cases)[places]
    verdict = decide_preference(values, questions, asked.values(f"{SCORE}_inconsistent")[0][places], level=level)
    corrected = _corrected(asked, len(rows), flipped=flipped)
    return {
        "run_id": asked.run_id,
        "judge": asked.metrics["judge"]["label"],
        "calibrated": asked.metrics["judge"]["calibrated"],
        "state": verdict.state if corrected is None else _state(corrected["interval"]),
        "pairs": len(rows),
        **{name: getattr(verdict, name) for name in ("wins", "ties", "losses")},
        "left_out": dict(Counter(_reasons(asked, rows[~known]))),
        "win_rate": {**_estimated(verdict.rate), "questions": verdict.rate.clusters},
        **_biases(asked, places, values, questions, -1 if flipped else 1, level),
        "corrected": corrected,
    }


def _biases(asked: Side, places: Whole, values: Floats, questions: Whole, sign: int, level: float) -> dict[str, Any]:
    """How far the order and the length of the answers decide, and how many pairs have the same answer."""
    longer, same = _answers(asked)
    lengths, same = sign * longer[places], same[places]

    def mean_of(values: Floats, chosen: NDArray[np.bool_]) -> dict[str, Any]:
        return _estimated(estimate_mean(values[chosen], questions[chosen], low=0.0, high=1.0, level=level))

    by_order = {name: asked.values(f"{SCORE}_{name}")[0][places] for name in ("first", "inconsistent")}
    equal = rate_at_equal_length(values[~same], lengths[~same], questions[~same], level=level)
    return {
        "identical": int(np.sum(same)),
        **{name: mean_of(found, ~np.isnan(found)) for name, found in by_order.items()},
        "longer": mean_of(np.where(lengths > 0, values, 1 - values), lengths != 0),
        "equal_length": _estimated(equal),
    }


def _estimated(found: Estimate) -> dict[str, Any]:
    return {"n": found.n, "value": found.value, "interval": interval_document(found.interval), "reason": found.reason}


def _state(interval: Mapping[str, Any]) -> str:
    """What a corrected win rate says: people's labels come before the judge's choices."""
    return "better" if interval["low"] > 0.5 else "worse" if interval["high"] < 0.5 else "inconclusive"


def _rows_of(asked: Side, base: Side, candidate: Side, pairs: Pairs) -> tuple[Whole, bool]:
    """The pairs of both sides among the cases of a preference run, and whether base and candidate are the other way round there."""
    if base.folder != candidate.folder:
        return paired_cases(asked.cases, pairs.cases).base, False
    methods = asked.cases["method"]
    for names, flipped in (((base.method, candidate.method), False), ((candidate.method, base.method), True)):
        rows = np.flatnonzero(pc.equal(methods, pair_name(*names)).to_numpy())
        if len(rows):
            return rows.astype(np.int64), flipped
    return np.empty(0, dtype=np.int64), False


def _answers(asked: Side) -> tuple[Floats, NDArray[np.bool_]]:
    """By how many characters the candidate's answer of each pair is longer, and whether both answers are the same."""
    table = read_columns(asked.folder.outputs, ["answer", "other_answer"])
    texts = [[text or "" for text in table[name].to_pylist()] for name in table.column_names]
    longer = np.array([len(own) - len(other) for own, other in zip(*texts, strict=True)], dtype=np.float64)
    return longer, np.array([own.strip() == other.strip() for own, other in zip(*texts, strict=True)], dtype=np.bool_)


def _reasons(asked: Side, rows: Whole) -> list[str]:
    """Why pairs have no result, in a word; what an error says after its colon may be a judge's text."""
    column = read_columns(asked.records, [f"{SCORE}.reason"])[f"{SCORE}.reason"]
    return [str(reason).partition(":")[0] for reason in column.take(pa.array(rows)).to_pylist()]


def _corrected(asked: Side, pairs: int, *, flipped: bool) -> dict[str, Any] | None:
    """The win rate that people's labels of all pairs would give, where the run was scored with some and all of its pairs are meant."""
    found = asked.metrics.get("corrected", {}).get(SCORE)
    if found is None or found["mean"] is None or pairs != len(asked.rows) or flipped:
        return None
    return {"value": found["mean"], "interval": found["interval"], "labels": found["labels"]}


def strengths(asked: Sequence[tuple[Side, Side, Side, Pairs]], sides: Sequence[Side], level: float) -> list[dict[str, Any]]:
    """Of more than two sides the log odds of each against the first by all pairs that were asked about (`bradley_terry`); empty for fewer.
    `asked` are the preference runs, each with base, candidate and their pairs."""
    place = {id(side): number for number, side in enumerate(sides)}
    first, second, values, questions = list[Whole](), list[Whole](), list[Floats](), list[str]()
    for run, base, candidate, pairs in asked:
        rows, flipped = _rows_of(run, base, candidate, pairs)
        won = run.values(SCORE)[0][rows]
        rows, won = rows[~np.isnan(won)], won[~np.isnan(won)]
        first.append(np.full(len(rows), place[id(base)]))
        second.append(np.full(len(rows), place[id(candidate)]))
        values.append(1 - won if flipped else won)
        questions += run.cases["sample_id"].take(pa.array(rows)).to_pylist()
    if len(sides) < 3 or not questions:
        return []
    codes = np.unique(questions, return_inverse=True)[1].astype(np.int64)
    found = bradley_terry(
        np.concatenate(first), np.concatenate(second), np.concatenate(values), codes, sides=len(sides), level=level
    )
    names = [{"run_id": side.run_id, "method": side.method} for side in sides]
    figures = [{"strength": estimate.value, "interval": interval_document(estimate.interval)} for estimate in found]
    return [{**name, **figure} for name, figure in zip(names, figures, strict=True)]


def preference_lines(found: Mapping[str, Any]) -> list[str]:
    """What stands below the table: by whom, what was left out, and how far order and length decide."""
    said = (
        f"preference by {found['judge']} ({'calibrated' if found['calibrated'] else 'not calibrated'}), run {found['run_id']}"
    )
    if found["identical"]:
        said += f"; {found['identical']:,} of {found['pairs']:,} pairs have the same answer: ties without a call"
    if found["left_out"]:
        said += f"; left out: {', '.join(f'{reason} {count:,}' for reason, count in found['left_out'].items())}"
    bias = f"position: of a pair's choices {percent(found['first'])} fell on the answer shown first, {percent(found['inconsistent'])} of pairs changed with the order"
    length = f"length: the longer answer wins {percent(found['longer'])}"
    if found["equal_length"]["value"] is not None:
        length += f"; at equal length the new one wins {percent(found['equal_length'])}"
    return [said, bias, length]


def strength_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """`strength against baseline (log odds): rerank +0.62 [+0.20, +1.05]` of more than two sides; none of fewer."""
    if not rows:
        return []
    listed = []
    for row in sorted(rows[1:], key=lambda row: -row["strength"]):
        ends = f" [{row['interval']['low']:+.2f}, {row['interval']['high']:+.2f}]" if row["interval"] else ""
        listed.append(f"{row['method'] or row['run_id']} {row['strength']:+.2f}{ends}")
    return [f"strength against {rows[0]['method'] or rows[0]['run_id']} (log odds, 0 is as strong): {', '.join(listed)}"]
