"""One judged iteration is scored: its records, metrics, low scores and costs, from its tables."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.errors import ConfigError
from ragpipe.core.score import ScoreSpec, warnings_about
from ragpipe.core.usage import Price, Usage
from ragpipe.core.version import FORMAT
from ragpipe.metrics.from_config import shipped_scores
from ragpipe.runs.calibration_states import ScoringSources, measured_together, score_origins
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.aggregate import aggregate
from ragpipe.score.case_blocks import BLOCK, CaseBlock, case_blocks, keys_of
from ragpipe.score.cost import JudgeTimes, cost, served_line, signed
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.dimensions import DIMENSIONS, case_columns
from ragpipe.score.gate_results import choices, gate_results, judged_scores
from ragpipe.score.jury_agreement import jury_document, jury_warnings
from ragpipe.score.low_scores import LowScores
from ragpipe.score.pointer_checks import Pointers, repeated_questions
from ragpipe.score.records import BlockDescriber, DescribedBlock, case_rules, records_schema
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.files import json_unless_same, open_unless_same
from ragpipe.store.parquet_parts import RowGroups, parquet_writer


@dataclass(frozen=True)
class ScoreInputs:
    """What one iteration is scored from.

    `folder` has `scores.parquet` and `judge_inputs.parquet`, and gets the results; `specs` are the declared scores in config order.
    `signature` is that of the run, without the models that answered; `judge` what there is to say of it (`judge_description`). The
    run `run_id` pays for new replies, and has `spent` so much for this iteration; `rates` are the prices of replies by the name of
    the judge. `sources` is what scoring reads beside these tables, `calibration` what `calibration_states` says; `block` cases are
    scored at once.
    """

    folder: Path
    samples: Path
    outputs: Path
    specs: Sequence[ScoreSpec]
    settings: ScoringSettings
    signature: str
    judge: Mapping[str, Any]
    run_id: str
    spent: Usage
    rates: Mapping[str, Price]
    system_price: Price | None = None
    sources: ScoringSources | None = None
    calibration: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    block: int = BLOCK

    @property
    def iteration(self) -> int:
        """The number in the folder's name, `iteration-3`; 1 for a folder with another name."""
        match = re.fullmatch(r"iteration-(\d+)", self.folder.name)
        return int(match[1]) if match else 1

    @property
    def all_specs(self) -> list[ScoreSpec]:
        """The declared scores and the composites."""
        return list(self.settings.all_specs(self.specs))


def score_iteration(inputs: ScoreInputs) -> dict[str, Any]:
    """Score one iteration and return the content of `metrics.json`. Files that would not change are left alone.

    Raises ConfigError when the settings do not fit the scores.
    """
    if problems := scoring_faults(inputs.settings, inputs.specs, shipped_scores):
        raise ConfigError("the scoring section does not fit the scores of this run", problems)
    results = scored_cases(inputs)
    costs = cost(
        inputs.folder / "judge_inputs.parquet",
        results.count,
        case_times=results.case_times,
        payer=f"{inputs.run_id}/{inputs.iteration}",
        spent=inputs.spent,
        rates=inputs.rates,
    )
    served_models = costs["used"]["served_models"]
    head = {"format": FORMAT, "signature": signed(inputs.signature, served_models)}
    metrics = {**head, "iteration": inputs.iteration, "judge": dict(inputs.judge), **results.metrics}
    if "members" in inputs.judge:
        scores = inputs.folder / "scores.parquet"
        metrics["jury"] = jury_document(scores, inputs.specs, inputs.judge["members"])
        metrics["warnings"] = [*warnings_about("jury", jury_warnings(metrics["jury"])), *metrics["warnings"]]
    metrics["warnings"] += warnings_about("ids", repeated_questions(inputs.samples))
    metrics["warnings"] += warnings_about("served_models", filter(None, [served_line(served_models)]))
    low_scores = {**head, "iteration": inputs.iteration, "scores": results.low_scores}
    json_unless_same(inputs.folder / "metrics.json", metrics)
    json_unless_same(inputs.folder / "low_scores.json", low_scores)
    json_unless_same(inputs.folder / "cost.json", {**head, **costs})
    return metrics


@dataclass(frozen=True)
class _ScoredCases:
    """What follows from all cases: parts of both documents, their number, and the judge's milliseconds per case."""

    metrics: dict[str, Any]
    low_scores: Any
    count: int
    case_times: array[float]


def scored_cases(inputs: ScoreInputs) -> _ScoredCases:
    """Write `records.parquet` and aggregate. What this accumulates is freed on return: the costs need the memory."""
    settings, specs = inputs.settings, inputs.all_specs
    names = [spec.name for spec in specs]
    fields = {field for name in (*DIMENSIONS, *settings.slices, *settings.low_scores.by) for field in name.split("*")}
    accumulators = Accumulators(names, sorted(fields), choices(settings), inputs.system_price)
    accumulators.findings = case_rules(settings)
    passing = [spec.name for spec in specs if settings.passes(spec)]
    low_scores = LowScores(specs, settings.low_scores, passing)
    times, pointers = JudgeTimes(inputs.folder / "judge_inputs.parquet"), Pointers()
    describer = BlockDescriber(inputs.specs, inputs.settings, inputs.judge.get("label"))
    described = (describer.describe(*block) for block in _read_blocks(inputs, times))
    _write_records(inputs, described, accumulators, low_scores, pointers)
    accumulators.close()
    aggregated = aggregate(accumulators, specs, settings)
    together = measured_together([inputs.folder], aggregated["declared"], settings, inputs.sources)
    gates = gate_results(accumulators, aggregated, specs, settings, untrusted_scores(inputs), together.gates)
    aggregated["warnings"] += warnings_about("ids", pointers.warnings())
    metrics = {
        "scoring": {**settings.identity(), "weights_used": weights_used(settings, specs)},
        **aggregated,
        **accumulators.findings.document(),
        "calibration": dict(inputs.calibration),
        **({"corrected": together.corrected} if together.corrected else {}),
        "gates": gates,
    }
    return _ScoredCases(metrics, low_scores.document(accumulators, inputs.samples), accumulators.n, times.measured)


def _write_records(
    inputs: ScoreInputs,
    described: Iterator[DescribedBlock],
    accumulators: Accumulators,
    low_scores: LowScores,
    pointers: Pointers,
) -> None:
    """Write a row of `records.parquet` per case, and take each block into the accumulators."""
    path, schema = inputs.folder / "records.parquet", records_schema(inputs.all_specs)
    with open_unless_same(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        groups = RowGroups(writer)
        for scored in described:
            block = scored.block
            accumulators.add(block, scored.fields, scored.scored, scored.n_failed)
            low_scores.add(scored.facts)
            pointers.add(block.outputs, block.samples, block.chunks, scored.contexts)
            accumulators.findings.add(scored.facts, scored.findings)
            accumulators.support.add(block, scored.facts)
            groups.add(scored.records)
        groups.write()


def _read_blocks(inputs: ScoreInputs, times: JudgeTimes) -> Iterator[tuple[CaseBlock, dict[str, pa.Array]]]:
    blocks = case_blocks(inputs.samples, inputs.outputs, inputs.folder / "scores.parquet", size=inputs.block)
    missing_gold = inputs.sources.missing_gold() if inputs.sources else None
    for block in blocks:
        yield block, case_columns(block, inputs.iteration, times.take(keys_of(block.outputs)), missing_gold)


def untrusted_scores(inputs: ScoreInputs) -> set[str]:
    """The scores that may pass no critical gate: those whose judge is not calibrated, and what is made of them."""
    settings = inputs.settings
    if not settings.active_gates() or settings.accept_uncalibrated or inputs.judge["calibrated"]:
        return set()
    names = [spec.name for spec in inputs.all_specs]
    calibrated = {name for name, state in inputs.calibration.items() if state["calibrated"]}
    return judged_scores(settings, names, score_origins(inputs.folder).asked - calibrated)


def weights_used(settings: ScoringSettings, specs: Sequence[ScoreSpec]) -> dict[str, float]:
    """The weights of the scores that this run has: what a case's weights are renormalised from."""
    names = {spec.name for spec in specs}
    return {name: weight for name, weight in settings.weight_shares().items() if name in names and weight > 0}
