"""What `task=weights` found, for the terminal and as the page `weights.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.safe_text import code_span, markdown_table
from ragpipe.extras.weights.weighing_settings import IN_USE
from ragpipe.reports.number_format import bracketed, decimal, percentage

WEIGHT_NOTE = "overall score of each method on the questions that all of them share, with its 95% interval and (rank)"
STABILITY_HEADS = ("method", "first", "by weights alone", "mean rank")
TUNING_HEADS = ("score", "in use", "fitted")
_NOTHING_TO_RANK = {
    "one_method": "the run has one method: there is nothing to rank",
    "one_score": "one score alone has a weight: all weights are the same",
    "no_shared_question": "the methods share no question with an overall score: there is nothing to rank",
}
_NOTHING_TO_SAY = {
    "few_ratings": "no advice: under 30 rated cases have all the weighted scores",
    "no_spread": "no advice: the ratings, or the scores, never vary",
    "one_sample": "no advice: all rated cases are of one question",
    "rests_on_one_question": "no advice: without one of the questions there would be nothing to compare",
}


def sensitivity_heads(document: Mapping[str, Any]) -> list[str]:
    """A column per weight set."""
    return ["method", *document["sets"]]


def sensitivity_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row per method, best first under the weights in use: overall score, interval and rank under each set."""
    in_use = document["sets"][IN_USE]["methods"]
    names = sorted(in_use, key=lambda name: in_use[name]["rank"] or len(in_use) + 1)
    return [[name, *(_cell(under["methods"][name]) for under in document["sets"].values())] for name in names]


def weight_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row per score with its share in each weight set."""
    sets = document["sets"].values()
    names = dict.fromkeys(name for under in sets for name in under["weights"])
    return [[name, *(percentage(under["weights"].get(name)) for under in sets)] for name in names]


def ranking_line(document: Mapping[str, Any]) -> str:
    """Whether a weight set changes the ranking, in one sentence."""
    orders = {name: _order(under["methods"]) for name, under in document["sets"].items()}
    changing = [name for name, order in orders.items() if order != orders[IN_USE]]
    if len(document["sets"]) < 2:
        return "no weight set beside the one in use: name some with weights.sets"
    if not changing:
        return "the ranking is the same under every weight set"
    return f"another ranking under {', '.join(changing)}"


def stability_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row per method, most often first on top; none where there is nothing to rank."""
    methods = document["stability"]["methods"]
    names = sorted(methods, key=lambda name: (-methods[name]["first"], methods[name]["mean_rank"]))
    return [
        [
            name,
            percentage(methods[name]["first"]),
            percentage(methods[name]["first_by_weights"]),
            decimal(methods[name]["mean_rank"], 2),
        ]
        for name in names
    ]


def stability_line(document: Mapping[str, Any]) -> str:
    """What the table of ranks is, or why there is none."""
    ranking = document["stability"]
    if ranking["reason"] is not None:
        return _NOTHING_TO_RANK[ranking["reason"]]
    return (
        f"first: share of {ranking['draws']:,} random weight sets over {len(ranking['scores'])} scores in which the method is "
        f"first, each with the {ranking['questions']:,} shared questions drawn anew; by weights alone: with the questions as they are"
    )


def tuning_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row per weighted score; none where nothing was fitted."""
    fit = document["tuning"] or {"fitted": {}}
    return [[name, percentage(fit["in_use"][name]), percentage(share)] for name, share in fit["fitted"].items()]


def tuning_lines(document: Mapping[str, Any]) -> list[str]:
    """The advice, and what it rests on."""
    fit = document["tuning"]
    if fit is None:
        return ["no ratings: name a recorded score or a file with weights.ratings to have weights fitted"]
    lines = [
        f"{fit['n_rated']:,} rated cases, {fit['n']:,} of them with all weighted scores, {fit['questions']:,} questions"
    ]
    if fit["n"] < fit["n_rated"]:
        without = ", ".join(f"{name} ({count:,})" for name, count in fit["absent"].items())
        lines.append(f"rated, but without {without}: left out")
    if fit["gain"] is not None:
        lines.append(
            f"correlation with the ratings: {fit['correlation']:.3f} with the weights in use, {fit['fitted_correlation']:.3f} with "
            f"weights fitted to other questions ({fit['gain']:+.3f})"
        )
    lines.append(_advice(fit))
    if fit["ask_for"] and not fit["advised"]:
        lines.append(f"{fit['ask_for']:,} more ratings would find most gains of .14")
    return lines


def weighing_markdown(document: Mapping[str, Any]) -> str:
    """The page: the weight sets, the methods under each, the ranks over all weights, and the advice."""
    sets = [code_span(name) for name in document["sets"]]
    lines = [f"# Weights of {code_span(document['run_id'])}", ""]
    lines += markdown_table(["weight", *sets], _named(weight_rows(document)))
    lines += ["", f"## Methods under each set\n\n{WEIGHT_NOTE}.\n"]
    lines += markdown_table(["method", *sets], _named(sensitivity_rows(document)))
    lines += ["", f"{ranking_line(document)}.", "", "## Ranks over all weights", ""]
    if rows := stability_rows(document):
        lines += [*markdown_table(STABILITY_HEADS, _named(rows)), ""]
    lines += [f"{stability_line(document)}.", "", "## Weights from ratings", ""]
    if rows := tuning_rows(document):
        lines += [*markdown_table(TUNING_HEADS, _named(rows)), ""]
    lines += [f"- {line}" for line in tuning_lines(document)]
    return "\n".join(lines) + "\n"


def _advice(fit: Mapping[str, Any]) -> str:
    if fit["advised"]:
        words = ",".join(f"{name}:{share:.2f}" for name, share in fit["fitted"].items())
        return f"advice: take the fitted weights, scoring.weights={{{words}}}"
    return _NOTHING_TO_SAY.get(fit["reason"], "no advice: the gain is within noise, keep the weights in use")


def _cell(figure: Mapping[str, Any]) -> str:
    if figure["mean"] is None:
        return "-"
    return f"{decimal(figure['mean'], 3)} {bracketed(figure['interval'])} ({figure['rank']})"


def _order(methods: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int | None]]:
    return sorted((name, figure["rank"]) for name, figure in methods.items())


def _named(rows: list[list[str]]) -> list[list[str]]:
    return [[code_span(row[0]), *row[1:]] for row in rows]
