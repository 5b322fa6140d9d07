"""The score stage: `records.parquet`, `metrics.json`, `low_scores.json`, `cost.json` of one iteration, from its tables alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.usage import Usage
from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.aggregate import aggregate
from ragpipe.scoring.case_blocks import BLOCK, CaseBlock, case_blocks
from ragpipe.scoring.case_records import records_of, records_schema
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.cost import cost
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.dimensions import DIMENSIONS, Fields, case_columns
from ragpipe.scoring.gates.calibration import judged_scores
from ragpipe.scoring.gates.gate_results import choices, gate_results
from ragpipe.scoring.judge_latency import JudgeTimes
from ragpipe.scoring.pointer_checks import Pointers
from ragpipe.scoring.rules.diagnosis import DiagnosisAccumulator
from ragpipe.scoring.rules.low_scores import LowScores
from ragpipe.scoring.rules.rule_inputs import Facts
from ragpipe.scoring.scored_columns import score_block
from ragpipe.scoring.served_models import served_line, signed
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.scoring.system_usage import Price
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same
from ragpipe.store.run.run_tables import open_table


def score_iteration(
    iteration_folder: Path,
    *,
    samples: Path,
    outputs: Path,
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
    signature: str,
    judge: Mapping[str, Any],
    run_id: str,
    spent: Usage,
    rates: Mapping[str, Rates],
    system_price: Price | None = None,
    block: int = BLOCK,
) -> dict[str, Any]:
    """Score one iteration and return what `metrics.json` holds.

    Reads `scores.parquet` and `judge_inputs.parquet` of `iteration_folder` and the run's `samples` and `outputs`. `specs`
    are the declared scores in config order. `judge` (`label`, `calibrated`) goes into the metrics as it is; `run_id` and
    `spent` say who paid what, `rates` what replies cost now (`ragpipe.scoring.cost.cost`); `system_price`
    prices the tokens of the system under test. Files that would not change are left alone. Raises ConfigError when the settings do not fit the scores.
    """
    if problems := scoring_faults(settings, specs):
        raise ConfigError("the scoring section does not fit the scores of this run", problems)
    iteration = _iteration(iteration_folder)
    everything = settings.all_specs(specs)
    ledger = Accumulators([spec.name for spec in everything], _fields(settings), choices(settings), system_price)
    ledger.findings = DiagnosisAccumulator(settings.failure_modes, settings.diagnosis, settings.counted_items())
    low = LowScores(everything, settings.low_scores, [spec.name for spec in everything if settings.passes(spec)])
    details = settings.reads_details([spec.name for spec in specs])
    cases = case_blocks(samples, outputs, iteration_folder / "scores.parquet", details=details, size=block)
    times, pointers = JudgeTimes(iteration_folder / "judge_inputs.parquet"), Pointers()
    _write_records(
        iteration_folder / "records.parquet", cases, times, iteration, specs, settings, ledger, low, pointers
    )
    ledger.close()
    found = aggregate(ledger, everything, settings)
    gates = gate_results(ledger, found, everything, settings, _untrusted(settings, everything, judge, iteration_folder))
    found["warnings"] += pointers.warnings()
    lows, findings, n = low.document(ledger), ledger.findings.document(), ledger.n
    del ledger, low  # cost needs room of its own: a mark for every reply
    costs = cost(
        iteration_folder / "judge_inputs.parquet",
        n,
        case_times=times.measured,
        payer=f"{run_id}/{iteration}",
        spent=spent,
        rates=rates,
    )
    signature = signed(signature, costs["used"]["served_models"])
    found["warnings"] += filter(None, [served_line(costs["used"]["served_models"])])
    metrics = {
        "format": FORMAT,
        "signature": signature,
        "iteration": iteration,
        "judge": dict(judge),
        "scoring": {**settings.identity(), "weights_used": _weights_used(settings, everything)},
        **found,
        **findings,
        "gates": gates,
    }
    low_scores = {"format": FORMAT, "signature": signature, "iteration": iteration, "scores": lows}
    json_unless_same(iteration_folder / "metrics.json", metrics)
    json_unless_same(iteration_folder / "low_scores.json", low_scores)
    json_unless_same(iteration_folder / "cost.json", {"format": FORMAT, "signature": signature, **costs})
    return metrics


def _write_records(
    path: Path,
    cases: Iterable[CaseBlock],
    times: JudgeTimes,
    iteration: int,
    specs: Sequence[ScoreSpec],
    settings: ScoringSettings,
    ledger: Accumulators,
    low: LowScores,
    pointers: Pointers,
) -> None:
    """Score block after block: a row of `records.parquet` for each case, and all of it into the ledger, the low scores and
    the pointers."""
    schema = records_schema(settings.all_specs(specs))
    with open_unless_same(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        for block in cases:
            columns = case_columns(block, iteration, times.take(block))
            fields = Fields(columns)
            scored = score_block(block, fields, specs, settings)
            facts = Facts(
                block, {**scored.columns, OVERALL.name: scored.overall}, columns, [spec.name for spec in specs]
            )
            ledger.add(block, fields, scored)
            low.add(facts)
            pointers.add(block.outputs, block.samples)
            writer.write_table(records_of(columns, scored, ledger.findings.add(facts), schema))


def _fields(settings: ScoringSettings) -> list[str]:
    """The fields that cases are broken down by."""
    return sorted(
        {field for name in (*DIMENSIONS, *settings.slices, *settings.low_scores.by) for field in name.split("*")}
    )


def _untrusted(
    settings: ScoringSettings, specs: Sequence[ScoreSpec], judge: Mapping[str, Any], folder: Path
) -> set[str]:
    """The scores that may pass no critical gate: those of a judge that is not calibrated."""
    if not settings.active_gates() or settings.accept_uncalibrated or judge["calibrated"]:
        return set()
    return judged_scores(settings, [spec.name for spec in specs], _judged(folder))


def _judged(folder: Path) -> set[str]:
    """The scores of the metrics that asked the judge in this iteration, as its tables say. A text for an embedder is no
    question: it has no template."""
    with open_table(folder / "judge_inputs.parquet", ["metric", "template"], read_dictionary=["metric"]) as file:
        asked = {
            name
            for batch in file.iter_batches(columns=["metric", "template"])
            for name in batch["metric"].filter(batch["template"].is_valid()).unique().to_pylist()
        }
    with open_table(folder / "scores.parquet") as file:
        if not file.num_row_groups:
            return set()
        rows = file.read_row_group(0, columns=["metric", "score_name"])  # a case has a row for every score
    pairs = zip(rows["metric"].to_pylist(), rows["score_name"].to_pylist(), strict=True)
    return {score for metric, score in pairs if metric in asked}


def _iteration(folder: Path) -> int:
    """The number in the folder's name, `iteration-3`; 1 for a folder with another name."""
    found = re.fullmatch(r"iteration-(\d+)", folder.name)
    return int(found[1]) if found else 1


def _weights_used(settings: ScoringSettings, specs: Sequence[ScoreSpec]) -> dict[str, float]:
    """The weights of the scores that this run has: what a case's weights are renormalised from."""
    names = {spec.name for spec in specs}
    return {name: weight for name, weight in settings.effective().items() if name in names and weight > 0}
