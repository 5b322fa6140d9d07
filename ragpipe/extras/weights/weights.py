"""`task=weights`: what the weights of the overall score decide in a finished run, and weights fitted to people's ratings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.score import ScoreSpec
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, did_you_mean
from ragpipe.core.version import FORMAT
from ragpipe.extras.weights.rank_stability import DRAWS, SEED, Floats, rank_stability
from ragpipe.extras.weights.ratings import CaseScores, fails_a_gate, read_case_scores, weights_from_ratings
from ragpipe.report.console import Console
from ragpipe.report.markdown import render_sections
from ragpipe.report.model import (
    EVERYWHERE,
    PAGES,
    Media,
    Note,
    Report,
    RichText,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.report.styled_text import bracketed, decimal, percentage
from ragpipe.report.terminal import print_report
from ragpipe.runs.finished_run import FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.manifest import scored_iterations, seal_added
from ragpipe.score.normalisation import OVERALL, TOLERANCE, Weight, interval_of
from ragpipe.stats.agreement import pearson
from ragpipe.stats.intervals import estimate_mean, in_all
from ragpipe.store.files import json_unless_same, write_unless_same
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder

IN_USE = "in_use"
"""The name of the weights that the run was scored with."""

WeightSet = Annotated[dict[str, Weight], Field(min_length=1)]


class WeighingSettings(Settings):
    """Named weight sets beside the run's own, and ratings by people.

    `ratings` is the name of a score of the run that people gave: a recorded one.
    """

    sets: dict[str, WeightSet] = Field(
        default_factory=dict, description="Weights by score name, by a name of your own. They are divided by their sum."
    )
    ratings: str | None = Field(
        default=None, min_length=1, description="Ratings by people: a recorded score of the run. null: no weights are fitted."
    )

    @field_validator("sets")
    @classmethod
    def _some_weight(cls, sets: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for name, weights in sets.items():
            if name == IN_USE:
                raise ValueError(f"a name of its own: {IN_USE} are the weights of the run")
            if not sum(weights.values()) > 0:
                raise ValueError(f"at least one score with a weight over 0 in {name!r}")
        return sets


SECTION = "weights"
_TITLE = "task=weights cannot weigh this run; nothing was written"


class Keys(FinishedRunKeys):
    weights: WeighingSettings = Field(description="Weight sets and ratings.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[WeighingSettings]:
    """The run, and the weight sets over scores that it has. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    task = open_finished_run(plain, origins, WeighingSettings, task="weights", title=_TITLE, section=SECTION)
    if problems := [*_unknown_scores(task, origins), *_unusable_ratings(task, origins)]:
        raise ConfigError(_TITLE, problems)
    return task


def _unknown_scores(task: FinishedRunTask[WeighingSettings], origins: ConfigOrigins) -> Iterator[Problem]:
    """A problem for each score of a weight set that the run does not have, or that may have no weight."""
    known = _weighable(task)
    for name, weights in task.settings.sets.items():
        for score in weights:
            if score not in known:
                key = f"weights.sets.{name}.{score}"
                expected = f"a score of the run that may have a weight: {', '.join(known)}"
                yield Problem(origins.location(key), key, repr(score), expected, did_you_mean(score, known))


def _unusable_ratings(task: FinishedRunTask[WeighingSettings], origins: ConfigOrigins) -> Iterator[Problem]:
    """The problem of ratings that are no score of the run, or that weigh in the overall score themselves."""
    name, known, place = task.settings.ratings, list(_specs(task)), origins.location("weights.ratings")
    if name in _in_use(task):
        fix = f"task=rescore run=... scoring.weights.{name}=0 first"
        yield Problem(place, "weights.ratings", repr(name), "a score that has no weight in the overall score", fix)
    elif name is not None and name not in known:
        expected = f"a score of the run with a scale: {', '.join(known)}"
        yield Problem(place, "weights.ratings", repr(name), expected, did_you_mean(name, known))


def run(task: FinishedRunTask[WeighingSettings], console: Console) -> int:
    """Weigh the run's cases, print the tables, and write and seal `weights.json` and `weights.md`. Returns 0.

    Asks no judge. Raises DataError for a run without scored cases, without a weighted score, or with ratings that do not fit.
    """
    folder = task.finished.folder
    with FolderLock(folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        document = weighing(task)
        shown = sections(document)
        written = [folder.root / "weights.json", folder.root / "weights.md"]
        json_unless_same(written[0], document)
        write_unless_same(written[1], render_sections(f"Weights of `{document['run_id']}`", shown))
        seal_added(folder, written)
    print_report(Report("", "", "", None, (), tuple(shown)), console)
    console.say(f"weights: {written[1]}")
    return 0


def weighing(task: FinishedRunTask[WeighingSettings]) -> dict[str, Any]:
    """What `weights.json` says: the methods under each weight set, their ranks over all weights, the fitted weights."""
    finished, settings = task.finished, task.settings
    in_use = _in_use(task)
    numbers = scored_iterations(finished.folder)
    if not numbers or not in_use:
        raise _nothing_to_weigh(finished.folder, is_scored=bool(numbers))
    sets = {IN_USE: in_use, **settings.sets}
    rated = [settings.ratings] if settings.ratings else []
    read = list(dict.fromkeys([*(name for weights in sets.values() for name in weights), *rated]))
    records = [finished.folder.iteration(number).records for number in numbers]
    cases, scoring = read_case_scores(records, read), finished.config.scoring
    level, threshold = scoring.level, scoring.threshold(OVERALL)
    ratings = cases.values[settings.ratings] if settings.ratings else None
    blocked = fails_a_gate(records, [*scoring.case_gates()])
    fitted = None if ratings is None else weights_from_ratings(cases, ratings, in_use, level=level)
    under = methods_by_weight_set(cases, sets, level)
    for name, weights in sets.items():
        under[name] |= _decided(cases.overall(weights), threshold, blocked, ratings)
    return {
        "format": FORMAT,
        "run_id": finished.run_id,
        "iterations": numbers,
        "level": level,
        "sets": under,
        "stability": ranks_over_weights(cases, list(in_use)),
        "ratings": settings.ratings,
        "tuning": fitted,
    }


def _decided(
    overall: Floats, threshold: float | None, blocked: NDArray[np.bool_], ratings: Floats | None
) -> dict[str, float | None]:
    """Of the cases with an overall score: the share that passes and misses no gate, and Pearson's with the ratings."""
    is_there = ~np.isnan(overall)
    passed = None
    if threshold is not None and is_there.any():
        passed = float(np.mean((overall >= threshold - TOLERANCE)[is_there] & ~blocked[is_there]))
    rated = is_there if ratings is None else is_there & ~np.isnan(ratings)
    return {"pass_rate": passed, "correlation": None if ratings is None else pearson(overall[rated], ratings[rated]).value}


def _in_use(task: FinishedRunTask[WeighingSettings]) -> dict[str, float]:
    """The weights with which the run was scored, of the scores that it has."""
    shares, known = task.finished.config.scoring.weight_shares(), _weighable(task)
    return {name: weight for name, weight in shares.items() if name in known and weight > 0}


def _specs(task: FinishedRunTask[WeighingSettings]) -> dict[str, ScoreSpec]:
    specs = [spec for metric in task.finished.config.metrics.values() for spec in metric.scores()]
    return {spec.name: spec for spec in specs if spec.low is not None}


def _weighable(task: FinishedRunTask[WeighingSettings]) -> list[str]:
    """The scores that may have a weight: a diagnostic score has none."""
    return [name for name, spec in _specs(task).items() if not spec.diagnostic]


def _nothing_to_weigh(folder: RunFolder, *, is_scored: bool) -> DataError:
    actual = "no score with a weight" if is_scored else "no iteration that is scored"
    expected = "scores that scoring.weights weighs" if is_scored else "a finished run"
    fix = "task=rescore run=... scoring.weights.NAME=1" if is_scored else "finish the run: start its command again"
    return DataError(_TITLE, [Problem(str(folder.root), "run", actual, expected, fix)])


_WEIGHT_NOTE = "overall score of each method on the questions that all of them share, with its 95% interval and (rank)"
_DECIDED = ("weight set", "passed, with critical gates", "correlation with ratings")
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


def sections(document: Mapping[str, Any]) -> list[Section]:
    """What is printed and stands in `weights.md`: the weight sets, the methods under each, the ranks over all weights, and the advice."""
    sets, methods = document["sets"], document["stability"]["methods"]
    in_use, fit = sets[IN_USE]["methods"], document["tuning"]
    best = sorted(in_use, key=lambda name: in_use[name]["rank"] or len(in_use) + 1)
    scores = dict.fromkeys(name for under in sets.values() for name in under["weights"])
    weights = [(name, *(percentage(under["weights"].get(name)) for under in sets.values())) for name in scores]
    under_each = [(name, *(_cell(under["methods"][name]) for under in sets.values())) for name in best]
    ranks = [
        (name, percentage(its["first"]), percentage(its["first_by_weights"]), decimal(its["mean_rank"], 2))
        for name, its in sorted(methods.items(), key=lambda item: (-item[1]["first"], item[1]["mean_rank"]))
    ]
    shares = fit["fitted"].items() if fit else ()
    fitted = [(name, percentage(fit["in_use"][name]), percentage(share)) for name, share in shares]
    names = [Verbatim(name) for name in sets]
    decided = [
        (name, percentage(under["pass_rate"]), "-" if (r := under["correlation"]) is None else decimal(r, 3))
        for name, under in sets.items()
    ]
    notes = (Note(_WEIGHT_NOTE), Note(ranking_line(document)))
    by_set = (_table(("method", *names), under_each), *notes, _table(_DECIDED, decided))
    ranked = _tables(("method", "first", "by weights alone", "mean rank"), ranks)
    in_both = _tables(("score", "in use", "fitted"), fitted)
    return [
        Section("sets", "Weight sets", (_table(("weight", *names), weights, shown_in=PAGES),), shown_in=PAGES),
        Section("methods", "Methods under each weight set", by_set),
        Section("ranks", "Ranks over all weights", (*ranked, Note(stability_line(document)))),
        Section("ratings", "Weights from ratings", (*in_both, *map(Note, tuning_lines(document)))),
    ]


def _table(heads: Sequence[RichText], rows: Sequence[Sequence[str]], *, shown_in: Media = EVERYWHERE) -> Table:
    columns = tuple(TableColumn(head, is_text=not place) for place, head in enumerate(heads))
    return Table(columns, tuple(TableRow((Verbatim(row[0]), *row[1:])) for row in rows), shown_in=shown_in)


def _tables(heads: Sequence[RichText], rows: Sequence[Sequence[str]]) -> tuple[Table, ...]:
    return (_table(heads, rows),) if rows else ()


def ranking_line(document: Mapping[str, Any]) -> str:
    """Whether a weight set changes the ranking, in one sentence."""
    methods = {name: under["methods"].items() for name, under in document["sets"].items()}
    orders = {name: {method: figure["rank"] for method, figure in figures} for name, figures in methods.items()}
    changing = [name for name, order in orders.items() if order != orders[IN_USE]]
    if len(document["sets"]) < 2:
        return "no weight set beside the one in use: name some with weights.sets"
    if not changing:
        return "the ranking is the same under every weight set"
    return f"another ranking under {', '.join(changing)}"


def stability_line(document: Mapping[str, Any]) -> str:
    """What the table of ranks is, or why there is none."""
    ranking = document["stability"]
    if ranking["reason"] is not None:
        return _NOTHING_TO_RANK[ranking["reason"]]
    return (
        f"first: share of {ranking['draws']:,} random weight sets over {len(ranking['scores'])} scores in which the method is "
        f"first, each with the {ranking['questions']:,} shared questions drawn anew; by weights alone: with the questions as they are"
    )


def tuning_lines(document: Mapping[str, Any]) -> list[str]:
    """The advice, and what it rests on."""
    fit = document["tuning"]
    if fit is None:
        return ["no ratings: name a recorded score with weights.ratings to have weights fitted"]
    lines = [f"{fit['n_rated']:,} rated cases, {fit['n']:,} of them with all weighted scores, {fit['questions']:,} questions"]
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


def _advice(fit: Mapping[str, Any]) -> str:
    if fit["advised"]:
        words = ",".join(f"{name}:{share:.2f}" for name, share in fit["fitted"].items())
        return f"advice: take the fitted weights, scoring.weights={{{words}}}"
    return _NOTHING_TO_SAY.get(fit["reason"], "no advice: the gain is within noise, keep the weights in use")


def _cell(figure: Mapping[str, Any]) -> str:
    if figure["mean"] is None:
        return "-"
    return f"{decimal(figure['mean'], 3)} {bracketed(figure['interval'])} ({figure['rank']})"


_HAIR = 1e-12  # means that are equal but for rounding share a rank


def methods_by_weight_set(cases: CaseScores, sets: Mapping[str, Mapping[str, float]], level: float) -> dict[str, Any]:
    """For each weight set: the weights as shares, the questions that all methods share, and for each method `n`, `mean`,
    `interval` and `rank` (1 is best; equal means share one).

    Only questions on which every method has an overall score count: else a method would be ranked by what it was asked.
    """
    return {name: _under(cases, weights, level) for name, weights in sets.items()}


def _under(cases: CaseScores, weights: Mapping[str, float], level: float) -> dict[str, Any]:
    total = sum(weights.values())
    overall = cases.overall(weights)
    is_there = ~np.isnan(overall)
    by_method = [is_there & (cases.methods == number) for number in range(len(cases.method_names))]
    shared = in_all([cases.questions[rows] for rows in by_method])
    figures: dict[str, dict[str, Any]] = {}
    for name, rows in zip(cases.method_names, by_method, strict=True):
        rows = rows & np.isin(cases.questions, shared)
        estimate = estimate_mean(overall[rows], cases.questions[rows], low=0.0, high=1.0, level=level)
        figures[name] = {"n": estimate.n, "mean": estimate.value, **interval_of("interval", estimate)}
    means = [figure["mean"] for figure in figures.values() if figure["mean"] is not None]
    for figure in figures.values():
        mean = figure["mean"]
        figure["rank"] = None if mean is None else 1 + sum(other > mean + _HAIR for other in means)
    shares = {name: weight / total for name, weight in weights.items() if weight > 0}
    return {"weights": shares, "questions": len(shared), "methods": figures}


def ranks_over_weights(cases: CaseScores, names: Sequence[str]) -> dict[str, Any]:
    """The shares of weight sets, each over questions drawn anew, in which a method is first, second ...; `reason` where
    there is nothing to rank: `one_method`, `one_score` or `no_shared_question`."""
    about: dict[str, Any] = {"scores": list(names), "draws": DRAWS, "seed": SEED, "questions": 0, "methods": {}}
    scores = cases.matrix(names)
    is_there = ~np.all(np.isnan(scores), axis=1)
    shared = in_all([cases.questions[is_there & (cases.methods == number)] for number in range(len(cases.method_names))])
    lacks = {"one_method": len(cases.method_names) < 2, "one_score": len(names) < 2, "no_shared_question": not len(shared)}
    if reason := next((reason for reason, holds in lacks.items() if holds), None):
        return {**about, "reason": reason}
    ranking = rank_stability(scores, cases.methods, cases.questions)
    methods = {
        cases.method_names[number]: {
            "first": ranks[0],
            "first_by_weights": by_weights,
            "ranks": list(ranks),
            "mean_rank": sum(place * share for place, share in enumerate(ranks, 1)),
        }
        for number, ranks, by_weights in zip(ranking.methods, ranking.ranks, ranking.first_by_weights, strict=True)
    }
    return {**about, "questions": ranking.questions, "methods": methods, "reason": None}
