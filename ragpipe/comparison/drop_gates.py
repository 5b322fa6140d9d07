"""Gates against a baseline: the drop of a score, or the rise of a failure mode's rate, over the cases that a run shares with the run
that it is compared with.

A case's value is its mean over the iterations. Where the two runs were not judged alike, the gate has no evidence. What gates need
of a baseline is kept in `baseline.parquet` of the run's own folder: one row per baseline, shared case and score; in the metadata
what the baseline was judged by, and how many of its cases the run left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparison.run_differences import TIMES, ChangedKey, drift_differences, setting_differences
from ragpipe.comparison.side import (
    Modes,
    Pairs,
    answer_digests,
    lost_values,
    mode_rule,
    mode_values,
    of_the_system,
    one_method_each,
    opened_side,
    paired_cases,
    silent_values,
)
from ragpipe.core.digest import canonical_json, changed_keys, sha256, short_value
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.text import on_one_line
from ragpipe.score.gate_settings import MODE_PREFIX, NO_EARLIER_RUN, PREFERENCE, Gate
from ragpipe.score.iterations import cases_of, chosen_cases, open_records, repeats
from ragpipe.score.normalisation import OVERALL, interval_of
from ragpipe.score.settings import ScoringSettings
from ragpipe.stats.difference_verdict import DropVerdict, decide_drop
from ragpipe.stats.differences import PairedDifference, paired_difference
from ragpipe.stats.intervals import Estimate, estimate_mean
from ragpipe.stats.limits import p_below
from ragpipe.store.files import is_regular_file, open_unless_same
from ragpipe.store.parquet_parts import parquet_writer
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import open_table, read_columns, read_json, run_file_error
from ragpipe.store.table_rows import SAMPLES, table_schema

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_SHOWN = 3
_ID = 60


@dataclass(frozen=True)
class GatedRun:
    """The run that gates decide on: its manifest and folder, `records.parquet` of the iterations to measure in their order, what is
    declared of its scores, its scoring, by score the metrics that it comes from, the scores that depend on a judge, and the metrics
    that ask an embedder."""

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
        if gate.failure_mode is not None:
            return False
        if gate.of is not None:
            return gate.of == "pass_rate"
        declared = self.declared[name]
        return bool(declared["binary"]) and (declared["threshold"] is not None or name in self.settings.passes_with)

    def behind(self, gate: Gate) -> list[str]:
        """The scores that decide a gate: its own, or those of its failure mode."""
        return [gate.score] if gate.score else self.settings.scores_behind(str(gate.failure_mode), self.declared)

    def values(self, name: str, *, by_rate: bool) -> Floats:
        """Of each case the mean of a score over the iterations, 0 (worst) to 1 (best), or its share of passed verdicts."""
        with open_records(self.records, [name]) as tables:
            score = repeats(tables, name, len(self.cases))
        return score.rates if by_rate else on_unit_scale(score.means, self.declared[name])

    def gated(self, gate: Gate, *, by_rate: bool) -> Floats:
        """The values of a gate's score; of its failure mode the share of the iterations in which each case has it."""
        if gate.failure_mode is None:
            return self.values(str(gate.score), by_rate=by_rate)
        return mode_values(self.records, {gate.failure_mode: self.behind(gate)})[gate.failure_mode]

    @cached_property
    def answers(self) -> NDArray[np.str_]:
        """The answer digest of each case."""
        return np.array(list(answer_digests(self.folder)))

    def silent(self, gate: Gate) -> Flags:
        """The cases whose value of a gate's score says no more than that the answer states nothing; none of a failure mode."""
        if gate.score is None:
            return np.zeros(len(self.cases), dtype=np.bool_)
        return silent_values(self.records[0], {"composite_parts": self.settings.parts(list(self.declared))}, gate.score)

    def chosen(self, where: Mapping[str, Sequence[str]]) -> Flags:
        """The cases that a gate is about."""
        return chosen_cases(self.records[0], where, len(self.cases))


def on_unit_scale(values: Floats, scale: Mapping[str, Any]) -> Floats:
    """Values of a score's own scale as 0 (worst) to 1 (best); `scale` is what is declared of the score."""
    unit: Floats = np.clip((values - scale["low"]) / (scale["high"] - scale["low"]), 0.0, 1.0)
    return unit if scale["higher_is_better"] else 1.0 - unit


def measure_drops(run: GatedRun, baselines: Mapping[str, Baseline]) -> dict[str, dict[str, Any]]:
    """What each gate against a baseline, or on a preference, measures, by its name: the part of `measure_gate` that a baseline decides.

    `value` is candidate - baseline on 0 (worst) to 1 (best), so a drop is below 0, or of the rate of a failure mode, so a rise is
    above 0, with its interval; `n_ok` the shared cases that have it on both sides; `paired` the figures of both sides, the verdict of this gate alone, and what differs. A gate without a
    comparison has a value of None and says why in `absent`. Gates on scores that the run does not give are left out.
    """
    gates = {name: gate for name, gate in run.settings.active_gates().items() if gate.named_run is not None}
    return {
        name: _preferred(run, gate, baselines)
        if gate.measure == PREFERENCE
        else _measured(run, gate, baselines.get(str(gate.baseline)))
        for name, gate in gates.items()
        if gate.measure == PREFERENCE or gate.failure_mode is not None or gate.score in run.declared
    }


def _preferred(run: GatedRun, gate: Gate, baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    """The win rate of this run's answers over the pairs that a judge was asked about: corrected by labels where the preference run was,
    and the gate is about all of its pairs."""
    base, baseline = str(gate.named_run), baselines.get(str(gate.baseline))
    if base == NO_EARLIER_RUN:
        return _absent("there was no earlier run of this name")
    if baseline is None:
        ask = f"python -m ragpipe task=compare base={base} candidate={run.manifest['run_id']} compare.preference=true judge=..."
        return _absent(f"no judge was asked to compare its answers with those of run {base}: {ask}, then task=rescore")
    chosen, of_base = run.chosen(gate.labels()), baselines[base].score(CASES)
    shared = paired_cases(of_base, run.cases)
    if differences := _case_differences(run, gate, baselines[base], of_base, shared, chosen[shared.candidate]):
        listed = "; ".join(difference.line() for difference in differences)
        return _absent(f"it differs from run {base} in more than its answers ({listed})")
    rows = baseline.score(PREFERENCE)
    pairs = paired_cases(rows, run.cases)
    keep = chosen[pairs.candidate]
    values, questions = rows["value"].to_numpy().astype(np.float64)[pairs.base][keep], pairs.questions[keep]
    lost = int(np.sum(rows["is_lost"].to_numpy()[pairs.base][keep]))
    known = ~np.isnan(values)
    values, questions = values[known], questions[known]
    if not len(values):
        return _absent(f"no chosen case has a preference in run {gate.baseline}")
    corrected = baseline.manifest["corrected"] if np.all(keep) and len(pairs.base) == len(rows) else None
    estimate = estimate_mean(values, questions, low=0.0, high=1.0, level=run.settings.level)
    measured: dict[str, Any] = {"value": estimate.value, **interval_of("interval", estimate)}
    if corrected is not None and corrected["mean"] is not None:
        labels = {"raw": estimate.value, "labels": corrected["labels"]}
        measured = {"value": corrected["mean"], "interval": corrected["interval"], "corrected": labels}
    p_value = p_below(values, questions, gate.win_rate, low=0.0, high=1.0)
    beside = {"p_value": p_value, "absent": None, "calibrated": baseline.manifest["calibrated"]}
    counts = {"n_cases": int(np.sum(chosen)), "n_ok": len(values), "n_error": lost}
    return {**measured, **beside, **counts, "n_skipped": counts["n_cases"] - len(values) - lost}


def _measured(run: GatedRun, gate: Gate, baseline: Baseline | None) -> dict[str, Any]:
    if gate.baseline is None:
        return _absent("there was no earlier run of this name")
    if baseline is None:
        return _absent(f"baseline.parquet does not hold run {gate.against}")
    rows = baseline.score(gate.measure)
    pairs, chosen = paired_cases(rows, run.cases), run.chosen(gate.labels())
    keep = chosen[pairs.candidate]
    left_out = baseline.left_out(gate.labels())
    differences = [*_differences(run, gate, baseline), *_case_differences(run, gate, baseline, rows, pairs, keep)]
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
    base = base if by_rate or gate.score is None else on_unit_scale(base, run.declared[gate.score])
    of_run = run.gated(gate, by_rate=by_rate)
    candidate = of_run[pairs.candidate]
    lost = rows["is_lost"].to_numpy()[pairs.base] & keep & ~np.isnan(candidate)
    both = keep & ~np.isnan(base) & ~np.isnan(candidate)
    if not np.any(both):
        return _absent(f"no chosen case has a value here and in run {gate.against}", beside)
    floor = run.settings.coverage_floor if gate.coverage_floor is None else gate.coverage_floor
    if np.sum(lost) > (1 - floor) * (np.sum(lost) + np.sum(both)):
        return _absent(f"in run {gate.against} {int(np.sum(lost))} of the shared cases have an error", beside)
    level = run.settings.level
    paired = paired_difference(base[both], candidate[both], pairs.questions[both], low=0.0, high=1.0, level=level)
    drop = _decided(paired, gate)
    if not differences:
        drop = _of_the_system(run, gate, rows, pairs, both, (base, candidate), level)
    sides = {"base": float(np.mean(base[both])), "candidate": float(np.mean(candidate[both])), **beside}
    estimate = Estimate(paired.n, paired.clusters, paired.difference, paired.interval, paired.reason)
    return {
        "value": paired.difference,
        "interval": interval_of("interval", estimate)["interval"],
        "n_ok": paired.n,
        **({} if gate.score else {"n_error": int(np.sum(np.isnan(of_run[chosen])))}),
        "p_value": drop.p_value,
        "absent": None,
        "paired": {
            **sides,
            "n": paired.n,
            "questions": paired.clusters,
            **{name: getattr(paired, name) for name in ("wins", "losses", "ties", "changed", "detectable")},
            "state": drop.state,
            "reason": drop.reason,
        },
    }


def _of_the_system(
    run: GatedRun, gate: Gate, rows: pa.Table, pairs: Pairs, both: Flags, values: tuple[Floats, Floats], level: float
) -> DropVerdict:
    base, candidate, questions = values[0][both], values[1][both], pairs.questions[both]

    def decide(chosen: Flags, candidate: Floats) -> DropVerdict:
        paired = paired_difference(base[chosen], candidate[chosen], questions[chosen], low=0.0, high=1.0, level=level)
        return _decided(paired, gate)

    same = np.array(rows["answer_sha256"].to_numpy()[pairs.base] == run.answers[pairs.candidate], dtype=np.bool_)[both]
    silent = rows["is_silent"].to_numpy()[pairs.base][both], run.silent(gate)[pairs.candidate][both]
    judged = same if {*run.judged} & {*run.behind(gate)} else None
    drop, narrowed, reason = of_the_system(decide, base, candidate, questions, judged, silent, level)
    if reason == "judge_moved" or (reason and narrowed is drop):
        return replace(drop, state="inconclusive", reason=reason, p_value=None)
    return replace(narrowed, reason=reason) if reason else drop


def _decided(paired: PairedDifference, gate: Gate) -> DropVerdict:
    (allowed,) = gate.allowed.values()
    return decide_drop(paired if gate.failure_mode is None else _turned(paired), allowed, span=1.0)


def _turned(paired: PairedDifference) -> PairedDifference:
    """Baseline less candidate: the rise of a failure mode as a drop."""
    interval, difference = paired.interval, paired.difference
    ends = None if interval is None else replace(interval, low=-interval.high, high=-interval.low)
    return replace(paired, difference=None if difference is None else -difference, interval=ends)


def _absent(why: str, paired: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"value": None, "interval": None, "p_value": None, "absent": why, "paired": dict(paired or {})}


def _differences(run: GatedRun, gate: Gate, baseline: Baseline) -> Iterator[ChangedKey]:
    """What differs in how the gate's score, or those that decide its failure mode, were made: of other scores nothing matters."""
    behind = run.behind(gate)
    metrics = {metric for name in behind for metric in run.metrics.get(name, ())}
    drift = drift_differences(baseline.manifest, run.manifest)
    for difference in (*setting_differences(baseline.manifest, run.manifest), *drift):
        by_metric = difference.key.partition(".")[0] in metrics
        of_judge = difference.part in ("judge", "parser") and bool({*run.judged} & {*behind})
        of_embedder = difference.part == "embedder" and metrics & set(run.embedding)
        if of_judge or of_embedder or (difference.part in ("prompts", "metrics") and by_metric):
            yield difference
    scorings = baseline.manifest["identity"]["scoring"], run.settings.identity()
    for key, old, new in changed_keys(*(_scoring_of(scoring, gate, behind, by_rate=run.by_rate(gate)) for scoring in scorings)):
        yield ChangedKey("scoring", f"scoring.{key}", short_value(old), short_value(new))


def _scoring_of(scoring: Mapping[str, Any], gate: Gate, behind: Sequence[str], *, by_rate: bool) -> dict[str, Any]:
    """The parts of a scoring that decide a failure mode, or the values of a score, or with `by_rate` which cases pass by it."""
    if gate.failure_mode is not None:
        return mode_rule(scoring, gate.failure_mode, behind)
    name, parts = str(gate.score), dict[str, Any]()
    if name == OVERALL.name:
        parts["weights"] = scoring["weights"]
    elif scoring["composites"].get(name) is not None:
        parts["composites"] = {name: scoring["composites"][name]}
    if by_rate:
        decisive = {"thresholds": scoring["thresholds"], "passes_with": scoring["passes_with"]}
        parts |= {key: {name: names.get(name)} for key, names in decisive.items()}
    return parts


def _case_differences(
    run: GatedRun, gate: Gate, baseline: Baseline, rows: pa.Table, pairs: Pairs, keep: Flags
) -> list[ChangedKey]:
    """The cases that a run left out, and one difference where shared samples do not have the same question, references and labels."""
    left_out, differences = baseline.left_out(gate.labels()), list[ChangedKey]()
    if left_out.missing:  # what fell there would be in no figure
        first = on_one_line(str(left_out.first), _ID)
        text = f"{left_out.missing:,} of {left_out.chosen:,} in the baseline only, first {first}"
        differences.append(ChangedKey("data", "cases", text, "left out"))
    before = rows["sample_sha256"].take(pa.array(pairs.base)).to_pylist()
    samples = pairs.cases["sample_id"].to_pylist()
    changed = [
        sample
        for sample, digest, is_chosen in zip(samples, before, keep.tolist(), strict=True)
        if is_chosen and run.sample_digests.get(sample) != digest
    ]
    if changed:
        text = f"{len(changed)} of {int(np.sum(keep))} shared cases, first {changed[0]}"
        differences.append(ChangedKey("data", "question, references or labels", text, "another value"))
    return differences


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
        has_mode = chosen & np.array([gate["failure_mode"] in (row or ()) for row in modes.to_pylist()], dtype=np.bool_)
        if gate.get("against", NO_EARLIER_RUN) != NO_EARLIER_RUN:  # those that have it now and did not
            changes = _changes(run, gate, has_mode.astype(np.float64), names)
            return gate_cases(names, np.flatnonzero(has_mode & (changes > 0))[:count], changes)
        return gate_cases(names, np.flatnonzero(has_mode)[:count], None)
    if gate["score"] not in metrics["declared"]:
        return []
    if gate["verdict"] in ("no_evidence", "not_enough_evidence"):
        return gate_cases(names, np.flatnonzero(chosen & _failed(records[-1], gate["score"]))[:count], None)
    with open_records(records, [gate["score"]]) as tables:
        score = repeats(tables, gate["score"], len(names))
    scale = metrics["declared"][gate["score"]]
    by_rate = gate["of"] == "pass_rate"
    values = score.rates if by_rate else score.means if scale["low"] is None else on_unit_scale(score.means, scale)
    if gate.get("against", NO_EARLIER_RUN) != NO_EARLIER_RUN:
        values = _changes(run, gate, values, names, None if by_rate else scale)
    values = np.where(chosen, values, np.nan)
    order = np.argsort(values if gate.get("max") is None else -values, kind="stable")  # NaN comes last
    return gate_cases(names, order[: min(count, int(np.sum(~np.isnan(values))))], values)


def _changes(
    run: RunFolder, gate: Mapping[str, Any], values: Floats, names: pa.Table, scale: Mapping[str, Any] | None = None
) -> Floats:
    """What each case has more than in the gate's baseline; NaN where one of them has none. `scale` is that of a gate on a mean."""
    changes = np.full(len(values), np.nan)
    baselines = read_baselines(run.baseline) if is_regular_file(run.baseline) else {}
    if gate["against"] in baselines:
        rows = baselines[gate["against"]].score(gate.get("score") or f"{MODE_PREFIX}{gate['failure_mode']}")
        pairs = paired_cases(rows, names)
        before = rows["pass_rate" if gate["of"] == "pass_rate" else "value"].to_numpy().astype(np.float64)[pairs.base]
        changes[pairs.candidate] = values[pairs.candidate] - (before if scale is None else on_unit_scale(before, scale))
    return changes


def gate_cases(names: pa.Table, places: Sequence[int] | NDArray[np.int64], values: Floats | None) -> list[GateCase]:
    """The cases at these places of a table that names all cases, each with its value of `values`, which has one for each of all."""
    rows = names.take(pa.array(places, pa.int64())).select(OUTPUT_KEY).to_pylist()
    figures = [None] * len(rows) if values is None else [float(values[place]) for place in places]
    return [GateCase(**row, value=value) for row, value in zip(rows, figures, strict=True)]


Labels = Mapping[str, Sequence[str]]
CASES = ""
"""In the place of a score: of this baseline only the cases are needed."""

_COLUMNS = (
    ("run_id", pa.string(), "the baseline"),
    ("sample_id", pa.string(), "the sample's id"),
    ("method", pa.string(), "the method, as the baseline names it"),
    ("repeat", pa.int64(), "which output of this method for this sample, from 1"),
    ("sample_sha256", pa.string(), "digest of the question, its references and labels"),
    ("answer_sha256", pa.string(), "digest of the question, the answer and the texts of its chunks"),
    ("score", pa.string(), "name of the score; `failure_mode:NAME` for a failure mode; empty where only the cases count"),
    ("value", pa.float64(), "mean over the iterations, in the native scale; null where there is none"),
    ("pass_rate", pa.float64(), "share of the verdicts over the iterations that are passes; null without a verdict"),
    ("is_lost", pa.bool_(), "whether there is no value because a judgement, or the system, failed"),
    ("is_silent", pa.bool_(), "whether the value says no more than that the answer states nothing"),
)
_SCHEMA = table_schema(*_COLUMNS)
_IDENTITY = b"ragpipe.baselines"
_LEFT_OUT = "left_out"
_READ_BY_NO_METRIC = {"id", "category", "subcategory", "difficulty", "question_type", "vault", "tags", "meta"}


@dataclass
class BaselineNeeds:
    """What gates need of one baseline: their scores and failure modes (`Gate.measure`), and which cases each of them is about (`Gate.labels`)."""

    scores: set[str] = field(default_factory=set)
    wheres: list[Labels] = field(default_factory=list)


class LeftOut(NamedTuple):
    """The cases of a baseline that a gate is about: how many, how many of them the run does not have, and the sample of the first
    of these, None where there is none."""

    chosen: int
    missing: int
    first: str | None


@dataclass(frozen=True)
class Baseline:
    """One baseline as a run keeps it: `manifest` (run id, name, identity, prompts, cases that the run left out), and the rows of its
    table."""

    manifest: Mapping[str, Any]
    rows: pa.Table

    def score(self, name: str) -> pa.Table:
        """The rows of one score, one per shared case."""
        return self.rows.filter(pc.equal(self.rows["score"], name))

    def left_out(self, where: Labels) -> LeftOut:
        """The cases of the baseline that a gate is about and the run does not have, by the labels that they have in the baseline."""
        return LeftOut(*self.manifest[_LEFT_OUT][canonical_json(where)])

    def holds(self, needs: BaselineNeeds) -> bool:
        """Whether the copy has all that is needed."""
        wheres = {canonical_json(where) for where in needs.wheres}
        return needs.scores <= {*self.rows["score"].to_pylist()} and wheres <= self.manifest[_LEFT_OUT].keys()


def read_baselines(path: Path) -> dict[str, Baseline]:
    """The baselines of a table by run id. Raises DataError for a table that ragpipe did not write."""
    with open_table(path, _SCHEMA.names) as file:
        kept = (file.schema_arrow.metadata or {}).get(_IDENTITY)
        table = file.read(columns=_SCHEMA.names)
    manifests = json.loads(kept) if kept is not None else {"": {}}
    if not all(_LEFT_OUT in manifest for manifest in manifests.values()):
        raise run_file_error(path, "no identity of a baseline", "the table that ragpipe wrote")
    return {
        run_id: Baseline(manifest, table.filter(pc.equal(table["run_id"], run_id))) for run_id, manifest in manifests.items()
    }


def write_baselines(
    target: RunFolder, needs: Mapping[str, BaselineNeeds], folders: Mapping[str, RunFolder], kept: Mapping[str, Baseline]
) -> None:
    """Write `baseline.parquet` of a run whose cases are frozen; a table with the same content is left alone.

    By the run id of each baseline: what gates need of it, its folder where it is read, and what another copy has of it already,
    which comes first. Raises DataError for a baseline that is not scored to its end or does not give one of the scores.
    """
    cases = read_columns(target.outputs, OUTPUT_KEY)
    tables, manifests = [], {}
    for run_id, need in needs.items():
        if run_id in kept and kept[run_id].holds(need):
            manifests[run_id] = dict(kept[run_id].manifest)
            rows = kept[run_id].rows
            tables.append(rows.filter(pc.is_in(rows["score"], pa.array(sorted(need.scores)))))
        else:
            tables.append(_rows(folders[run_id], run_id, sorted(need.scores), cases))
            manifests[run_id] = _manifest(folders[run_id]) | {
                _LEFT_OUT: {canonical_json(where): _left_out(folders[run_id], where, cases) for where in need.wheres}
            }
    schema = _SCHEMA.with_metadata({_IDENTITY: canonical_json(manifests)})
    with open_unless_same(target.baseline) as file, parquet_writer(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.cast(schema))


def sample_digests(samples: Path) -> dict[str, str]:
    """By sample id the sha256 of all that a metric may read of the sample: question, earlier turns, references, labels."""
    names = [name for name in SAMPLES.names if name not in _READ_BY_NO_METRIC]
    table = read_columns(samples, ["id", *names])
    columns = [table[name].to_pylist() for name in names]
    return dict(zip(table["id"].to_pylist(), map(sha256, map(list, zip(*columns, strict=True))), strict=True))


def _manifest(folder: RunFolder) -> dict[str, Any]:
    """What says whether its scores may be compared."""
    manifest = read_json(folder.manifest)
    parts = ("judge_identity", "embedder", "parser", "metrics", "scoring")
    identity = {key: manifest["identity"].get(key) for key in parts}
    kept = {key: manifest[key] for key in ("run_id", "name", "prompts", *TIMES) if key in manifest}
    if "pair" in manifest.get("data", {}):
        metrics = read_json(folder.final.metrics)
        kept |= {"calibrated": metrics["judge"]["calibrated"], "corrected": metrics.get("corrected", {}).get(PREFERENCE)}
    return {**kept, "identity": identity}


def _rows(folder: RunFolder, run_id: str, names: Sequence[str], cases: pa.Table) -> pa.Table:
    if not folder.final.metrics.is_file():
        raise _unusable(folder, "not scored to its end", "a finished run", "start its own command again")
    metrics = read_json(folder.final.metrics)
    known = [CASES, *metrics["declared"], *(f"{MODE_PREFIX}{mode}" for mode in metrics["overall"]["failure_modes"])]
    if missing := [name for name in names if name not in known]:
        found = f"no score {', '.join(missing)}"
        raise _unusable(folder, found, f"one of {', '.join(known[1:])}", "hold the gate against another run")
    records = [folder.iteration(number).records for number in metrics["iterations"]]
    keys = cases_of(records).names
    places = paired_cases(keys, cases).base
    shared, digests = keys.take(pa.array(places)), sample_digests(folder.samples)
    answers = np.array(list(answer_digests(folder)))[places]
    head = {
        "run_id": pa.array([run_id] * len(places), pa.string()),
        **{name: shared[name] for name in OUTPUT_KEY},
        "sample_sha256": pa.array([digests.get(sample) for sample in shared["sample_id"].to_pylist()], pa.string()),
        "answer_sha256": pa.array(answers, pa.string()),
    }
    tables = []
    with opened_side(folder, read_json(folder.manifest)) as side:
        modes = Modes.of(side)
        for name in names:
            of_mode = name.startswith(MODE_PREFIX) or name == CASES
            values = rates = np.full(len(keys), np.nan)
            if name != CASES:
                values, rates = modes.values(name.removeprefix(MODE_PREFIX)) if of_mode else side.values(name)
            values, rates = values[places], rates[places]
            is_lost = np.isnan(values) if of_mode else _failed(records[0], name)[places] & np.isnan(values)
            is_silent = np.zeros(len(places), np.bool_) if of_mode else side.silent(name)[places]
            figures = {
                "score": pa.array([name] * len(places), pa.string()),
                "value": pa.array(values, mask=np.isnan(values)),
                "pass_rate": pa.array(rates, mask=np.isnan(rates)),
                "is_lost": pa.array(is_lost),
                "is_silent": pa.array(is_silent),
            }
            tables.append(pa.table({**head, **figures}).cast(_SCHEMA))
    return pa.concat_tables(tables) if tables else _SCHEMA.empty_table()


def _left_out(folder: RunFolder, where: Labels, cases: pa.Table) -> LeftOut:
    """The cases of a baseline that `where` chooses and that are not among `cases`, those of the run."""
    records = [folder.iteration(number).records for number in read_json(folder.final.metrics)["iterations"]]
    keys = cases_of(records).names
    if "method" in where and one_method_each(keys, cases):  # the two are paired, and `where` names that of the run
        if not set(where["method"]) & set(cases["method"].to_pylist()):
            return LeftOut(0, 0, None)
        where = {name: labels for name, labels in where.items() if name != "method"}
    chosen = chosen_cases(records[0], where, len(keys))
    is_missing = chosen.copy()
    is_missing[paired_cases(keys, cases).base] = False
    places = np.flatnonzero(is_missing)
    first = keys["sample_id"][int(places[0])].as_py() if len(places) else None
    return LeftOut(int(np.sum(chosen)), len(places), first)


def _failed(records: Path, name: str) -> Flags:
    """The cases whose judgement of a score, or whose system, failed, in one iteration; of a preference those without an own answer too."""
    lost = lost_values(records, name)
    failed = lost["system error"] | lost["judge error"]
    if name != PREFERENCE:
        return failed
    reasons = read_columns(records, [f"{name}.reason"])[f"{name}.reason"]
    wordless = pc.is_in(reasons, pa.array(["no_answer", "degenerate_answer"], reasons.type)).to_numpy()
    return np.array(failed | lost["not recorded"] | wordless, dtype=np.bool_)


def _unusable(folder: RunFolder, content: str, expected: str, fix: str) -> DataError:
    problem = Problem(str(folder.root), "scoring.gates", content, expected, fix)
    return DataError("a gate's baseline cannot be used", [problem])
