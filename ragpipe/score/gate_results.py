"""The gates of one iteration, measured on its ledger; and what a gate by interval can tell with so many cases, in words.

The precision of a gate's value is that of its interval in a finished run. Before a run it is that of an earlier one, or of
cases that are as unlike and as much alike within a question as they can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.score import ScoreSpec
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.aggregate import LOST, summary
from ragpipe.score.gate_rules import allowed_change, decide_gates, define, limited, measure_gate
from ragpipe.score.gate_settings import OPERATIONS, Gate
from ragpipe.score.normalisation import OK, OVERALL, interval_of, normalised
from ragpipe.score.settings import ScoringSettings
from ragpipe.score.system_usage import USD
from ragpipe.stats.intervals import estimate_mean, estimate_rate, normal_quantile
from ragpipe.stats.limits import (
    TYPICAL_SPREADS,
    effective_rows,
    p_below,
    resolve_drop,
    resolve_limit,
    resolve_mean,
    rows_for_drop,
    rows_to_tell,
    strictest_limit,
)

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
_SHOWN_LABELS = 8


def choices(settings: ScoringSettings) -> dict[str, dict[str, list[str]]]:
    """By gate the labels of its `where`: the cases that the ledger must tell apart."""
    return {name: gate.labels() for name, gate in settings.active_gates().items() if gate.where}


def gate_results(
    ledger: Accumulators,
    metrics: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
    untrusted: Collection[str],
    together: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """`gates` of `metrics.json`: each gate's definition with what this iteration says.

    `metrics` is what `aggregate` returned of the ledger, `specs` are the scores of the metrics and the composites. Scores that
    are `untrusted`, of a judge that is not calibrated, pass no critical gate. `together` has by gate what is measured beside a
    baseline or with labels; it comes before the figures of the cases alone.
    """
    declared = {spec.name: spec for spec in (*specs, OVERALL)}
    gates = []
    for name, gate in settings.active_gates().items():
        spec = declared.get(gate.score or "")
        rests_on = settings.scores_behind(gate.failure_mode or "", declared)
        definition = define(
            name,
            gate,
            spec,
            judged=spec is not None and settings.passes(spec),
            rests_on=rests_on,
            coverage_floor=settings.coverage_floor,
            inconclusive=settings.inconclusive,
            untrusted=not settings.accept_uncalibrated
            if gate.preference_against is not None
            else rests_on_judge(gate, settings, declared, untrusted),
            level=settings.level,
        )
        needed = [declared[score_name] for score_name in rests_on] if spec is None else [spec]
        if gate.score in OPERATIONS:
            measured = measure_operation(definition, ledger, _places(ledger, definition))
        else:
            chosen = _summary(ledger, name, gate, metrics, [spec for spec in needed if spec is not OVERALL], settings)
            measured = measure_gate(definition, chosen, metrics["declared"])
        if not measured["n_cases"]:
            measured["absent"] = _no_case(definition["where"], metrics["by"])
        elif gate.score not in OPERATIONS:
            measured["p_value"] = _p_value(ledger, definition, spec)
            is_given = spec is not None or measured["absent"] is None or gate.preference_against is not None
            if is_given:
                measured |= together.get(name, {})
            if gate.against is not None and name not in together and is_given:
                measured |= {"value": None, "interval": None, "absent": f"run {gate.against} is not there"}
        gates.append((definition, [measured]))
    return decide_gates(gates)


def _places(ledger: Accumulators, gate: Mapping[str, Any]) -> NDArray[np.int64]:
    return ledger.chosen[gate["name"]] if gate["where"] else np.arange(ledger.n, dtype=np.int64)


def _p_value(ledger: Accumulators, gate: Mapping[str, Any], spec: ScoreSpec | None) -> float | None:
    """How improbable figures so far beyond the nearer limit are if the true ones were at it; None without an interval."""
    places = _places(ledger, gate)
    scale: tuple[float | None, float | None] = (0.0, 1.0)
    if "failure_mode" in gate and "against" not in gate:
        truth = ledger.findings.mode(gate["failure_mode"])
        if truth is None:
            return None
        values, binary = (truth[places] == 1).astype(np.float64), True
    elif spec is None or "against" in gate or "preference_against" in gate:
        return None
    else:
        column = ledger.overall if spec is OVERALL else ledger.scores[spec.name]
        by_rate = gate["of"] == "pass_rate"
        places = places[column.passed[places] >= 0] if by_rate else places[column.status[places] == OK]
        values, binary = ((column.passed if by_rate else column.values)[places].astype(np.float64), by_rate or spec.binary)
        if not by_rate and (spec.low is None or spec.high is None):
            scale = (None, None)  # a count has no ends
        elif not by_rate:
            values = normalised(values, spec)
    samples, (low, high) = ledger.samples[places], scale
    p_values = []
    for end, limit in (("min", gate["min"]), ("max", gate["max"])):
        if limit is not None:
            p = p_below(values, samples, limit, low=low, high=high, binary=binary)
            p_values += [] if p is None else [p if end == "min" else 1 - p]
    return min(p_values, default=None)


def _summary(
    ledger: Accumulators,
    name: str,
    gate: Gate,
    metrics: Mapping[str, Any],
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
) -> dict[str, Any]:
    """The summary over the gate's cases; its failure mode gets the interval of its share."""
    places = _places(ledger, {"name": name, "where": gate.where})
    chosen = dict(summary(ledger, places, specs, settings) if gate.where else metrics["overall"])
    truth = ledger.findings.mode(gate.failure_mode) if gate.failure_mode else None
    if truth is None or gate.failure_mode is None:
        return chosen
    rate = estimate_rate((truth[places] == 1).astype(np.float64), ledger.samples[places], level=settings.level)
    mode = {**chosen["failure_modes"][gate.failure_mode], **interval_of("interval", rate)}
    return {**chosen, "failure_modes": {gate.failure_mode: mode}}


def _no_case(where: Mapping[str, Sequence[str]], by: Mapping[str, Mapping[str, Any]]) -> str:
    """That no case is chosen, with what the field at fault really holds."""
    for field, labels in where.items():
        present = list(by.get(field, {}))
        if present and not set(labels) & set(present):
            more = f" and {len(present) - _SHOWN_LABELS} more" if len(present) > _SHOWN_LABELS else ""
            return f"no case has it; {field} is {', '.join(present[:_SHOWN_LABELS])}{more}"
    return "no case has it"


NO_CALIBRATION = "no calibration is named"
"""Why a score is not calibrated where `scoring.calibration` names nothing."""
_VERDICTS = {"passed": True, "failed": False}


def trust_words(metrics: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> str:
    """What people's labels say of the judge of a run in `metrics.json`: `passed its calibration`, `FAILED its calibration`, `partly
    calibrated`, `not calibrated` (a calibration does not hold here, or has too few labels) or `never calibrated`. `beside` is the
    document that `task=calibrate` wrote into the run, which its own scoring could not know."""
    states = metrics.get("calibration", {})
    verdicts = {name: state["calibrated"] for name, state in states.items()}
    if beside is not None:
        verdicts |= {name: _VERDICTS.get(score["state"]) for name, score in beside["scores"].items() if name in states}
    if False in verdicts.values():
        return "FAILED its calibration"
    if metrics["judge"]["calibrated"] or (verdicts and all(verdicts.values())):
        return "passed its calibration"
    if True in verdicts.values():
        return "partly calibrated"
    was_tried = beside is not None or any(state["why"] != NO_CALIBRATION for state in states.values())
    return "not calibrated" if was_tried else "never calibrated"


def judged_scores(settings: ScoringSettings, names: Iterable[str], asked: Collection[str]) -> set[str]:
    """Of the scores `names` of a run (metrics and composites) those that depend on a judge, with `overall_score` where a part does.

    `asked` are the scores of the metrics that ask it.
    """
    by_judge = set(asked)
    made = {name for name, composite in settings.active_composites().items() if by_judge & {*composite.parts}}
    judged = (by_judge | made) & {*names}
    return judged | ({OVERALL.name} if judged & {*settings.weighed} else set())


def rests_on_judge(gate: Gate, settings: ScoringSettings, declared: Mapping[str, ScoreSpec], judged: Collection[str]) -> bool:
    """Whether a gate's verdict depends on one of the `judged` scores. `declared` are all scores of the run by name."""
    needs = {gate.score or "", *settings.scores_behind(gate.failure_mode or "", declared)}
    spec = declared.get(gate.score or "")
    if limited(gate, spec, judged=spec is not None and settings.passes(spec)) == "pass_rate":
        needs |= {*settings.deciding_scores(gate.score or "")}
    return bool(needs & set(judged))


def uncalibrated_gates(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], untrusted: Mapping[str, str], labels: Collection[str] = ()
) -> list[str]:
    """What to say before a run of the metrics' scores `specs` by a judge that is not calibrated: one line that names the
    critical gates which cannot pass; none where there is no such gate, or where it is accepted.

    `untrusted` are the scores of the judge without a calibration that passed and holds here, with the reason in words. The gates
    that `labels` of a score may decide are those of `labelled_gates`.
    """
    names, whys = [], dict[str, str]()
    for name, gate, needs in _untrusted_gates(settings, specs, untrusted):
        if not _is_corrected(gate, settings, specs, labels):
            names.append(name)
            whys |= {score: why for score, why in untrusted.items() if score in needs and why != NO_CALIBRATION}
    if not names:
        return []
    are = "a critical gate that rests" if len(names) == 1 else "critical gates that rest"
    because = f" ({'; '.join(f'{score}: {why}' for score, why in whys.items())})" if whys else ""
    return [
        f"{', '.join(f'scoring.gates.{name}' for name in names)}: {are} on a judge which is not calibrated against human "
        f"labels{because}, and cannot pass (exit code 3). Label some of its answers (task=label), run task=calibrate and then "
        "task=rescore, or name the file of another run (scoring.calibration=PATH); or trust the judge as it is (scoring.accept_uncalibrated=true)"
    ]


def labelled_gates(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], untrusted: Mapping[str, str], labels: Mapping[str, int]
) -> list[str]:
    """A line for each critical gate that labels may decide, as for `uncalibrated_gates`: only the answers say whether they do."""
    return [
        f"scoring.gates.{name}: decided on the mean of {gate.score} corrected by {labels[str(gate.score)]} labels if they are of the "
        "answers of this run, which is not known before; else its judge is not calibrated, and it cannot pass (exit code 3)"
        for name, gate, _ in _untrusted_gates(settings, specs, untrusted)
        if _is_corrected(gate, settings, specs, labels)
    ]


def _untrusted_gates(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], untrusted: Collection[str]
) -> Iterator[tuple[str, Gate, set[str]]]:
    """The critical gates that depend on one of the `untrusted` scores, with those scores; none where that is accepted."""
    if settings.accept_uncalibrated:
        return
    declared = {spec.name: spec for spec in (*settings.all_specs(specs), OVERALL)}
    judged = judged_scores(settings, declared, untrusted)
    for name, gate in settings.active_gates().items():
        if gate.tier == "critical" and rests_on_judge(gate, settings, declared, judged):
            judged_by = {score: judged_scores(settings, declared, [score]) for score in untrusted}
            yield name, gate, {s for s, scores in judged_by.items() if rests_on_judge(gate, settings, declared, scores)}


def _is_corrected(gate: Gate, settings: ScoringSettings, specs: Sequence[ScoreSpec], labels: Collection[str]) -> bool:
    """Whether labels may decide a gate: one on a labelled score itself, by limits, and not on a verdict of other scores too."""
    spec = next((spec for spec in specs if spec.name == gate.score), None)
    if spec is None or gate.against is not None or spec.name not in labels or spec.low is None:
        return False
    by_rate = limited(gate, spec, judged=settings.passes(spec)) == "pass_rate"
    return not (by_rate and spec.name in settings.passes_with)


_UNDECIDED = ("inconclusive", "uncalibrated")  # an uncalibrated judge hides that the interval holds the limit
_OUT_OF_REACH = 1000  # times the cases of the run: nobody collects so many
_LABEL_MORE = "task=label with a larger label.n adds to the draw, then task=calibrate again"


@dataclass(frozen=True, slots=True)
class Precision:
    """How precisely the value of a gate over `cases` cases is known.

    `rows` are effective rows of a value on 0 to 1; for a mean without a scale they are None and `error` is its standard error.
    `labels` of the cases correct the value, None where none do: then the labels limit the precision more than the cases.
    """

    cases: int
    rows: float | None = None
    error: float | None = None
    labels: int | None = None

    @property
    def sample(self) -> str:
        """What the value is known from: `99 cases`, `58 labels of 99 cases`."""
        return f"{self.cases:,} cases" if self.labels is None else f"{self.labels:,} labels of {self.cases:,} cases"

    def with_cases(self, cases: int) -> Precision:
        """The same of another number of cases that are alike, with labels of as large a part of them."""
        rows = None if self.rows is None else self.rows * cases / self.cases
        error = None if self.error is None else self.error * (self.cases / cases) ** 0.5
        labels = None if self.labels is None else round(self.labels * cases / self.cases)
        return replace(self, cases=cases, rows=rows, error=error, labels=labels)


def precision_of(gate: Mapping[str, Any], level: float) -> Precision | None:
    """The precision that the interval of a gate of `gates.json` says; None without an interval that says it.

    `level` is that of its interval. Several iterations are judgings of the same cases, so these count once.
    """
    interval, value = gate["interval"], gate["value"]
    measured = sum(figure is not None for figure in gate["values"])
    if "against" in gate:  # pairs of cases, each with its mean over the iterations
        measured = 1
    is_share = "failure_mode" in gate and "against" not in gate
    cases = round(gate["n_cases" if is_share else "n_ok"] / measured) if measured else 0
    if interval is None or value is None or not cases:
        return None
    z, labels = normal_quantile(level), gate.get("corrected", {}).get("labels")
    if "wilson" not in interval["method"]:
        error = (interval["high"] - interval["low"]) / 2 / z
        return Precision(cases, error=error, labels=labels) if error > 0 else None
    rows = effective_rows(value, interval["low"], interval["high"], quantile=z)
    return None if rows is None else Precision(cases, rows=rows, labels=labels)


def precision_before(samples: Whole) -> Precision | None:
    """The precision of a value on 0 to 1 before anything is measured, for cases of these questions; None for no case.

    The values are taken to be 0 or 1, and equal for all cases of a question: Dmax of `estimate_mean`. It will be better.
    """
    if not len(samples):
        return None
    sizes = np.unique(samples, return_counts=True)[1].astype(np.float64)
    return Precision(len(samples), rows=len(samples) ** 2 / float(np.sum(sizes * sizes)))


def power_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """`with 30 cases "at least 0.85" fails 8 of 10 runs of a system at 0.65 or below and passes 8 of 10 at 0.99 or above`.

    A clause for each limit that an interval can keep; empty where there is none.
    """
    if "against" in gate:
        return _drop_words(gate, precision, level) if gate["by"] == "interval" else ""
    clauses = [_clause(limit, precision, level, is_upper) for is_upper, limit in _limits(gate, precision)]
    return f"with {precision.sample} {'; '.join(clauses)}" if clauses else ""


def precision_before_comparison(samples: Whole, kind: str) -> Precision | None:
    """The precision of a difference between two runs on 0 to 1 before they are compared; None for no case.

    Its spread per case is the typical one of the `kind` of values (`TYPICAL_SPREADS`), the rows of a question are taken as alike.
    """
    before = precision_before(samples)
    if before is None or before.rows is None:
        return None
    return Precision(before.cases, error=TYPICAL_SPREADS[kind] / before.rows**0.5)


def _drop_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """What a gate against a baseline finds, and how many cases it takes to pass an unchanged system."""
    error, max_drop = precision.error, allowed_change(gate)
    key, moved = ("max_rise", "rose") if "failure_mode" in gate else ("max_drop", "dropped")
    if error is None:
        return ""
    drop = resolve_drop(error, 1.0, max_drop, level=level)
    words = f"with {precision.cases:,} cases it fails 8 of 10 runs of a system that {moved} by {drop.finds:.2f} or more"
    if drop.smallest_max_drop <= max_drop:
        return f"{words}, and passes 8 of 10 of an unchanged one"
    words += f"; an unchanged one passes 8 of 10 only from {key} {drop.smallest_max_drop:.2g} on"
    if max_drop == 0:
        return words
    needed = rows_for_drop(error * precision.cases**0.5, max_drop, level=level)
    return f"{words}, and {key} {max_drop:.10g} takes about {_rounded(needed):,} cases"


def undecided_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """`with 30 cases this gate cannot tell 0.88 from 0.85: that takes about 1,100`, where the interval holds a limit; else empty."""
    value, interval = gate["value"], gate["interval"]
    if "against" in gate and gate["verdict"] in _UNDECIDED:
        return power_words(gate, precision, level)
    if gate["verdict"] not in _UNDECIDED or interval is None:
        return ""
    held = [limit for _, limit in _limits(gate, precision) if interval["low"] <= limit <= interval["high"]]
    if not held:
        return ""
    limit = min(held, key=lambda end: abs(end - value))
    needed = _cases_to_tell(value, limit, precision, level)
    if needed is None:
        words = f"with {precision.sample} this gate cannot tell which side of {limit:.10g} the value is on"
        return words if precision.labels in (None, precision.cases) else f"{words}; {_LABEL_MORE}"
    words = f"with {precision.sample} this gate cannot tell {_apart(value, limit)} from {limit:.10g}"
    if needed > _OUT_OF_REACH * precision.cases:
        return f"{words}: the value is too near the limit for any practical number of cases"
    return f"{words}: that takes about {_needed_words(max(needed, precision.cases + 1), precision)}"


def _needed_words(cases: int, precision: Precision) -> str:
    """How many cases it takes; where labels correct the value how many labels, and cases where these run out."""
    if precision.labels is None:
        return f"{_rounded(cases):,}"
    labels = max(_rounded(-(-precision.labels * cases // precision.cases)), precision.labels + 1)
    if labels <= precision.cases:
        return f"{labels:,} labels; {_LABEL_MORE}"
    return f"{labels:,} labels of {_rounded(cases):,} cases, and the run has fewer cases"


def _limits(gate: Mapping[str, Any], precision: Precision) -> list[tuple[bool, float]]:
    """The limits (is it an upper one?) that an interval can keep or break; of a value on 0 to 1 those inside."""
    if gate["by"] != "interval":
        return []
    ends = [(is_upper, gate[key]) for is_upper, key in ((False, "min"), (True, "max")) if gate.get(key) is not None]
    return [(is_upper, end) for is_upper, end in ends if precision.rows is None or 0 < end < 1]


def _clause(limit: float, precision: Precision, level: float, is_upper: bool) -> str:
    fails, passes = _resolution(limit, precision, level, is_upper)
    sign, beyond, within = ("at most", "above", "below") if is_upper else ("at least", "below", "above")
    failing = "fails no system reliably"
    if fails is not None:
        failing = f"fails 8 of 10 runs of a system at {_apart(fails, limit)} or {beyond}"
    passing = "passes none reliably"
    if passes is not None:
        passing = f"passes 8 of 10 at {_apart(passes, limit)} or {within}"
    elif precision.rows is not None:
        end = strictest_limit(precision.rows, level=level)
        bound = f"ends at {_apart(1 - end, limit)}" if is_upper else f"starts at {_apart(end, limit)}"
        passing += f" (even without a fault the interval {bound})"
    return f'"{sign} {limit:.10g}" {failing} and {passing}'


def _resolution(limit: float, precision: Precision, level: float, is_upper: bool) -> tuple[float | None, float | None]:
    """The true value from which it fails, and from which it passes."""
    if precision.rows is None:
        found = resolve_mean(limit, precision.error or 0.0, level=level)
        return (found.passes_at, found.fails_at) if is_upper else (found.fails_at, found.passes_at)
    if not is_upper:
        found = resolve_limit(limit, precision.rows, level=level)
        return found.fails_at, found.passes_at
    found = resolve_limit(1 - limit, precision.rows, level=level)
    return _mirrored(found.fails_at), _mirrored(found.passes_at)


def _mirrored(value: float | None) -> float | None:
    return None if value is None else 1 - value


def _cases_to_tell(value: float, limit: float, precision: Precision, level: float) -> int | None:
    if precision.rows is not None:
        return rows_to_tell(value, limit, precision.cases / precision.rows, level=level)
    if value == limit or precision.error is None:
        return None
    factor = normal_quantile(level) + normal_quantile(0.6)
    return int(precision.cases * (factor * precision.error / (value - limit)) ** 2) + 1


def _apart(value: float, limit: float) -> str:
    """The value with as many digits as it takes to differ from the limit."""
    return next((text for digits in range(2, 17) if float(text := f"{value:.{digits}f}") != limit), repr(value))


def _rounded(count: int) -> int:
    """Two leading digits: it is an estimate."""
    return round(count, -max(0, len(str(count)) - 2))


_ABSENT = {
    "latency_ms": "no case records its timings",
    "tokens_total": "no case records its tokens",
    USD: "no case has a known price: let `usage` hold cost_usd, or set system.prices",
    "empty_rate": "no case records an answer",
}


def measure_operation(gate: Mapping[str, Any], ledger: Accumulators, places: Whole) -> dict[str, Any]:
    """What one iteration says of a gate on an operation over the cases at `places`, with the keys of `measure_gate` and a `p_value`.

    Where some cases record the figure and others do not, the others count as not recorded; where none does, nothing is due and
    `without_cases` decides. An amount is due of every case without an error of the system, a rate of every case, and that of
    empty answers of every case that records an answer or an error.
    """
    name, is_rate = gate["score"], gate["of"] == "share"
    values = (_rate if is_rate else _amount)(ledger, name)[places]
    known = ~np.isnan(values)
    measured, samples = values[known], ledger.samples[places][known]
    due = known if is_rate else known | ~ledger.marks["error"][places]
    lacking = int(np.count_nonzero(due & ~known))
    counts = dict.fromkeys(("n_cases", "n_ok", "n_skipped", *LOST, "n_missing"), 0)
    counts |= {"n_cases": len(places), "n_ok": len(measured), "n_not_recorded": lacking if len(measured) else 0}
    counts["n_skipped"] = len(places) - counts["n_ok"] - counts["n_not_recorded"]
    if not len(measured):
        return {"value": None, "interval": None, **counts, "absent": _ABSENT.get(name, "no case is chosen"), "p_value": None}
    if gate["of"] in ("p50", "p95"):
        value = float(np.percentile(measured, int(gate["of"][1:])))
        return {"value": value, "interval": None, **counts, "absent": None, "p_value": None}
    estimate = (estimate_rate if is_rate else estimate_mean)(measured, samples, level=gate["level"])
    low, high = (0.0, 1.0) if is_rate else (None, None)
    p = p_below(measured, samples, gate["max"], low=low, high=high, binary=is_rate)
    figures = {"value": estimate.value, "interval": interval_of("interval", estimate)["interval"]}
    if estimate.reason == "no_spread":  # an amount that is equal in all cases is known
        figures["interval"] = {"low": estimate.value, "high": estimate.value, "method": "constant"}
    return {**figures, **counts, "absent": None, "p_value": None if p is None else 1 - p}


def _rate(ledger: Accumulators, name: str) -> Floats:
    """1 for a case that counts, 0 for another; NaN where nothing is recorded."""
    marks = ledger.marks
    if name != "empty_rate":
        return marks[name.removesuffix("_rate")].astype(np.float64)
    return np.where(marks["unrecorded"], np.nan, marks["empty"] & ~marks["error"])


def _amount(ledger: Accumulators, name: str) -> Floats:
    """The amount of each case, NaN where it has none."""
    return ledger.timings.values("total", ledger.n) if name == "latency_ms" else ledger.usage.values(name, ledger.n)
