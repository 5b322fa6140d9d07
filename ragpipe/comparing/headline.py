"""The scores that a comparison is about, and its one line: what got better, what got worse, or why nothing can be said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.scoring.composites import OVERALL

_ID = 60
_OTHER_SHARE = 0.1
"""By how many of the cases the answers that state nothing differ between the sides where the first line says so."""


def headline_scores(base: Mapping[str, Any], candidate: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """The scores of `names` that are gated or weighted in either run, the overall score first.

    `base` and `candidate` are their `final/metrics.json`. Where no score is gated or weighted, those with a threshold; where
    none has that, all that are on a scale and not merely diagnostic, else on a scale, else all. An overall score of a single part
    is that part again: it is none, for each headline score costs the others certainty.
    """
    chosen = {name for metrics in (base, candidate) for name in _weighted_or_gated(metrics)}
    declared = candidate["declared"]
    shows_overall = len(candidate["composite_parts"].get(OVERALL.name, {}).get("measured", ())) > 1
    for candidates in (
        chosen,
        {name for name in declared if declared[name]["threshold"] is not None},
        {name for name in declared if declared[name]["low"] is not None and not declared[name]["diagnostic"]},
        {name for name in declared if declared[name]["low"] is not None},
        set(declared),
    ):
        headline = [name for name in names if (shows_overall if name == OVERALL.name else name in candidates)]
        if headline:
            return sorted(headline, key=lambda name: name != OVERALL.name)
    return []


def shares_of_parts(name: str, *sides: Mapping[str, Any]) -> list[list[int]]:
    """Of how many of its parts a composite is made on each side (measured, all); empty where it has all of them on every side.

    `sides` are `final/metrics.json` of each.
    """
    parts = [side["composite_parts"].get(name) for side in sides]
    if not any(part and part["absent"] for part in parts):
        return []
    return [[len(part["measured"]), len(part["measured"]) + len(part["absent"])] for part in parts if part]


def _weighted_or_gated(metrics: Mapping[str, Any]) -> Iterator[str]:
    scoring = metrics["scoring"]
    yield from (name for name, weight in scoring.get("weights_used", {}).items() if weight > 0)
    yield from (gate["score"] for gate in scoring.get("gates", {}).values() if gate and gate.get("score"))


def comparison_verdict(
    scores: Mapping[str, Mapping[str, Any]],
    operations: Mapping[str, Mapping[str, Any]],
    slices: Sequence[Mapping[str, Any]] = (),
    accepted: Sequence[str] = (),
) -> dict[str, Any]:
    """`verdict` of a comparison: the state of the first headline score, and a sentence that also says what got worse, or
    better, beside it.

    `scores`, `operations` and `slices` are those of the comparison, the overall score first among the headline. A slice that
    fell is named where the score itself is not worse. `accepted` are the parts that differ although they should not.
    """
    headline = {name: score for name, score in scores.items() if score["headline"]}
    name = OVERALL.name if OVERALL.name in headline else next(iter(headline), None)
    if name is None:
        return {"state": "inconclusive", "score": None, "sentence": "inconclusive: the sides share no score"}
    state = headline[name]["state"]
    fallen = [row for row in slices if row["score"] == name and row["state"] == "worse"] if state != "worse" else []
    figures = _figures({**headline[name], "n_needed": None} if fallen else headline[name])
    said = lost_texts(headline[name]), equal_texts(headline[name]), silent_texts(headline[name], _OTHER_SHARE)
    parts = [*(text for texts in said for text in texts), f"{state}: {name} {figures}"]
    if fallen:
        parts.append(fallen_text(fallen))
    rest = {**{other: score for other, score in headline.items() if other != name}, **operations}
    for direction in ("worse", "better"):
        changed = [f"{other} {change_text(score)}" for other, score in rest.items() if score["state"] == direction]
        if changed:
            parts.append(f"{'also ' if direction == state else ''}{direction}: {', '.join(changed)}")
    if accepted:
        verb = "differ" if len(accepted) > 1 else "differs"
        parts.append(f"not by the answers alone: {' and '.join(accepted)} {verb}")
    return {"state": state, "score": name, "sentence": "; ".join(parts)}


def fallen_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """`worse in category = legal: -0.480 [-0.595, -0.365], n = 20`: of the slices that fell the one that fell most."""
    lowest = max(rows, key=lambda row: abs(row["difference"]))
    more = f" and {len(rows) - 1:,} more slices" if len(rows) > 1 else ""
    return f"worse in {slice_text(lowest)}: {change_text(lowest)}, n = {lowest['n']:,}{more}"


def slice_text(row: Mapping[str, Any]) -> str:
    """`category = policy`."""
    return f"{on_one_line(row['field'], _ID)} = {on_one_line(row['value'], _ID)}"


def lost_texts(score: Mapping[str, Any]) -> Iterator[str]:
    """`40 of 100 cases have no value in the new run (system error 40)`, of each side that lost any."""
    for side, where in (("base", "the base"), ("candidate", "the new run")):
        if causes := score["lost"].get(side):
            lost, listed = sum(causes.values()), ", ".join(f"{cause} {count:,}" for cause, count in causes.items())
            yield f"{lost:,} of {lost + score['n']:,} cases have no value in {where} ({listed})"


def equal_texts(score: Mapping[str, Any]) -> Iterator[str]:
    """`60 of 60 answers are the same on both sides, and the judge gave 48 of them another value`, where that takes the verdict."""
    if score["reason"] == "judge_moved":
        same = score["equal_answers"]
        yield (
            f"the judge moved: {same['n']:,} of {score['n']:,} answers are the same on both sides, and it gave "
            f"{same['changed']:,} of them another value"
        )


def silent_texts(score: Mapping[str, Any], least: float = 0.0) -> Iterator[str]:
    """`36 of 60 answers of the new run state nothing (0 of the base); where both state something +0.020 [-0.010, +0.050], n = 24`,
    where the verdict goes by these or the sides differ by `least` of the cases."""
    silent = score.get("silent")
    if silent and (
        score["reason"] == "states_nothing" or abs(silent["candidate"] - silent["base"]) >= least * score["n"]
    ):
        counts = f"{silent['candidate']:,} of {score['n']:,} answers of the new run state nothing ({silent['base']:,} of the base)"
        rest = (
            f"where both state something {change_text(silent)}, n = {silent['n']:,}"
            if silent["n"]
            else "no case is left"
        )
        yield f"{counts}; {rest}"


def change_text(score: Mapping[str, Any]) -> str:
    """`+0.043 [+0.012, +0.074]`; `-` where nothing can be compared."""
    if score["difference"] is None:
        return "-"
    text = signed_text(score["difference"])
    if interval := score["interval"]:
        text += f" [{signed_text(interval['low'])}, {signed_text(interval['high'])}]"
    return text


def signed_text(value: float) -> str:
    """`+0.043`, `-12.5`, `+1,204`: three decimals below 10, one below 1,000."""
    places = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:+,.{places}f}"


def _figures(score: Mapping[str, Any]) -> str:
    if not score["n"]:
        return "has no case with a value on both sides"
    text = f"{change_text(score)} over {score['n']:,} cases of {score['questions']:,} questions"
    if score["state"] == "same":
        return f"{text}, within {signed_text(score['smallest_effect']).replace('+', '+-')}"
    if score["state"] != "inconclusive":
        interval = score["interval"]
        return f"{text}, by at least {abs_text(min(abs(interval['low']), abs(interval['high'])))}"
    if score["n_needed"]:
        return f"{text}; about {score['n_needed']:,} cases would decide"
    return text


def abs_text(value: float) -> str:
    """A size without its sign."""
    return signed_text(abs(value)).removeprefix("+")
