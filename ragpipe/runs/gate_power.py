"""What the gates of a run will be able to tell, said before it: from the number of its questions and from earlier runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragpipe.comparison.drop_gates import Baseline, read_baselines
from ragpipe.comparison.side import paired_cases
from ragpipe.core.errors import RagpipeError
from ragpipe.core.sample import OUTPUT_KEY
from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import on_one_line
from ragpipe.runs.calibration_states import ScoringSources
from ragpipe.runs.settings import RunConfig
from ragpipe.score.case_blocks import SCORE_COLUMNS, CaseBlock, aligned
from ragpipe.score.dimensions import Fields, case_columns
from ragpipe.score.gate_results import Precision, power_words, precision_before, precision_before_comparison, precision_of
from ragpipe.score.gate_rules import define
from ragpipe.score.gate_settings import Gate
from ragpipe.score.normalisation import OVERALL
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import LATEST, RunFolder
from ragpipe.store.run_tables import read_columns, read_json

Whole = NDArray[np.int64]

_KINDS = {"binary": "0/1", "share": "shares", "grade": "grades"}


def gate_power_lines(config: RunConfig, frozen: RunFolder) -> list[str]:
    """A line for each gate by interval: the true values that it finds with the cases that are frozen in a folder; of a gate against
    a baseline with those that `baseline.parquet` there has too, or that cases of the baseline are missing.

    How much values vary is taken from the newest run of this name, where its gate of the same name has an interval; else cases are
    taken to be as unlike, and those of a question as alike, as they can be. Raises DataError for tables that cannot be read.
    """
    gates = config.scoring.active_gates()
    if not gates:
        return []
    baselines = read_baselines(frozen.baseline) if any(gate.baseline for gate in gates.values()) else {}
    questions = _questions(gates, frozen, _shared(gates, frozen, baselines))
    earlier, run_id = _earlier_gates(config)
    lines = []
    for name, gate in gates.items():
        if gate.preference_against is not None:
            continue  # a judge is asked after the run
        if gate.against is not None and gate.baseline is None:
            lines.append(f"gate {name}: not applicable, there is no earlier run of this name")
            continue
        if words := _refusal(gate, baselines):
            lines.append(f"gate {name}: {words}")
            continue
        definition = _definition(config, name, gate)
        precision, source = _expected(definition, questions[name], earlier.get(name), run_id, config.scoring)
        if precision and (words := power_words(definition, precision, config.scoring.level)):
            lines.append(on_one_line(f"gate {name}: {words} ({source})", 1000))
    return lines


def _expected(
    definition: Mapping[str, Any], questions: Whole, earlier: Mapping[str, Any] | None, run_id: str, scoring: ScoringSettings
) -> tuple[Precision | None, str]:
    is_same = earlier is not None and _limited(earlier) == _limited(definition)
    measured = precision_of(earlier, scoring.level) if earlier and is_same else None
    lacking = "no earlier run"
    if measured and measured.labels is not None:
        if scoring.calibration is not None:
            return measured, f"by the labels in run {run_id}, if the answers are the same"
        measured, lacking = None, f"the judge alone, not by the labels in run {run_id}"
    if measured and len(questions):
        return measured.with_cases(len(questions)), f"by the spread in run {run_id}"
    if "against" in definition:
        kind = definition["kind"]
        source = f"by no earlier comparison: by the usual spread of {_KINDS[kind]}"
        return precision_before_comparison(questions, kind), source
    if definition["unscaled"]:
        return None, ""
    return precision_before(questions), f"by {lacking}: with scores between 0 and 1 it tells more"


def _limited(gate: Mapping[str, Any]) -> tuple[object, ...]:
    """What a gate limits, without its limits: gates that agree in it have values that vary alike."""
    return gate["of"], gate.get("score"), gate.get("failure_mode"), gate["where"], "against" in gate


def _definition(config: RunConfig, name: str, gate: Gate) -> dict[str, Any]:
    """The gate with its defaults filled in; `unscaled` for a mean whose score has no scale, `kind` of its values."""
    scoring = config.scoring
    specs = scoring.all_specs([spec for metric in config.metrics.values() for spec in metric.scores()])
    declared: dict[str, ScoreSpec] = {spec.name: spec for spec in (*specs, OVERALL)}
    spec = declared.get(gate.score or "")
    filled = define(
        name,
        gate,
        spec,
        judged=spec is not None and scoring.passes(spec),
        rests_on=(),
        coverage_floor=scoring.coverage_floor,
        inconclusive=scoring.inconclusive,
        untrusted=False,
    )
    unscaled = filled["of"] == "mean" and (spec is None or spec.low is None)
    is_share = spec is not None and (spec.low, spec.high) == (0, 1)
    kind = "binary" if filled["of"] != "mean" or (spec and spec.binary) else "share" if is_share else "grade"
    return {**filled, "unscaled": unscaled, "kind": kind}


def _refusal(gate: Gate, baselines: Mapping[str, Baseline]) -> str:
    """Why a gate will have no evidence, whatever the scores: the run leaves out cases of its baseline. Empty where it does not."""
    if gate.baseline is None or "data" in gate.accept:
        return ""
    left_out = baselines[gate.baseline].left_out(gate.labels())
    if not left_out.missing:
        return ""
    missing = f"{left_out.missing:,} of {left_out.chosen:,} cases of run {gate.baseline} are not in this run"
    return f"it will have no evidence, for {missing}; accept: [data] allows it"


def _shared(
    gates: Mapping[str, Gate], frozen: RunFolder, baselines: Mapping[str, Baseline]
) -> dict[str, set[tuple[object, ...]]]:
    """Of each gate against a baseline the keys of the cases that the baseline has too."""
    held = {name: gate for name, gate in gates.items() if gate.against is not None and gate.baseline is not None}
    if not held:
        return {}
    cases = read_columns(frozen.outputs, OUTPUT_KEY)
    shared = {}
    for name, gate in held.items():
        pairs = paired_cases(baselines[str(gate.against)].score(gate.measure), cases)
        shared[name] = _keys(cases.take(pairs.candidate))
    return shared


def _keys(table: pa.Table) -> set[tuple[object, ...]]:
    return {*zip(*(table[name].to_pylist() for name in OUTPUT_KEY), strict=True)}


def _questions(
    gates: Mapping[str, Gate], frozen: RunFolder, shared: Mapping[str, Collection[tuple[object, ...]]]
) -> dict[str, Whole]:
    """Of each gate the question of every case that it is about, as numbers; of those in `shared` alone where it is there."""
    numbers: dict[str, int] = {}
    chosen: dict[str, list[Whole]] = {name: [] for name in gates}
    missing_gold = ScoringSources({}, frozen).missing_gold()
    for block in _blocks(frozen.samples, frozen.outputs):
        keys = list(zip(*(block.outputs[name].to_pylist() for name in OUTPUT_KEY), strict=True))
        codes = np.array([numbers.setdefault(str(key[0]), len(numbers)) for key in keys], dtype=np.int64)
        fields = Fields(case_columns(block, 1, np.full(len(block), np.nan), missing_gold))
        for name, gate in gates.items():
            is_meant = fields.matching(gate.labels())
            if name in shared:
                is_meant &= np.array([key in shared[name] for key in keys], dtype=np.bool_)
            chosen[name].append(codes[is_meant])
    return {name: np.concatenate([np.empty(0, dtype=np.int64), *parts]) for name, parts in chosen.items()}


def _blocks(samples: Path, outputs: Path) -> Iterator[CaseBlock]:
    nothing = pa.table({name: pa.array([], pa.string()) for name in SCORE_COLUMNS})
    for table, labels in aligned(samples, outputs):
        yield CaseBlock(table, labels, nothing, np.empty(0, dtype=np.int64))


def _earlier_gates(config: RunConfig) -> tuple[dict[str, Any], str]:
    """The gates of the newest run of this name, by name, and its id; none where there is no such run that can be read."""
    try:
        folder = RunFolder.find(Path(config.output_dir) / config.name / LATEST)
        document = read_json(folder.gates)
        return {gate["name"]: gate for gate in document["gates"]}, folder.root.name
    except (RagpipeError, KeyError):
        return {}, ""
