"""`final/metrics.json`: every score over all iterations of a run.

An iteration is a repetition of the judging on the same outputs, so what differs between iterations is the judge's noise:
the spread of the iterations' means, the judge's part of the variance, and how often a verdict flips.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.score.accumulators import crossed
from ragpipe.score.aggregate import LOST, asked, by_label, coverage, shared_score
from ragpipe.score.chunk_support import with_shares
from ragpipe.score.cost import judge_rates
from ragpipe.score.diagnosis import EXAMPLES
from ragpipe.score.dimensions import LISTS, META, Fields
from ragpipe.score.normalisation import estimate_of, interval_of
from ragpipe.score.records import verdict_column
from ragpipe.score.settings import ScoringSettings
from ragpipe.score.value_distributions import added, merge_extremes
from ragpipe.stats.intervals import estimate_rate
from ragpipe.stats.noise_floor import flip_rate, noise_floor, second_judging_from
from ragpipe.store.run_tables import numbers_of, open_parquet_file, open_table, read_columns, reading_table

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Counts = NDArray[np.int16]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Repeats:
    """A number per case in data order, 22 bytes per case however many iterations there are.

    `means` is the case's mean value (NaN where no iteration has one), `squares` the sum of squared deviations from it,
    `measured` the iterations with a value, `judged` those with a verdict, `passed` those that passed.
    """

    means: Floats
    squares: Floats
    measured: Counts
    judged: Counts
    passed: Counts

    @property
    def rates(self) -> Floats:
        """Of each case the share of its verdicts that are passes; NaN without a verdict."""
        return np.where(self.judged > 0, self.passed / np.maximum(self.judged, 1), np.nan)

    @property
    def flips(self) -> NDArray[np.bool_]:
        """The cases whose verdict is not the same in all iterations."""
        return (self.passed > 0) & (self.passed < self.judged)


@contextmanager
def open_records(records: Sequence[Path], names: Collection[str]) -> Iterator[dict[Path, pq.ParquetFile]]:
    """The tables of the iterations, each opened once: their footers are large. Raises DataError for one without the columns
    of the scores `names`."""
    columns = [column for name in names for column in (name, verdict_column(name))]
    with ExitStack() as stack:
        yield {path: stack.enter_context(open_parquet_file(path, columns)) for path in records}


def repeats(tables: Mapping[Path, pq.ParquetFile], name: str, n: int) -> Repeats:
    """The score `name` of `n` cases over these iterations, given as open tables. Raises DataError for a table with another
    number of cases."""
    means, squares = np.zeros(n), np.zeros(n)
    measured, judged, passed = (np.zeros(n, dtype=np.int16) for _ in range(3))
    for path, table in tables.items():
        with reading_table(path):
            values, verdicts = numbers_of(table, name), numbers_of(table, verdict_column(name))
        if len(values) != n:
            raise _other_cases(path, f"{len(values):,} cases", f"{n:,} as in {next(iter(tables))}")
        measured_here = ~np.isnan(values)
        measured[measured_here] += 1
        # Welford's update: a value that never changes leaves exactly 0 squares (Knuth, TAOCP 2, 4.2.2)
        delta = values[measured_here] - means[measured_here]
        means[measured_here] += delta / measured[measured_here]
        squares[measured_here] += delta * (values[measured_here] - means[measured_here])
        judged[~np.isnan(verdicts)] += 1
        passed[verdicts == 1] += 1
    means[measured == 0] = np.nan
    return Repeats(means, squares, measured, judged, passed)


@dataclass(frozen=True)
class Cases:
    """The cases of a run, in data order. `samples` numbers the question of each."""

    names: pa.Table
    samples: Whole

    def __len__(self) -> int:
        return int(self.names.num_rows)

    def key(self, place: int) -> dict[str, Any]:
        """The key of a case: `sample_id`, `method` and `repeat`."""
        return {name: self.names[name][place].as_py() for name in OUTPUT_KEY}


def cases_of(records: Sequence[Path]) -> Cases:
    """The cases of the first table. Raises DataError when another one holds other cases, or the same in another order."""
    first, *others = (read_columns(path, OUTPUT_KEY).combine_chunks() for path in records)
    for path, names in zip(records[1:], others, strict=True):
        if not names.equals(first):
            raise _other_cases(path, "other cases, or another order", f"those of {records[0]}")
    codes = first["sample_id"].combine_chunks().dictionary_encode().indices
    return Cases(first, codes.to_numpy(zero_copy_only=False).astype(np.int64))


def members(records: Path, by: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Whole]]:
    """Numbers of the cases in each group of each field of `by`, as `metrics.json` names them.

    A field that `records.parquet` does not hold is left out.
    """
    groups: dict[str, dict[str, Whole]] = {}
    parts = {part for field in by for part in field.split("*")}
    names = {"sample_id", *("meta" if part.startswith(META) else LISTS.get(part, part) for part in parts)}
    with open_table(records) as file:
        table = file.read(columns=sorted(names & set(file.schema_arrow.names)))
    fields = Fields({name: table[name].combine_chunks() for name in table.column_names})
    for field in by:
        try:
            cases, codes, labels = crossed(*(fields.of(part) for part in field.split("*")))
        except KeyError:
            continue
        groups[field] = {labels[code]: places for code, places in by_label(cases, codes)}
    return groups


def chosen_cases(records: Path, where: Mapping[str, Sequence[str]], n: int) -> Flags:
    """Which of the `n` cases of a table the `where` of a gate chooses."""
    chosen = np.ones(n, dtype=np.bool_)
    groups = members(records, {field: {} for field in where})
    for field, labels in where.items():
        places = [groups.get(field, {}).get(label, np.empty(0, dtype=np.int64)) for label in labels]
        chosen &= np.isin(np.arange(n), np.concatenate(places))
    return chosen


def _other_cases(path: Path, problem: str, expected: str) -> DataError:
    fix = "start the same evaluation again: an iteration that is not scored is scored anew"
    found = Problem(str(path), "cases", problem, expected, fix)
    return DataError("the iterations of a run do not fit together", [found])


_Summary = tuple[dict[str, Any], Whole | None]
"""`overall` or a group, with the numbers of its cases; None where the tables do not say which they are."""

FLIPS_SHOWN = 1000  # flipping cases listed by name; all are counted
_INTERVALS = ("interval", "pass_interval")
_UNKNOWN = {key: value for name in _INTERVALS for key, value in ((name, None), (f"{name}_reason", "not_in_records"))}
_NONE: Mapping[str, Any] = {}
_COUNTS = ("n_ok", "n_skipped", *LOST, "n_missing", "n_judged", "n_unjudged", "n_silent")


def final_metrics(
    per_iteration: Sequence[Mapping[str, Any]], records: Sequence[Path], settings: ScoringSettings
) -> dict[str, Any]:
    """What `metrics.json` says of one iteration, over all of them, with spread and flips beside every mean of several.

    `per_iteration` are their `metrics.json`, `records` their `records.parquet`, in the same order. Plain JSON without
    NaN. Raises DataError when the tables do not hold the same cases.
    """
    first = per_iteration[0]
    cases = cases_of(records)
    groups = members(records[0], first["by"])
    overall = _group([metrics["overall"] for metrics in per_iteration])
    absent: dict[str, Any] = {"scores": {}}  # of an iteration that does not show a group
    by = {
        field: {name: _group([m["by"].get(field, {}).get(name, absent) for m in per_iteration]) for name in names}
        for field, names in first["by"].items()
    }
    everything = np.arange(len(cases), dtype=np.int64)
    summaries: list[_Summary] = [(overall, everything)]
    summaries += [(group, groups.get(field, {}).get(name)) for field in by for name, group in by[field].items()]
    methods, flips = groups.get("method", {}), _Flips(cases)
    with open_records(records, first["declared"]) as tables:
        if len(per_iteration) == 1:
            shared = _take_over(first, summaries)
        else:
            shared = _combine_scores(first["declared"], tables, summaries, methods, flips, settings.level)
    return {
        "n_cases": first["n_cases"],
        "n_samples": first["n_samples"],
        "n_failed_judgements": sum(metrics["n_failed_judgements"] for metrics in per_iteration),
        "declared": first["declared"],
        "composite_parts": first["composite_parts"],
        "overall": overall,
        "by": by,
        **({"shared": shared} if len(methods) > 1 else {}),
        "grades": added([metrics["grades"] for metrics in per_iteration]),
        "extremes": merge_extremes([metrics["extremes"] for metrics in per_iteration], first["declared"]),
        **findings_document(per_iteration),
        "flips": flips.listed(),
        "warnings": _warnings(per_iteration),
    }


def _take_over(metrics: Mapping[str, Any], summaries: Sequence[_Summary]) -> Mapping[str, Any]:
    """Put the scores of the only iteration into all summaries, and return its `shared`."""
    for summary, places in summaries:
        for name, (score,) in summary["scores"].items():
            summary["scores"][name] = _score([score], _UNKNOWN if places is None else score)
    shared: Mapping[str, Any] = metrics.get("shared", {})
    return shared


def _combine_scores(
    declared: Mapping[str, Mapping[str, Any]],
    tables: Mapping[Path, pq.ParquetFile],
    summaries: Sequence[_Summary],
    methods: Mapping[str, Whole],
    flips: _Flips,
    level: float,
) -> dict[str, Any]:
    """Put every score over all iterations into every summary that has it, and collect the flips. Returns `shared`."""
    samples, shared = flips.cases.samples, dict[str, Any]()
    for name, scale in declared.items():
        repeated = repeats(tables, name, len(flips.cases))
        flips.add(name, repeated)
        if comparison := shared_score(methods, samples, repeated.means, repeated.rates, scale, level):
            shared[name] = comparison
        for summary, places in summaries:
            if name in summary["scores"]:
                scores = summary["scores"][name]
                intervals = _UNKNOWN if places is None else _intervals(repeated, places, samples, scale, level)
                differences = _differences(scores, repeated, places)
                summary["scores"][name] = _score(scores, intervals, differences)
    return {**asked(methods, samples), "scores": shared}


def _group(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group with, for each score, what the iterations say of it, in their order; nothing where it applies to no case."""
    first = per_iteration[0]
    names = dict.fromkeys(name for frame in per_iteration for name in frame["scores"])
    scores = {name: [frame["scores"].get(name, {}) for frame in per_iteration] for name in names}
    sizes = {"n_cases": first["n_cases"], "n_samples": first["n_samples"]}
    return {**sizes, "scores": scores, **group_findings(per_iteration)}


def _score(
    scores: Sequence[Mapping[str, Any]], intervals: Mapping[str, Any], differences: Mapping[str, Any] = _NONE
) -> dict[str, Any]:
    """One score of one group, with the keys of an iteration's and, of several iterations, how they differ."""
    counts = {name: sum(score.get(name, 0) for score in scores) for name in _COUNTS}
    more = {
        **{name: count for name, count in counts.items() if name != "n_ok"},
        "skipped": _counted([score.get("skipped", {}) for score in scores]),
        "errors": _counted([score.get("errors", {}) for score in scores]),
    }
    rate = _mean([score.get("pass_rate") for score in scores])
    of_mean, of_rate = ({key: intervals[key] for key in (name, f"{name}_reason") if key in intervals} for name in _INTERVALS)
    return {
        "n_ok": counts["n_ok"],
        "mean": _mean([score.get("mean") for score in scores]),
        **of_mean,
        **({} if rate is None else {"pass_rate": rate, **of_rate}),
        "coverage": coverage(counts),
        **{name: count for name, count in more.items() if count},
        **differences,
    }


def _intervals(repeated: Repeats, places: Whole, samples: Whole, scale: Mapping[str, Any], level: float) -> dict[str, Any]:
    """Of the mean and of the pass rate over the cases' own means."""
    measured = places[repeated.measured[places] > 0]
    voted = places[repeated.judged[places] > 0]
    means, shares = repeated.means[measured], repeated.passed[voted] / repeated.judged[voted]
    mean = estimate_of(means, samples[measured], scale, level)
    rate = estimate_rate(shares, samples[voted], level=level)
    return {**interval_of("interval", mean), **interval_of("pass_interval", rate)}


def _differences(scores: Sequence[Mapping[str, Any]], repeated: Repeats, places: Whole | None) -> dict[str, Any]:
    """How far the iterations lie apart; what cannot be said is null, with the reason. No flips where nothing is judged."""
    reason = "not_in_records"
    unknown = {"noise": None, "noise_reason": reason}
    noise = unknown if places is None else _noise(repeated, places)
    values = {**_spread("spread", "means", [score.get("mean") for score in scores]), **noise}
    rates = [score.get("pass_rate") for score in scores]
    if all(rate is None for rate in rates):
        return values
    flips = {"flips": None, "flips_reason": reason} if places is None else _flip_rate(repeated, places)
    return {**values, **_spread("pass_spread", "pass_rates", rates), **flips}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _centre(known) if known else None


def _centre(values: Sequence[float]) -> float:
    """The mean; never outside the values, so that equal ones have exactly theirs."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _spread(name: str, listed: str, values: Sequence[float | None]) -> dict[str, Any]:
    """How far the iterations lie apart: standard deviation (n - 1), least and greatest; null with the reason."""
    known = [value for value in values if value is not None]
    spread: dict[str, Any] = {listed: list(values), name: None}
    if len(known) < 2:
        return {**spread, f"{name}_reason": "values_in_fewer_than_two_iterations"}
    centre = _centre(known)
    squares = math.fsum((value - centre) ** 2 for value in known)
    return {**spread, name: {"sd": math.sqrt(squares / (len(known) - 1)), "min": min(known), "max": max(known)}}


def _flip_rate(repeated: Repeats, places: Whole) -> dict[str, Any]:
    """How often two judgings of a case differ in the verdict, over the cases with two verdicts or more."""
    passed, judged = repeated.passed[places].astype(np.int64), repeated.judged[places].astype(np.int64)
    rate = flip_rate(passed, judged)
    if rate is None:
        return {"flips": None, "flips_reason": "no_case_with_two_verdicts"}
    return {"flips": {"rate": rate, "n_cases": int(np.count_nonzero(judged > 1))}}


def _noise(repeated: Repeats, places: Whole) -> dict[str, Any]:
    """The judge's part of the variance and the cases' own, and what follows for the mean."""
    noise = noise_floor(repeated.means[places], repeated.squares[places], repeated.measured[places].astype(np.int64))
    if noise.judge_variance is None:
        return {"noise": None, "noise_reason": noise.reason}
    return {
        "noise": {
            "n_cases": noise.n,
            "repeats": noise.repeats,
            "judge_variance": noise.judge_variance,
            "item_variance": noise.item_variance,
            "judge_share": noise.judge_share,
            "floor": noise.floor,
            "second_judging_from": second_judging_from(noise),
        }
    }


def _counted(per_iteration: Sequence[Mapping[str, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for reasons in per_iteration:
        counts.update(reasons)
    return dict(counts.most_common())


class _Flips:
    """The flipping cases by name, the first ones in data order."""

    def __init__(self, cases: Cases):
        self.cases, self._count, self._scores = cases, 0, 0
        self._found: list[tuple[int, int, str, int, int]] = []

    def add(self, name: str, repeated: Repeats) -> None:
        places = np.flatnonzero(repeated.flips)
        self._count += len(places)
        for place in places[:FLIPS_SHOWN].tolist():
            self._found.append((place, self._scores, name, int(repeated.passed[place]), int(repeated.judged[place])))
        self._found = sorted(self._found)[:FLIPS_SHOWN]
        self._scores += 1

    def listed(self) -> dict[str, Any]:
        entries = [
            {**self.cases.key(place), "score": name, "passed": passed, "of": of} for place, _, name, passed, of in self._found
        ]
        return {"n": self._count, "n_listed": len(entries), "cases": entries}


def _warnings(per_iteration: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What every iteration warns of once, the rest with its iteration."""
    everywhere = [w for w in per_iteration[0]["warnings"] if all(w in metrics["warnings"] for metrics in per_iteration)]
    of_some = [
        {**warning, "text": f"iteration {metrics['iteration']}: {warning['text']}"}
        for metrics in per_iteration
        for warning in metrics["warnings"]
        if warning not in everywhere
    ]
    return everywhere + of_some


_COUNTED = ("n_with_failure_mode", "n_failure_modes", "n_failed_without_mode", "failure_modes", "diagnosis")


def group_findings(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the iterations' summaries of one group count, added up; the operations are those of the first.

    The outputs are the same in every iteration, and with them how the system ran.
    """
    counted = {key: added([group[key] for group in per_iteration if key in group]) for key in _COUNTED}
    support = [group["chunk_support"] for group in per_iteration if "chunk_support" in group]
    of_chunks = {"chunk_support": with_shares(added(support))} if support else {}
    return {"operations": per_iteration[0]["operations"], **counted, **of_chunks}


def findings_document(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`diagnosis`, `failure_items` and `not_applicable` over the iterations' `metrics.json`.

    The examples of a diagnosis are the cases that the most iterations name, the first in data order where as many do. A
    rule is not applicable where no iteration could decide it.
    """
    made = [entry for metrics in per_iteration for entry in metrics["diagnosis"]]
    listed = [_merged([entry for entry in made if entry["name"] == name]) for name in per_iteration[0]["overall"]["diagnosis"]]
    first, *others = [metrics["not_applicable"] for metrics in per_iteration]
    not_applicable = {
        kind: [name for name in names if all(name in later[kind] for later in others)] for kind, names in first.items()
    }
    items = {mode: name for metrics in per_iteration for mode, name in metrics["failure_items"].items()}
    return {"diagnosis": [entry for entry in listed if entry], "failure_items": items, "not_applicable": not_applicable}


def _merged(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One diagnosis as several iterations made it; empty where none did."""
    if not made:
        return {}
    cases = Counter(tuple(case[name] for name in OUTPUT_KEY) for entry in made for case in entry["examples"])
    examples = [dict(zip(OUTPUT_KEY, key, strict=True)) for key, _ in cases.most_common(EXAMPLES)]
    counts = {key: sum(entry[key] for entry in made) for key in ("n", "n_first", "n_judged")}
    return {**made[0], **counts, "examples": examples}


_PARTS = ("used", "spent", "saved", "wasted", "repriced")


def final_cost(per_iteration: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """`iterations` (`used`, `spent`, `saved`, `wasted`, `repriced` of each) and their `total`, from each one's `cost.json`.

    Every iteration asks under keys of its own, so no reply is counted twice. A sum is null when one of its parts is (an
    unknown price); `usd_known` sums what is known. `per_case` of the total is the cost of a case in all iterations together.
    """
    costs = list(per_iteration.values())
    return {
        "iterations": {str(number): {part: cost[part] for part in _PARTS} for number, cost in per_iteration.items()},
        "total": {part: _sum([cost[part] for cost in costs]) for part in _PARTS},
        "prices": costs[-1]["prices"],
    }


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums key by key, in the order of the keys' first appearance; a key that a part lacks is 0 there."""
    keys = dict.fromkeys(key for part in parts for key in part)
    sums = {key: _sum_of(key, [part[key] for part in parts if key in part]) for key in keys}
    return {**sums, **judge_rates(sums)} if "error_rate" in sums else sums


def _sum_of(key: str, values: Sequence[Any]) -> Any:
    """The sum of one key's values. Rates are left null: they follow from the sums."""
    if key in ("latency_ms", "case_latency_ms"):
        known = [value for value in values if value]  # percentiles cannot be added up
        return {"n": sum(v["n"] for v in known), "sum": math.fsum(v["sum"] for v in known)} if known else None
    if any(isinstance(value, Mapping) for value in values):
        return _sum([value for value in values if value])
    if key.endswith("_rate") or any(value is None for value in values):
        return None
    return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)
