"""The history of a name: a row per run and score or failure mode, with the verdict against the previous run and the first of the same series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.comparison.comparison import compare_sides
from ragpipe.comparison.drop_gates import sample_digests
from ragpipe.comparison.headline import headline_scores
from ragpipe.comparison.score_differences import PairedScore, paired_score, score_series
from ragpipe.comparison.settings import CompareSettings, Part
from ragpipe.comparison.side import EqualAnswers, Modes, Pairs, Side, opened_side, paired_cases, question_numbers
from ragpipe.score.iterations import repeats
from ragpipe.score.normalisation import estimate_of, interval_of
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_together
from ragpipe.stats.differences import independent_difference
from ragpipe.stats.intervals import Interval
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.store.run_folder import HistoryRun
from ragpipe.store.run_tables import read_json
from ragpipe.store.table_rows import table_schema

SCORE, FAILURE_MODE = "score", "failure_mode"
"""The kinds of rows."""
_TEXT, _REAL, _WHOLE, _FLAG = pa.string(), pa.float64(), pa.int64(), pa.bool_()
_COLUMNS = (
    ("run_id", _TEXT, "id of the run"),
    ("created_at", _TEXT, "when it was started (ISO 8601, UTC)"),
    ("judge", _TEXT, "name of the judge"),
    ("data", _TEXT, "name of the data set"),
    ("n_cases", _WHOLE, "cases of the run"),
    ("iterations", _WHOLE, "iterations that are scored"),
    ("cost_usd", _REAL, "price of the replies behind the results, in US dollars; null where none is known"),
    ("kind", _TEXT, "score or failure_mode"),
    ("score", _TEXT, "name of the score, or of the failure mode: a value is 1 for a case that has it, 0 for one that has not"),
    ("series", _TEXT, "equal where the score was measured in the same way"),
    ("headline", _FLAG, "whether it is weighted or gated in this run"),
    ("low", _REAL, "lower end of its scale; null without one"),
    ("high", _REAL, "upper end of its scale"),
    ("higher_is_better", _FLAG, "direction of the score"),
    ("n", _WHOLE, "cases with a value"),
    ("mean", _REAL, "mean in the native scale"),
    ("interval_low", _REAL, "its interval, clustered by question"),
    ("interval_high", _REAL, "its interval, clustered by question"),
    ("pass_rate", _REAL, "share of cases that passed; null without a threshold"),
    (
        "noise_floor",
        _REAL,
        "difference of two means that the judge's noise alone makes in 1 of 20 pairs of runs; null for one iteration",
    ),
    ("before_run", _TEXT, "the newest earlier run of the series; null for the first"),
    ("before_n", _WHOLE, "cases that both runs have a value for"),
    ("before_mean", _REAL, "mean of that run over these cases"),
    ("before_difference", _REAL, "this run less that one, over these cases"),
    ("before_low", _REAL, "its interval, paired and clustered by question"),
    ("before_high", _REAL, "its interval, paired and clustered by question"),
    ("before_state", _TEXT, "better, worse, same or inconclusive"),
    ("before_reason", _TEXT, "why it is inconclusive"),
    ("first_run", _TEXT, "the first run of the series; null for the first itself"),
    ("first_difference", _REAL, "this run less the first, over the cases of both"),
    ("first_low", _REAL, "its interval"),
    ("first_high", _REAL, "its interval"),
    ("first_state", _TEXT, "better, worse, same or inconclusive"),
)
HISTORY = table_schema(*_COLUMNS)


Measure = tuple[str, str]
"""The kind of a row and the name of its score or failure mode."""


def history_rows(runs: Iterable[HistoryRun], settings: CompareSettings) -> Iterator[dict[str, Any]]:
    """The rows, run by run, of runs in the order of time. A score or failure mode is compared with the newest earlier run of its
    series, whatever was started between them, and with the first one. The headline scores of a run are decided together (Holm), and
    so are its failure modes.

    Raises DataError for a run that cannot be read.
    """
    newest: dict[tuple[Measure, str], HistoryRun] = {}
    first: dict[tuple[Measure, str], HistoryRun] = {}
    for run in runs:
        with opened_side(run.folder, run.manifest) as side:
            views = _views(side)
            series = {(kind, name): key for kind, view in views.items() for name, key in score_series(view).items()}
            befores = {measure: newest.get((measure, key)) for measure, key in series.items()}
            firsts = {measure: first.get((measure, key)) for measure, key in series.items()}
            against_before = _verdicts(views, befores, settings)
            others = {measure: base for measure, base in firsts.items() if base is not befores[measure]}
            against_first = against_before | _verdicts(views, others, settings)
            headline = headline_scores(side.metrics, side.metrics, list(side.declared))
            run_cells = _run_cells(side)
            for measure, key in series.items():
                kind, name = measure
                cells = _score_cells(side, name) if kind == SCORE else _mode_cells(views[kind], name)
                yield {
                    **run_cells,
                    "kind": kind,
                    "score": name,
                    "series": key,
                    "headline": kind == SCORE and name in headline,
                    **{end: views[kind].declared[name][end] for end in ("low", "high", "higher_is_better")},
                    **cells,
                    "before_run": _id(befores[measure]),
                    **_verdict_cells("before", against_before.get(measure)),
                    "first_run": _id(firsts[measure]),
                    **_verdict_cells("first", against_first.get(measure)),
                }
                newest[measure, key] = run
                first.setdefault((measure, key), run)


def _views(side: Side) -> dict[str, Side]:
    return {SCORE: side, FAILURE_MODE: Modes.of(side)}


def newest_verdict(runs: Sequence[HistoryRun], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """What `task=compare` says of the newest run against the one before it that measured its first headline score in the same way;
    None without one. `rows` are those of `runs`."""
    newest = runs[-1]
    befores = [row["before_run"] for row in rows if row["run_id"] == _id(newest) and row["headline"]]
    if not any(befores):
        return None
    before = next(filter(None, befores))
    earlier = next(run for run in runs[::-1] if _id(run) == before)
    accepted = CompareSettings(accept=list(get_args(Part)))
    with opened_side(earlier.folder, earlier.manifest) as base, opened_side(newest.folder, newest.manifest) as side:
        (comparison,) = compare_sides(base, [side], accepted)
        return str(comparison.document["verdict"]["sentence"])


def _id(run: HistoryRun | None) -> str | None:
    return None if run is None else str(run.manifest["run_id"])


def _run_cells(side: Side) -> dict[str, Any]:
    manifest, metrics = side.manifest, side.metrics
    used = read_json(side.folder.final.cost)["total"]["used"]
    return {
        "run_id": side.run_id,
        "created_at": manifest["created_at"],
        "judge": metrics["judge"]["label"],
        "data": manifest["data"]["name"],
        "n_cases": len(side.rows),
        "iterations": len(metrics["iterations"]),
        "cost_usd": used.get("usd"),
    }


def _score_cells(side: Side, name: str) -> dict[str, Any]:
    score = side.metrics["overall"]["scores"].get(name, {})
    values = repeats(side.tables, name, side.n_rows)
    noise = noise_floor(values.means, values.squares, values.measured.astype("int64"))
    return _figures(int((values.measured > 0).sum()), score, noise.floor)


def _mode_cells(side: Side, name: str) -> dict[str, Any]:
    rate = estimate_of(*_sample(side, name), side.declared[name], side.metrics["scoring"]["level"])
    return _figures(rate.n, {"mean": rate.value, **interval_of("interval", rate)})


def _figures(n: int, score: Mapping[str, Any], floor: float | None = None) -> dict[str, Any]:
    ends = {f"interval_{end}": (score.get("interval") or {}).get(end) for end in ("low", "high")}
    return {"n": n, "mean": score.get("mean"), **ends, "pass_rate": score.get("pass_rate"), "noise_floor": floor}


class _Found(NamedTuple):
    """A score over the shared cases of two runs, and the verdict on it."""

    score: PairedScore
    verdict: DifferenceVerdict


def _verdicts(
    views: Mapping[str, Side], bases: Mapping[Measure, HistoryRun | None], settings: CompareSettings
) -> dict[Measure, _Found]:
    """What is found of each score and failure mode against its base; nothing without a base or a shared case with both values."""
    runs = {base.folder.root: base for base in bases.values() if base is not None}
    found: dict[Measure, _Found] = {}
    for base_run in runs.values():
        with opened_side(base_run.folder, base_run.manifest) as side:
            for kind, base in _views(side).items():
                names = [name for of_kind, name in bases if of_kind == kind and bases[of_kind, name] is base_run]
                pairs, together = paired_cases(base.cases, views[kind].cases), views[kind].headline(base, names)
                scores, verdicts = _decided(base, views[kind], pairs, names, together, settings)
                found |= {(kind, name): _Found(scores[name], verdict) for name, verdict in verdicts.items()}
    return found


def _decided(
    base: Side, side: Side, pairs: Pairs, names: Sequence[str], together: Sequence[str], settings: CompareSettings
) -> tuple[dict[str, PairedScore], dict[str, DifferenceVerdict]]:
    """The scores, and the verdicts of those with a shared case that has both values; some of them are decided together (Holm)."""
    equal = EqualAnswers(base, side, pairs)
    scores = {name: paired_score(name, base, side, pairs, equal) for name in names}
    verdicts = {name: verdict for name, score in scores.items() if (verdict := score.decided(settings))}
    chosen = [name for name in together if name in verdicts]
    decided = decide_together([verdicts[name] for name in chosen], level=settings.level)
    return scores, verdicts | dict(zip(chosen, decided, strict=True))


def _verdict_cells(prefix: str, found: _Found | None) -> dict[str, Any]:
    verdict = found.verdict if found else None
    paired = verdict.paired if verdict else None
    interval = paired.interval if paired else None
    cells: dict[str, Any] = {
        "difference": paired.difference if paired else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "state": verdict.state if verdict else None,
    }
    if prefix == "before":
        cells |= {"n": paired.n if paired else None, "reason": verdict.reason if verdict else None}
        cells["mean"] = float(np.mean(found.score.base[found.score.measured])) if found else None
    return {f"{prefix}_{name}": cell for name, cell in cells.items()}


Floats = NDArray[np.float64]

PAIRED_FROM = 0.5
"""With a smaller share of shared cases the two runs are compared as independent samples."""


@dataclass(frozen=True)
class ScoreDrop:
    """A score that became worse, in its own scale, or a failure mode that became more frequent (`kind`).

    `difference` is this run less the one before, with the interval that excludes 0; `base` and `candidate` are the means, over `n`
    cases of this run. `values` are what its cases show: their changes of pairs, else their values. `lowest` are the places of the
    cases from the worst.
    """

    score: str
    samples: Literal["paired", "independent"]
    difference: float
    interval: Interval
    base: float
    candidate: float
    n: int
    values: Floats
    lowest: Sequence[int]
    kind: str = SCORE


@dataclass(frozen=True)
class RunDrops:
    """What became worse between two runs; `apart` are the headline scores that both have and that were not measured alike."""

    drops: Sequence[ScoreDrop]
    apart: Sequence[str]


def run_drops(base: Side, candidate: Side, settings: CompareSettings) -> RunDrops:
    """The headline scores in which `candidate` is worse than `base`, the previous one, and the failure modes that it has more often.

    A score counts where both runs measured it in the same way; its questions may be others. With at least half of the cases shared
    (same sample, same question and labels) the shared ones are compared as pairs, the headline decided together by Holm's method,
    and so the failure modes. Else all cases of both runs are two independent samples, each interval at 1 - (1 - level) / k for k scores (Bonferroni). In
    both a difference counts that an interval separates from 0, unless a narrower one shows it to be smaller than matters.
    Raises DataError for tables that cannot be read.
    """
    pairs = _shared(base, candidate)
    is_paired = len(pairs) >= PAIRED_FROM * max(len(base.rows), len(candidate.rows))
    drops, apart = list[ScoreDrop](), list[str]()
    before, after = _views(base), _views(candidate)
    for kind in before:
        sides = before[kind], after[kind]
        headline = sides[1].headline(sides[0], [name for name in sides[1].declared if name in sides[0].declared])
        old, new = (score_series(side, of_samples=False) for side in sides)
        alike = [name for name in headline if old[name] == new[name]]
        apart += [name for name in headline if name not in alike and kind == SCORE]
        found = _paired_drops(*sides, alike, pairs, settings) if is_paired else _independent_drops(*sides, alike, settings)
        drops += [replace(drop, kind=kind) for drop in found]
    return RunDrops(drops, apart)


def _shared(base: Side, candidate: Side) -> Pairs:
    """The pairs of equal keys with the same question, references and labels: an id may be used again."""
    pairs = paired_cases(base.cases, candidate.cases)
    before, after = (sample_digests(side.folder.samples) for side in (base, candidate))
    names = pairs.cases["sample_id"].to_pylist()
    places = np.array([i for i, name in enumerate(names) if before.get(name) == after.get(name)], dtype=np.int64)
    rows = pairs.base[places], pairs.candidate[places], pairs.questions[places]
    cases = pairs.cases.take(pa.array(places))
    return replace(pairs, base=rows[0], candidate=rows[1], questions=rows[2], cases=cases)


def _paired_drops(
    base: Side, candidate: Side, names: Sequence[str], pairs: Pairs, settings: CompareSettings
) -> list[ScoreDrop]:
    scores, verdicts = _decided(base, candidate, pairs, names, names, settings)
    drops = []
    for name, verdict in verdicts.items():
        paired, score = verdict.paired, scores[name]
        if verdict.state != "worse" or paired.difference is None or paired.interval is None:
            continue
        changes = np.full(len(candidate.rows), np.nan)
        changes[pairs.candidate] = score.candidate - score.base
        before, after = (float(np.mean(values[score.measured])) for values in (score.base, score.candidate))
        found, n, lowest = paired.difference, paired.n, _worst_first(changes, score.declared)
        drops.append(ScoreDrop(name, "paired", found, paired.interval, before, after, n, changes, lowest))
    return drops


def _independent_drops(base: Side, candidate: Side, names: Sequence[str], settings: CompareSettings) -> list[ScoreDrop]:
    if isinstance(candidate, Modes):  # one that no case has is no test
        names = [name for name in names if any(np.nansum(side.values(name)[0]) for side in (base, candidate))]
    level = 1 - (1 - settings.level) / max(1, len(names))
    drops = []
    for name in names:
        scale = candidate.declared[name]
        samples = _sample(base, name), _sample(candidate, name)
        before, after = (estimate_of(*sample, scale, level) for sample in samples)
        wide = independent_difference(before, after)
        narrow = independent_difference(*(estimate_of(*sample, scale, 2 * settings.level - 1) for sample in samples))
        if wide.value is None or wide.interval is None or narrow.interval is None or wide.interval.too_few:
            continue
        means = float(before.value or 0), float(after.value or 0)
        effect = settings.smallest(name, scale, means)
        is_worse = wide.interval.high < 0 if scale["higher_is_better"] else wide.interval.low > 0
        if is_worse and not (-effect < narrow.interval.low and narrow.interval.high < effect):
            values = candidate.values(name)[0]
            lowest, n = _worst_first(values, scale), after.n
            drops.append(ScoreDrop(name, "independent", wide.value, wide.interval, *means, n, values, lowest))
    return drops


def _sample(side: Side, name: str) -> tuple[Floats, NDArray[np.int64]]:
    values = side.values(name)[0]
    is_measured = np.isfinite(values)
    return values[is_measured], question_numbers(side.cases)[is_measured]


def _worst_first(values: Floats, scale: Mapping[str, Any]) -> list[int]:
    """The places of the cases with a value, the worst first."""
    order = np.argsort(values if scale["higher_is_better"] else -values, kind="stable")
    places: list[int] = order[: int(np.sum(np.isfinite(values)))].tolist()
    return places
