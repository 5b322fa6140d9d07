"""Gates against a baseline: the drop of a score over the cases that a run shares with the run that it is compared with.

A case's value is its mean over the iterations. Where the two runs were not judged alike, the gate has no evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparing.baseline_table import Baseline, LeftOut, lost_cases, read_baselines, sample_digests
from ragpipe.comparing.equal_answers import judge_moved
from ragpipe.comparing.judge_drift import drift_differences
from ragpipe.comparing.pairing import Pairs, answer_digests, paired_cases
from ragpipe.comparing.run_differences import ChangedKey, setting_differences
from ragpipe.comparing.side import silent_values
from ragpipe.core.flat_keys import changed_keys, short_value
from ragpipe.core.safe_text import on_one_line
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.gates.gate_settings import NO_EARLIER_RUN, Gate
from ragpipe.scoring.iterations.per_case_repeats import cases_of, chosen_cases, open_records, repeats
from ragpipe.scoring.normalisation import interval_of
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stats.difference_verdict import DropVerdict, decide_drop
from ragpipe.stats.intervals import Estimate
from ragpipe.stats.looks import look_at
from ragpipe.stats.paired_difference import PairedDifference, paired_difference
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns, read_json

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_SHOWN = 3
_ID = 60


@dataclass(frozen=True)
class GatedRun:
    """The run that gates decide on.

    Attributes:
        manifest: its identity and its prompts.
        folder: its folder, with samples and outputs.
        records: `records.parquet` of the iterations to measure, in order.
        declared: what is declared of its scores.
        settings: its scoring.
        metrics: by score the metrics that it comes from.
        judged: the scores that depend on a judge.
        embedding: the metrics that ask an embedder.
    """

    manifest: Mapping[str, Any]
    folder: RunFolder
    records: Sequence[Path]
    declared: Mapping[str, Mapping[str, Any]]
    settings: ScoringSettings
    metrics: Mapping[str, Collection[str]]
    judged: Collection[str]
    embedding: Collection[str]

    @cached_property
    def cases(self) -> pa.Table:
        """The keys of its cases."""
        return cases_of(self.records).names

    @cached_property
    def sample_digests(self) -> dict[str, str]:
        """By sample id the digest of what metrics read of it."""
        return sample_digests(self.folder.samples)

    def by_rate(self, gate: Gate) -> bool:
        """Whether a gate is on the share of passed cases, and not on the mean."""
        name = str(gate.score)
        if gate.of is not None:
            return gate.of == "pass_rate"
        is_judged = self.settings.thresholds.get(name) is not None or name in self.settings.passes_with
        return bool(self.declared[name]["binary"]) and is_judged

    def values(self, name: str, *, by_rate: bool) -> Floats:
        """Of each case the mean of a score over the iterations, 0 (worst) to 1 (best), or its share of passed verdicts."""
        with open_records(self.records, [name]) as tables:
            score = repeats(tables, name, len(self.cases))
        return score.rates if by_rate else on_unit_scale(score.means, self.declared[name])

    @cached_property
    def answers(self) -> NDArray[np.str_]:
        """The answer digest of each case."""
        return np.array(list(answer_digests(self.folder)))

    def silent(self, name: str) -> Flags:
        """The cases whose value of a score says no more than that the answer states nothing."""
        parts = {"composite_parts": self.settings.parts(list(self.declared))}
        return silent_values(self.records[0], parts, name)

    def chosen(self, where: Mapping[str, Sequence[str]]) -> Flags:
        """The cases that a gate is about."""
        return chosen_cases(self.records[0], where, len(self.cases))


def on_unit_scale(values: Floats, scale: Mapping[str, Any]) -> Floats:
    """Values of a score's own scale as 0 (worst) to 1 (best); `scale` is what is declared of the score."""
    unit: Floats = np.clip((values - scale["low"]) / (scale["high"] - scale["low"]), 0.0, 1.0)
    return unit if scale["higher_is_better"] else 1.0 - unit


def measure_drops(run: GatedRun, baselines: Mapping[str, Baseline]) -> dict[str, dict[str, Any]]:
    """What each gate against a baseline measures, by its name: the part of `measure_gate` that a baseline decides.

    `value` is candidate - baseline on 0 (worst) to 1 (best), so a drop is below 0, with its interval; `n_ok` the shared cases that
    have it on both sides; `paired` the figures of both sides, the verdict of this gate alone, and what differs. A gate without a
    comparison has a value of None and says why in `absent`. Gates on scores that the run does not give are left out.
    """
    gates = {name: gate for name, gate in run.settings.active_gates().items() if gate.against is not None}
    return {
        name: _measured(run, gate, baselines.get(str(gate.against)))
        for name, gate in gates.items()
        if gate.score in run.declared
    }


def _measured(run: GatedRun, gate: Gate, baseline: Baseline | None) -> dict[str, Any]:
    if gate.baseline is None:
        return _absent("there was no earlier run of this name")
    if baseline is None:
        return _absent(f"baseline.parquet does not hold run {gate.against}")
    rows = baseline.score(str(gate.score))
    pairs, chosen = paired_cases(rows, run.cases), run.chosen(gate.labels())
    keep = chosen[pairs.candidate]
    left_out = baseline.left_out(gate.labels())
    differences = [
        *_differences(run, gate, baseline),
        *_cases_left_out(left_out),
        *_data_difference(run, rows, pairs, keep),
    ]
    alone = {"only_base": left_out.missing, "only_candidate": int(np.sum(chosen)) - int(np.sum(keep))}
    beside = {"differs": [difference._asdict() for difference in differences], **alone}
    if refused := [difference for difference in differences if difference.part not in gate.accept]:
        listed = "; ".join(difference.line() for difference in refused[:_SHOWN])
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        accept = ", ".join(dict.fromkeys(difference.part for difference in refused))
        text = f"it differs from run {gate.against} in more than its answers ({listed}{more}); accept: [{accept}] allows it"
        return _absent(text, beside)
    by_rate = run.by_rate(gate)
    base = rows["pass_rate" if by_rate else "value"].to_numpy().astype(np.float64)[pairs.base]
    base = base if by_rate else on_unit_scale(base, run.declared[str(gate.score)])
    candidate = run.values(str(gate.score), by_rate=by_rate)[pairs.candidate]
    lost = rows["is_lost"].to_numpy()[pairs.base] & keep & ~np.isnan(candidate)
    both = keep & ~np.isnan(base) & ~np.isnan(candidate)
    if not np.any(both):
        return _absent(f"no chosen case has a value here and in run {gate.against}", beside)
    floor = run.settings.coverage_floor if gate.coverage_floor is None else gate.coverage_floor
    if np.sum(lost) > (1 - floor) * (np.sum(lost) + np.sum(both)):
        return _absent(f"in run {gate.against} {int(np.sum(lost))} of the shared cases failed", beside)
    look = _look(int(np.sum(keep)), gate, run.settings.level)
    level = look["level"] if look else run.settings.level
    paired = paired_difference(base[both], candidate[both], pairs.questions[both], low=0.0, high=1.0, level=level)
    drop = decide_drop(paired, gate.allowed_drop, span=1.0)
    if look and not look["share"]:
        drop = replace(drop, state="inconclusive", reason="before_first_look", p_value=None)
    elif not differences:
        drop = _of_the_system(run, gate, rows, pairs, both, (base, candidate), drop, level)
    sides = {"base": float(np.mean(base[both])), "candidate": float(np.mean(candidate[both])), **beside}
    planned = {"look": look} if look else {}
    return _figures(paired, drop) | {"paired": {**sides, **planned, **_paired(paired, drop)}}


def _of_the_system(
    run: GatedRun,
    gate: Gate,
    rows: pa.Table,
    pairs: Pairs,
    both: Flags,
    values: tuple[Floats, Floats],
    drop: DropVerdict,
    level: float,
) -> DropVerdict:
    """The verdict without what is the judge's (equal answers with other values) and without answers of one side that state nothing,
    as `PairedScore.decided` has it."""
    base, candidate = values

    def decided(chosen: Flags, values: Floats) -> DropVerdict:
        questions = pairs.questions[chosen]
        paired = paired_difference(base[chosen], values[chosen], questions, low=0.0, high=1.0, level=level)
        return decide_drop(paired, gate.allowed_drop, span=1.0)

    name = str(gate.score)
    answers = rows["answer_sha256"].to_numpy()[pairs.base] == run.answers[pairs.candidate]
    same = both & np.array(answers, dtype=np.bool_)
    if name in run.judged and np.any(base[same] != candidate[same]):
        is_shifted = judge_moved(base[same], candidate[same], pairs.questions[same], level)
        if is_shifted or decided(both, np.where(same, base, candidate)).state != drop.state:
            return replace(drop, state="inconclusive", reason="judge_moved", p_value=None)
    silent = rows["is_silent"].to_numpy()[pairs.base], run.silent(name)[pairs.candidate]
    if np.array_equal(silent[0][both], silent[1][both]):
        return drop
    narrowed = decided(both & ~silent[0] & ~silent[1], candidate)
    return drop if narrowed.state == drop.state else replace(narrowed, reason="states_nothing")


def _look(n: int, gate: Gate, level: float) -> dict[str, Any] | None:
    """The look at a plan that `n` cases on both sides are, with or without a value: its share of the plan (0: too early to decide anything) and the level
    at which it decides; None without a plan."""
    if gate.planned is None:
        return None
    look = look_at(n, gate.planned)
    share, bound = (look.share, look.level) if look else (0.0, level)
    return {"n": n, "share": share, "level": bound}


def _figures(paired: PairedDifference, drop: DropVerdict) -> dict[str, Any]:
    """The difference as `measure_gate` has a value."""
    estimate = Estimate(paired.n, paired.clusters, paired.difference, paired.interval, paired.reason)
    figures = {"value": paired.difference, "interval": interval_of("interval", estimate)["interval"]}
    return {**figures, "n_ok": paired.n, "p_value": drop.p_value, "absent": None}


def _paired(paired: PairedDifference, drop: DropVerdict) -> dict[str, Any]:
    counts = {"wins": paired.wins, "losses": paired.losses, "ties": paired.ties, "changed": paired.changed}
    verdict = {"state": drop.state, "reason": drop.reason}
    return {"n": paired.n, "questions": paired.clusters, **counts, "detectable": paired.detectable, **verdict}


def _absent(why: str, paired: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"value": None, "interval": None, "p_value": None, "absent": why, "paired": dict(paired or {})}


def _differences(run: GatedRun, gate: Gate, baseline: Baseline) -> Iterator[ChangedKey]:
    """What differs in how the gate's score was made: of other scores nothing matters."""
    name = str(gate.score)
    metrics = set(run.metrics.get(name, ()))
    drift = drift_differences(baseline.manifest, run.manifest)
    for difference in (*setting_differences(baseline.manifest, run.manifest), *drift):
        by_metric = difference.key.partition(".")[0] in metrics
        of_judge = difference.part in ("judge", "parser") and name in run.judged
        of_embedder = difference.part == "embedder" and metrics & set(run.embedding)
        if of_judge or of_embedder or (difference.part in ("prompts", "metrics") and by_metric):
            yield difference
    before, after = baseline.manifest["identity"]["scoring"], run.settings.identity()
    for key, old, new in changed_keys(
        _scoring_of(before, name, by_rate=run.by_rate(gate)), _scoring_of(after, name, by_rate=run.by_rate(gate))
    ):
        yield ChangedKey("scoring", f"scoring.{key}", short_value(old), short_value(new))


def _scoring_of(scoring: Mapping[str, Any], name: str, *, by_rate: bool) -> dict[str, Any]:
    """The parts of a scoring that decide the values of a score, or with `by_rate` which cases pass by it."""
    parts: dict[str, Any] = {}
    if name == OVERALL.name:
        parts["weights"] = scoring["weights"]
    elif scoring["composites"].get(name) is not None:
        parts["composites"] = {name: scoring["composites"][name]}
    if by_rate:
        decisive = {"thresholds": scoring["thresholds"], "passes_with": scoring["passes_with"]}
        parts |= {key: {name: names.get(name)} for key, names in decisive.items()}
    return parts


def _cases_left_out(left_out: LeftOut) -> Iterator[ChangedKey]:
    """One difference where the run lacks cases of the baseline: what fell there would be in no figure."""
    if left_out.missing:
        first = on_one_line(str(left_out.first), _ID)
        text = f"{left_out.missing:,} of {left_out.chosen:,} in the baseline only, first {first}"
        yield ChangedKey("data", "cases", text, "left out")


def _data_difference(run: GatedRun, rows: pa.Table, pairs: Pairs, keep: Flags) -> Iterator[ChangedKey]:
    """One difference where shared samples do not have the same question, references and labels in both."""
    before = rows["sample_sha256"].take(pa.array(pairs.base)).to_pylist()
    samples = pairs.cases["sample_id"].to_pylist()
    changed = [
        sample
        for sample, digest, is_chosen in zip(samples, before, keep.tolist(), strict=True)
        if is_chosen and run.sample_digests.get(sample) != digest
    ]
    if changed:
        text = f"{len(changed)} of {int(np.sum(keep))} shared cases, first {changed[0]}"
        yield ChangedKey("data", "question, references or labels", text, "another value")


class GateCase(NamedTuple):
    """A case and its value: 0 (worst) to 1 (best), or in the native scale for a count; the change against the baseline for a gate on
    a drop; None for a failure mode, and where there is none."""

    sample_id: str
    method: str
    repeat: int
    value: float | None


def worst_cases(run: RunFolder, gate: Mapping[str, Any], count: int) -> list[GateCase]:
    """At most `count` cases that a gate of the run's `gates.json` goes by, the worst first, in the order of the data among equals.

    A gate that could not be measured has the cases whose judgement, or whose system, failed. Empty for a score that the run does
    not give. Values are means over the iterations. Raises DataError for a table that cannot be read.
    """
    metrics = read_json(run.final.metrics)
    records = [run.iteration(number).records for number in metrics["iterations"]]
    names = cases_of(records).names
    chosen = chosen_cases(records[0], gate["where"], len(names))
    if "failure_mode" in gate:
        modes = pc.cast(read_columns(records[-1], ["failure_modes"])["failure_modes"], pa.list_(pa.string()))
        has_mode = np.array([gate["failure_mode"] in (row or ()) for row in modes.to_pylist()], dtype=np.bool_)
        return _cases(names, np.flatnonzero(chosen & has_mode)[:count], None)
    if gate["score"] not in metrics["declared"]:
        return []
    if gate["verdict"] in ("no_evidence", "not_enough_evidence"):
        return _cases(names, np.flatnonzero(chosen & lost_cases(records[-1], gate["score"]))[:count], None)
    with open_records(records, [gate["score"]]) as tables:
        score = repeats(tables, gate["score"], len(names))
    scale = metrics["declared"][gate["score"]]
    by_rate = gate["of"] == "pass_rate"
    values = score.rates if by_rate else score.means if scale["low"] is None else on_unit_scale(score.means, scale)
    if gate.get("against", NO_EARLIER_RUN) != NO_EARLIER_RUN:
        values = _changes(run, gate, values, names, scale, by_rate=by_rate)
    values = np.where(chosen, values, np.nan)
    order = np.argsort(values if gate.get("max") is None else -values, kind="stable")  # NaN comes last
    return _cases(names, order[: min(count, int(np.sum(~np.isnan(values))))], values)


def _changes(
    run: RunFolder, gate: Mapping[str, Any], values: Floats, names: pa.Table, scale: Mapping[str, Any], *, by_rate: bool
) -> Floats:
    """What each case has more than in the gate's baseline; NaN where one of them has none."""
    changes = np.full(len(values), np.nan)
    baselines = read_baselines(run.baseline) if is_regular_file(run.baseline) else {}
    if gate["against"] in baselines:
        rows = baselines[gate["against"]].score(gate["score"])
        pairs = paired_cases(rows, names)
        before = rows["pass_rate" if by_rate else "value"].to_numpy().astype(np.float64)[pairs.base]
        changes[pairs.candidate] = values[pairs.candidate] - (before if by_rate else on_unit_scale(before, scale))
    return changes


def _cases(names: pa.Table, places: NDArray[np.int64], values: Floats | None) -> list[GateCase]:
    rows = names.take(pa.array(places)).select(["sample_id", "method", "repeat"]).to_pylist()
    figures = [None] * len(rows) if values is None else [float(values[place]) for place in places]
    return [
        GateCase(row["sample_id"], row["method"], row["repeat"], value)
        for row, value in zip(rows, figures, strict=True)
    ]
