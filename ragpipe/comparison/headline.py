"""The scores that a comparison is about, and its one line: what got better, what got worse, or why nothing can be said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core.text import on_one_line
from ragpipe.score.normalisation import OVERALL

_ID = 60
NO_MODES: Mapping[str, Mapping[str, Any]] = {}
SIDES = ("the base", "the new run")
OTHER_SHARE = 0.1
"""By how many of the cases the answers that state nothing differ between the sides where the first line says so."""


def headline_scores(base: Mapping[str, Any], candidate: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """The scores of `names` that are gated, or weighted and measured, in either run, the overall score first.

    `base` and `candidate` are their `final/metrics.json`. Where there is none, those with a threshold; where none has that, all that
    are on a scale and not merely diagnostic, else on a scale, each only where it has a value anywhere; else all. An overall score of
    a single part is that part again: it is none, for each headline score costs the others certainty.
    """
    sides = (base, candidate)
    measured = {name for side in sides for name, score in side["overall"]["scores"].items() if score["n_ok"]}
    scorings = [side["scoring"] for side in sides]
    weighted = {name for scoring in scorings for name, weight in scoring.get("weights_used", {}).items() if weight > 0}
    gates = [gate for scoring in scorings for gate in scoring.get("gates", {}).values() if gate]
    gated = {gate["score"] for gate in gates if gate.get("score")}
    declared = {name: spec for name, spec in candidate["declared"].items() if name in measured}
    shows_overall = len(candidate["composite_parts"].get(OVERALL.name, {}).get("measured", ())) > 1
    for candidates in (
        weighted & measured | gated,
        {name for name in declared if declared[name]["threshold"] is not None},
        {name for name in declared if declared[name]["low"] is not None and not declared[name]["diagnostic"]},
        {name for name in declared if declared[name]["low"] is not None},
        set(candidate["declared"]),
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


def comparison_verdict(
    scores: Mapping[str, Mapping[str, Any]],
    operations: Mapping[str, Mapping[str, Any]],
    slices: Sequence[Mapping[str, Any]] = (),
    accepted: Sequence[str] = (),
    modes: Mapping[str, Mapping[str, Any]] = NO_MODES,
    preference: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`verdict` of a comparison: the state of the first headline score, and a sentence with the `reasons` that it is made of, each a
    code and its words.

    First what the sides differ in although they should not (`accepted`), and what leaves cases out; then the verdict, a slice that
    fell where the score itself is not worse, and what else got worse or better. A failure mode that became more frequent is named
    where no headline score is worse, one that became rarer where none is better. What a judge chose between the answers follows the
    score. In `scores` the overall one is first.
    """
    headline = {name: score for name, score in scores.items() if score["headline"]}
    name = OVERALL.name if OVERALL.name in headline else next(iter(headline), None)
    if name is None:
        none = [("no_score", "inconclusive: the sides share no score")]
        return verdict_document("inconclusive", none + ([preference_reason(preference, "")] if preference else []))
    score, state = headline[name], headline[name]["state"]
    fallen = [row for row in slices if row["score"] == name and row["state"] == "worse"] if state != "worse" else []
    figures = _figures({**score, "n_needed": None} if fallen else score)
    reasons = []
    if accepted:
        verb = "differ" if len(accepted) > 1 else "differs"
        reasons.append(("other_conditions", f"not by the answers alone: {' and '.join(accepted)} {verb}"))
    reasons += with_reservations((state, f"{state}: {name} {figures}"), score, OTHER_SHARE)
    if preference:
        reasons.append(preference_reason(preference, state))
    if fallen:
        reasons.append(("slice_fell", fallen_text(fallen)))
    rest = {**{other: score for other, score in headline.items() if other != name}, **operations}
    for direction in ("worse", "better"):
        changed = [f"{other} {change_text(score)}" for other, score in rest.items() if score["state"] == direction]
        if changed:
            also = "also " if direction == state else ""
            reasons.append((f"also_{direction}", f"{also}{direction}: {', '.join(changed)}"))
        moved = {mode: found for mode, found in modes.items() if found["state"] == direction}
        if moved and all(score["state"] != direction for score in headline.values()):
            reasons.append(("mode_rose" if direction == "worse" else "mode_fell", _moved_text(moved)))
    return verdict_document(state, reasons, score=name)


def verdict_document(state: str, reasons: Sequence[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """A verdict as `verdict.json` has it: `reasons` are codes and words, and the sentence is made of these words."""
    sentence = "; ".join(text for _, text in reasons)
    listed = [{"code": code, "text": text} for code, text in reasons]
    return {"state": state, "score": None, **more, "sentence": sentence, "reasons": listed}


def with_reservations(
    verdict: tuple[str, str], score: Mapping[str, Any], least: float = 0.0, sides: tuple[str, str] = SIDES
) -> list[tuple[str, str]]:
    """Code and words of the verdict on a score, after what makes it unusable: too many lost values, a judge that moved, answers that
    state nothing. `sides` is what the two are called."""
    lost = lost_texts(score, sides) if score["reason"] == "values_lost" else ()
    first = [("values_lost", text) for text in lost]
    if score["reason"] == "judge_moved":
        same = score["equal_answers"]
        words = f"the judge moved: {same['n']:,} of {score['n']:,} answers are the same on both sides, and it gave "
        first.append(("judge_moved", f"{words}{same['changed']:,} of them another value"))
    first += [("states_nothing", text) for text in silent_texts(score, least, sides)]
    return [*first, verdict]


_OPPOSITE = {"better": "worse", "worse": "better"}
_PREFERRED = {
    "better": "preferred",
    "worse": "the base is preferred",
    "same": "neither is preferred",
    "inconclusive": "preference undecided",
}


def preference_text(found: Mapping[str, Any]) -> str:
    """`preferred: wins 62 % [54 %, 70 %] of 78 pairs (44/9/25)`; wins, ties and losses in brackets."""
    counts = f"{found['wins']:,}/{found['ties']:,}/{found['losses']:,}"
    rate = found["corrected"] or found["win_rate"]
    labels = f", corrected by {rate['labels']} labels" if "labels" in rate else ""
    return f"{_PREFERRED[found['state']]}: wins {percent(rate)} of {found['win_rate']['n']:,} pairs ({counts}){labels}"


def percent(found: Mapping[str, Any]) -> str:
    """`62 % [54 %, 70 %]`; `-` where there is no value."""
    if found["value"] is None:
        return "-"
    interval = found["interval"]
    ends = f" [{interval['low']:.0%}, {interval['high']:.0%}]" if interval else ""
    return f"{found['value']:.0%}{ends}".replace("%", " %")


def preference_reason(found: Mapping[str, Any], state: str) -> tuple[str, str]:
    """Code and words for the verdict whose scores say `state`; where the two contradict each other, it is said."""
    if found["state"] == _OPPOSITE.get(state):
        return "preference_contradicts", f"but a judge asked to choose says the opposite, {preference_text(found)}"
    return "preference", preference_text(found)


def fallen_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """`worse in category = legal: -0.480 [-0.595, -0.365], n = 20`: of the slices that fell the one that fell most."""
    lowest = max(rows, key=lambda row: abs(row["difference"]))
    more = f" and {len(rows) - 1:,} more slices" if len(rows) > 1 else ""
    return f"worse in {slice_text(lowest)}: {change_text(lowest)}, n = {lowest['n']:,}{more}"


def _moved_text(moved: Mapping[str, Mapping[str, Any]]) -> str:
    """`false_rejection rose from 1.7 % to 10.7 % (and 2 more failure modes)`: of these modes the one that moved most."""
    name, mode = max(moved.items(), key=lambda item: abs(item[1]["difference"]))
    more = len(moved) - 1
    rest = f" (and {more} more failure mode{'s' if more > 1 else ''})" if more else ""
    verb = "rose" if mode["difference"] > 0 else "fell"
    return f"{name} {verb} from {rate_text(mode['base_mean'])} to {rate_text(mode['candidate_mean'])}{rest}"


def rate_text(rate: float | None) -> str:
    """`10.7 %`; `-` for none."""
    return "-" if rate is None else f"{rate:.1%}".replace("%", " %")


def slice_text(row: Mapping[str, Any]) -> str:
    """`category = policy`."""
    return f"{on_one_line(row['field'], _ID)} = {on_one_line(row['value'], _ID)}"


def lost_texts(score: Mapping[str, Any], sides: tuple[str, str] = SIDES) -> Iterator[str]:
    """`40 of 100 cases have no value in the new run (system error 40)`, of each side that lost any."""
    for side, where in zip(("base", "candidate"), sides, strict=True):
        if causes := score["lost"].get(side):
            lost, listed = sum(causes.values()), ", ".join(f"{cause} {count:,}" for cause, count in causes.items())
            yield f"{lost:,} of {lost + score['n']:,} cases {'has' if lost == 1 else 'have'} no value in {where} ({listed})"


def silent_texts(score: Mapping[str, Any], least: float = 0.0, sides: tuple[str, str] = SIDES) -> Iterator[str]:
    """`36 of 60 answers of the new run state nothing (0 of the base); where both state something +0.020 [-0.010, +0.050], n = 24`,
    where the verdict goes by these or the sides differ by `least` of the cases."""
    silent = score.get("silent")
    if not silent or (score["reason"] != "states_nothing" and abs(silent["candidate"] - silent["base"]) < least * score["n"]):
        return
    counts = f"{silent['candidate']:,} of {score['n']:,} answers of {sides[1]} state nothing ({silent['base']:,} of {sides[0]})"
    rest = f"where both state something {change_text(silent)}, n = {silent['n']:,}" if silent["n"] else "no case is left"
    yield f"{counts}; {rest}"


def change_text(score: Mapping[str, Any]) -> str:
    """`+0.043 [+0.012, +0.074]`; `-` where nothing can be compared."""
    if score["difference"] is None:
        return "-"
    interval = score["interval"]
    values = [score["difference"], *((interval["low"], interval["high"]) if interval else ())]
    places = _places(max(map(abs, values)))
    texts = [f"{value:+,.{places}f}" for value in values]
    return f"{texts[0]} [{', '.join(texts[1:])}]" if interval else texts[0]


def signed_text(value: float) -> str:
    """`+0.043`, `-12.5`, `+1,204`."""
    return f"{value:+,.{_places(abs(value))}f}"


def _places(size: float) -> int:
    """Three decimals below 10, one below 1,000, none above."""
    return 3 if size < 10 else 1 if size < 1000 else 0


def _figures(score: Mapping[str, Any]) -> str:
    if not score["n"]:
        return "has no case with a value on both sides"
    text = f"{change_text(score)} over {score['n']:,} cases of {score['questions']:,} questions"
    if score["state"] == "same":
        return f"{text}, within {signed_text(score['smallest_effect']).replace('+', '+-')}"
    if score["state"] != "inconclusive":
        interval = score["interval"]
        return f"{text}, by at least {signed_text(min(abs(interval['low']), abs(interval['high']))).removeprefix('+')}"
    if score["n_needed"]:
        return f"{text}; about {score['n_needed']:,} cases would decide"
    return text
