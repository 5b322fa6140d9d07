"""How the iterations of one run are scored: with which prices, spend, calibration and signature."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import ConfigError
from ragpipe.core.score import ScoreSpec, warnings_about
from ragpipe.core.usage import Price, Usage
from ragpipe.core.version import FORMAT
from ragpipe.metrics.from_config import shipped_scores
from ragpipe.report.settings import run_signature
from ragpipe.runs.budget import CarriedSpend, applied_rates, are_same_rates, configured_rates
from ragpipe.runs.calibration_states import (
    ScoringSources,
    calibration_states,
    calibration_words,
    judge_calibrated,
    judge_description,
    measured_together,
    score_origins,
)
from ragpipe.runs.collected_outputs import output_versions
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.runs.identity import metric_signatures, system_versions
from ragpipe.runs.judge_access import store_place
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.aggregate import aggregate
from ragpipe.score.case_blocks import BLOCK, CaseBlock, case_blocks, keys_of
from ragpipe.score.cost import JudgeTimes, cost, served_line, signed
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.dimensions import DIMENSIONS, case_columns
from ragpipe.score.gate_results import choices, gate_results, judged_scores
from ragpipe.score.jury_agreement import jury_document, jury_warnings
from ragpipe.score.low_scores import LowScores
from ragpipe.score.pointer_checks import Pointers
from ragpipe.score.records import BlockDescriber, DescribedBlock, case_rules, records_schema
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.call_store import paid_by
from ragpipe.store.files import json_unless_same, open_unless_same
from ragpipe.store.parquet_parts import RowGroups, parquet_writer
from ragpipe.store.progress import mark_phase
from ragpipe.store.run_tables import count_rows, read_columns


class RunScoring:
    """Scores the judged iterations of a run. `carried_spend` is what earlier starts have paid."""

    def __init__(self, spec: RunSpec, policy: EvaluatePolicy):
        self._spec, self._policy = spec, policy
        self._config, self._folder = spec.config, spec.folder
        self.carried_spend = CarriedSpend(spec.folder, store_place(spec.config), spec.run_id)

    def score(self, iteration: int, manifest: Mapping[str, Any]) -> None:
        """Score one judged iteration."""
        prices = self._config.system.prices
        folder = self._folder.iteration(iteration)
        states = calibration_states(
            folder.root, self._folder.calibration, self._spec.identity, self._spec.score_specs, self._config.scoring
        )
        inputs = ScoreInputs(
            folder.root,
            samples=self._folder.samples,
            outputs=self._folder.outputs,
            specs=self._spec.score_specs,
            settings=self._config.scoring,
            signature=run_signature(
                version=str(self._spec.identity["ragpipe"]),  # a later one that verifies the run gives it the same words
                dataset=self._spec.source.name,
                dataset_digest=self._spec.source.digest,
                judge=self._config.judge.label,
                calibration=calibration_words(states),
                metrics=metric_signatures(self._config),
                scoring=self._config.scoring.identity(),
                n=count_rows(self._folder.outputs),
                iteration=iteration,
                versions=system_versions(self._spec.identity.get("system", {}), output_versions(self._folder.outputs)),
            ),
            judge=judge_description(self._config, judge_calibrated(states)),
            spent=self.spent(iteration),
            run_id=self._spec.run_id,
            rates=self._rates(iteration),
            system_price=prices.of("system", "system.prices") if prices else None,
            sources=ScoringSources(manifest, self._folder),
            calibration=states,
        )
        mark_phase(folder.progress, "scoring")
        score_iteration(inputs)
        mark_phase(folder.progress, "done")

    def combine(self, iterations: Sequence[int], manifest: Mapping[str, Any]) -> None:
        """Combine the scored iterations into `final/` and decide the gates."""
        combine_iterations(self._folder, iterations, self._config.scoring, ScoringSources(manifest, self._folder))

    def has_current_prices(self, iteration: int) -> bool:
        """Whether the iteration's costs were computed with these prices: they are in no identity, and apply when read."""
        applied = applied_rates(self._folder, iteration)
        return applied is not None and are_same_rates(applied, self._rates(iteration))

    def spent(self, iteration: int) -> Usage:
        """What an iteration has cost in all its starts."""
        recorded = self._policy.recorded_spend(iteration)
        if recorded is not None:
            return recorded
        if self._spec.is_own_source:
            return self.carried_spend.spend_of(iteration)
        return paid_by(store_place(self._config), self._spec.run_id, iteration)

    def _rates(self, iteration: int) -> Mapping[str, Price]:
        recorded = self._policy.recorded_rates(iteration)
        return configured_rates(self._config) if recorded is None else recorded


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
    accumulators = Accumulators(names, _group_fields(settings), choices(settings), inputs.system_price)
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


def _group_fields(settings: ScoringSettings) -> list[str]:
    return sorted({field for name in (*DIMENSIONS, *settings.slices, *settings.low_scores.by) for field in name.split("*")})


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
    metrics["warnings"] += warnings_about("ids", _repeated_questions(inputs.samples))
    metrics["warnings"] += warnings_about("served_models", filter(None, [served_line(served_models)]))
    low_scores = {**head, "iteration": inputs.iteration, "scores": results.low_scores}
    json_unless_same(inputs.folder / "metrics.json", metrics)
    json_unless_same(inputs.folder / "low_scores.json", low_scores)
    json_unless_same(inputs.folder / "cost.json", {**head, **costs})
    return metrics


_REPEATED = 0.05  # the share of samples whose question came before from which on it is warned of


def _repeated_questions(samples: Path) -> list[str]:
    """That questions come again under other ids: intervals take them for independent, and are too narrow."""
    table = read_columns(samples, ["question", "history"])
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(table["question"]))
    count = len(pc.unique(pc.binary_join_element_wise(plain, pc.fill_null(table["history"], ""), "\0")))
    if len(table) - count < _REPEATED * len(table) or len(table) == count:
        return []
    return [
        f"{len(table):,} samples hold {count:,} different questions: repeated ones count as independent, so intervals are too narrow"
    ]
