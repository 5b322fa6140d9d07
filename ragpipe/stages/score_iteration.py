"""The score stage: `records.parquet`, `metrics.json`, `low_scores.json`, `cost.json` of one iteration, from its tables alone."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import ConfigError
from ragpipe.metrics.shipped_scores import shipped_scores
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.price_rates import Rates
from ragpipe.schema.run_warning import warnings_about
from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.usage import Usage
from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.aggregate import aggregate
from ragpipe.scoring.case_blocks import BLOCK, CaseBlock, case_blocks, keys_of
from ragpipe.scoring.case_records import records_schema
from ragpipe.scoring.cost import JudgeTimes, cost, served_line, signed
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.described_blocks import BlockDescriber, DescribedBlock, case_rules
from ragpipe.scoring.dimensions import DIMENSIONS, case_columns
from ragpipe.scoring.gates.gate_results import choices, gate_results, judged_scores
from ragpipe.scoring.jury_agreement import jury_document, jury_warnings
from ragpipe.scoring.pointer_checks import Pointers
from ragpipe.scoring.rules.low_scores import LowScores
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.scoring.system_usage import Price
from ragpipe.stages.calibration_states import ScoringSources, measured_together, score_origins
from ragpipe.store.files.atomic import json_unless_same, open_unless_same
from ragpipe.store.files.parquet_parts import RowGroups, parquet_writer
from ragpipe.store.run.run_tables import read_columns


@dataclass(frozen=True)
class ScoreInputs:
    """What one iteration is scored from.

    Attributes:
        folder: has `scores.parquet` and `judge_inputs.parquet`, and gets the results.
        samples: the run's table of samples.
        outputs: the run's table of outputs.
        specs: the declared scores in config order.
        settings: how to score.
        signature: the signature of the run, without the models that answered.
        judge: `label`, `calibrated` and what else there is to say of it (`judge_description`), as they go into the metrics.
        run_id: the run that pays for new replies.
        spent: what its processes have paid for this iteration.
        rates: the prices of replies by the name of the judge.
        system_price: the price of the tokens of the system under test.
        sources: what scoring reads beside these tables; None where it reads nothing else.
        calibration: what `calibration_states` says of the scores that asked the judge.
        block: cases that are scored at once.
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
    rates: Mapping[str, Rates]
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
    results = _score_cases(inputs)
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


@dataclass(frozen=True)
class _ScoredCases:
    """The results of all cases: the parts of `metrics.json` and `low_scores.json` that follow from them, their number, and the
    judge's time per case in milliseconds."""

    metrics: dict[str, Any]
    low_scores: Any
    count: int
    case_times: array[float]


def _score_cases(inputs: ScoreInputs) -> _ScoredCases:
    """Write `records.parquet` and aggregate. What this accumulates is freed on return: the costs need the memory."""
    settings, specs = inputs.settings, inputs.all_specs
    names = [spec.name for spec in specs]
    accumulators = Accumulators(names, _group_fields(settings), choices(settings), inputs.system_price)
    accumulators.findings = case_rules(settings)
    passing = [spec.name for spec in specs if settings.passes(spec)]
    low_scores = LowScores(specs, settings.low_scores, passing)
    times, pointers = JudgeTimes(inputs.folder / "judge_inputs.parquet"), Pointers()
    with closing(_described(inputs, times)) as described:
        _write_records(inputs, described, accumulators, low_scores, pointers)
    accumulators.close()
    aggregated = aggregate(accumulators, specs, settings)
    together = measured_together([inputs.folder], aggregated["declared"], settings, inputs.sources)
    gates = gate_results(accumulators, aggregated, specs, settings, _untrusted_scores(inputs), together.gates)
    aggregated["warnings"] += warnings_about("ids", pointers.warnings())
    metrics = {
        "scoring": {**settings.identity(), "weights_used": _weights_used(settings, specs)},
        **aggregated,
        **accumulators.findings.document(),
        "calibration": dict(inputs.calibration),
        **({"corrected": together.corrected} if together.corrected else {}),
        "gates": gates,
    }
    return _ScoredCases(metrics, low_scores.document(accumulators), accumulators.n, times.measured)


def _write_records(
    inputs: ScoreInputs,
    described: Iterator[DescribedBlock],
    accumulators: Accumulators,
    low_scores: LowScores,
    pointers: Pointers,
) -> None:
    """Take block after block: one row of `records.parquet` per case, and everything into the accumulators, the low scores and
    the pointers. A block is written while the next one is scored."""
    path, schema = inputs.folder / "records.parquet", records_schema(inputs.all_specs)
    with open_unless_same(path) as file, parquet_writer(file, schema, compression="zstd") as writer:
        groups = RowGroups(writer)
        with done_behind(groups.add) as write:
            for scored in described:
                block = scored.block
                accumulators.add(block, scored.fields, scored.scored, scored.n_failed)
                low_scores.add(scored.facts)
                pointers.add(block.outputs, block.samples, block.chunks, scored.contexts)
                accumulators.findings.add(scored.facts, scored.findings)
                write(scored.records)
        groups.write()


def _described(inputs: ScoreInputs, times: JudgeTimes) -> Generator[DescribedBlock]:
    """All blocks in their order. One is read while the one before it is described."""
    describer = BlockDescriber(inputs.specs, inputs.settings)
    for block, columns in made_ahead(_read_blocks(inputs, times)):
        yield describer.describe(block, columns)


def _read_blocks(inputs: ScoreInputs, times: JudgeTimes) -> Iterator[tuple[CaseBlock, dict[str, pa.Array]]]:
    """The blocks of cases in their order, each with its `case_columns`."""
    blocks = case_blocks(inputs.samples, inputs.outputs, inputs.folder / "scores.parquet", size=inputs.block)
    missing_gold = inputs.sources.missing_gold() if inputs.sources else None
    for block in blocks:
        yield block, case_columns(block, inputs.iteration, times.take(keys_of(block.outputs)), missing_gold)


def _group_fields(settings: ScoringSettings) -> list[str]:
    """The fields that cases are grouped by."""
    return sorted(
        {field for name in (*DIMENSIONS, *settings.slices, *settings.low_scores.by) for field in name.split("*")}
    )


def _untrusted_scores(inputs: ScoreInputs) -> set[str]:
    """The scores that may pass no critical gate: those whose judge is not calibrated, and what is made of them."""
    settings = inputs.settings
    if not settings.active_gates() or settings.accept_uncalibrated or inputs.judge["calibrated"]:
        return set()
    names = [spec.name for spec in inputs.all_specs]
    calibrated = {name for name, state in inputs.calibration.items() if state["calibrated"]}
    return judged_scores(settings, names, score_origins(inputs.folder).asked - calibrated)


def _weights_used(settings: ScoringSettings, specs: Sequence[ScoreSpec]) -> dict[str, float]:
    """The weights of the scores that this run has: what a case's weights are renormalised from."""
    names = {spec.name for spec in specs}
    return {name: weight for name, weight in settings.weight_shares().items() if name in names and weight > 0}


_Item = TypeVar("_Item")


def made_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items in their order. One is made while the caller works on the one before it. Raises what making one raises, when
    its turn comes."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ragpipe-ahead") as thread:
        following: Future[object] = thread.submit(next, items, end)
        while (item := following.result()) is not end:
            following = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # it is the end, or an item


@contextmanager
def done_behind(work: Callable[[_Item], object]) -> Iterator[Callable[[_Item], None]]:
    """A function that hands an item to `work` in a thread, one after the other in their order, at most one waiting.

    It raises what work on an earlier item raised; so does the end of the block, which waits for the last one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ragpipe-behind") as thread:
        last: Future[object] | None = None

        def hand_over(item: _Item) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = thread.submit(work, item)

        yield hand_over
        if last is not None:
            last.result()
