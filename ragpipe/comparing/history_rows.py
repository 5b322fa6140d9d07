"""The history of a name: a row per run and score, with the verdict against the run before and the first of the same series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ragpipe.comparing.equal_answers import EqualAnswers
from ragpipe.comparing.headline import headline_scores
from ragpipe.comparing.pairing import paired_cases
from ragpipe.comparing.score_differences import paired_score, score_series
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.side import Side, opened_side
from ragpipe.scoring.iterations.per_case_repeats import repeats
from ragpipe.stats.difference_verdict import DifferenceVerdict, decide_together
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

_TEXT, _REAL, _WHOLE, _FLAG = pa.string(), pa.float64(), pa.int64(), pa.bool_()
HISTORY = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text})
        for name, kind, text in (
            ("run_id", _TEXT, "id of the run"),
            ("created_at", _TEXT, "when it was started (ISO 8601, UTC)"),
            ("source_run", _TEXT, "the run whose frozen cases these are; null for a run of a data set"),
            ("judge", _TEXT, "name of the judge"),
            ("data", _TEXT, "name of the data set"),
            ("n_cases", _WHOLE, "cases of the run"),
            ("iterations", _WHOLE, "iterations that are scored"),
            ("cost_usd", _REAL, "price of the replies behind the results, in US dollars; null where none is known"),
            ("score", _TEXT, "name of the score"),
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
    ]
)


class HistoryRun(NamedTuple):
    """A scored run of a history."""

    folder: RunFolder
    manifest: Mapping[str, Any]


def history_rows(runs: Iterable[HistoryRun], settings: CompareSettings) -> Iterator[dict[str, Any]]:
    """The rows, run by run, of runs in the order of time. A score is compared with the newest earlier run of its series, whatever
    was started between them, and with the first one. The headline scores of a run are decided together (Holm).

    Raises DataError for a run that cannot be read.
    """
    newest: dict[tuple[str, str], HistoryRun] = {}
    first: dict[tuple[str, str], HistoryRun] = {}
    for run in runs:
        with opened_side(run.folder, run.manifest) as side:
            series = score_series(side)
            befores = {name: newest.get((name, key)) for name, key in series.items()}
            firsts = {name: first.get((name, key)) for name, key in series.items()}
            against_before = _verdicts(side, befores, settings)
            others = {name: base for name, base in firsts.items() if base is not befores[name]}
            against_first = against_before | _verdicts(side, others, settings)
            headline = headline_scores(side.metrics, side.metrics, list(series))
            for name, key in series.items():
                yield {
                    **_run_cells(side),
                    **_score_cells(side, name, key, is_headline=name in headline),
                    "before_run": _id(befores[name]),
                    **_verdict_cells("before", against_before.get(name)),
                    "first_run": _id(firsts[name]),
                    **_verdict_cells("first", against_first.get(name)),
                }
                newest[name, key] = run
                first.setdefault((name, key), run)


def _id(run: HistoryRun | None) -> str | None:
    return None if run is None else str(run.manifest["run_id"])


def _run_cells(side: Side) -> dict[str, Any]:
    manifest, metrics = side.manifest, side.metrics
    used = read_json(side.folder.final.cost)["total"]["used"]
    return {
        "run_id": side.run_id,
        "created_at": manifest["created_at"],
        "source_run": manifest.get("source_run"),
        "judge": metrics["judge"]["label"],
        "data": manifest["data"]["name"],
        "n_cases": len(side.rows),
        "iterations": len(metrics["iterations"]),
        "cost_usd": used.get("usd"),
    }


def _score_cells(side: Side, name: str, series: str, *, is_headline: bool) -> dict[str, Any]:
    score, declared = side.metrics["overall"]["scores"].get(name, {}), side.declared[name]
    interval = score.get("interval") or {}
    values = repeats(side.tables, name, side.n_rows)
    noise = noise_floor(values.means, values.squares, values.measured.astype("int64"))
    return {
        "score": name,
        "series": series,
        "headline": is_headline,
        **{key: declared[key] for key in ("low", "high", "higher_is_better")},
        "n": int((values.measured > 0).sum()),
        "mean": score.get("mean"),
        "interval_low": interval.get("low"),
        "interval_high": interval.get("high"),
        "pass_rate": score.get("pass_rate"),
        "noise_floor": noise.floor,
    }


def _verdicts(
    side: Side, bases: Mapping[str, HistoryRun | None], settings: CompareSettings
) -> dict[str, DifferenceVerdict]:
    """The verdict on each score against its base; none where there is no base or no shared case with both values."""
    runs = {base.folder.root: base for base in bases.values() if base is not None}
    verdicts: dict[str, DifferenceVerdict] = {}
    for base_run in runs.values():
        names = [name for name, base in bases.items() if base is base_run]
        with opened_side(base_run.folder, base_run.manifest) as base:
            verdicts |= _against(base, side, names, settings)
    return verdicts


def _against(base: Side, side: Side, names: list[str], settings: CompareSettings) -> dict[str, DifferenceVerdict]:
    pairs = paired_cases(base.cases, side.cases)
    equal = EqualAnswers(base, side, pairs)
    verdicts: dict[str, DifferenceVerdict] = {}
    for name in names:
        if verdict := paired_score(name, base, side, pairs, equal).decided(settings):
            verdicts[name] = verdict
    together = [name for name in headline_scores(base.metrics, side.metrics, names) if name in verdicts]
    decided = decide_together([verdicts[name] for name in together], level=settings.level)
    return verdicts | dict(zip(together, decided, strict=True))


def _verdict_cells(prefix: str, verdict: DifferenceVerdict | None) -> dict[str, Any]:
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
    return {f"{prefix}_{name}": cell for name, cell in cells.items()}
