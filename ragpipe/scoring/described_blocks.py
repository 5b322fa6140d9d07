"""Blocks of cases with all that scoring says of a block by itself. What depends on other blocks is kept by `Accumulators`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import failed_judgements
from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.case_flags import case_flags
from ragpipe.scoring.case_records import records_of, records_schema
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.dimensions import Fields
from ragpipe.scoring.pointer_checks import ContextCounts, context_counts
from ragpipe.scoring.rules.diagnosis import DiagnosisAccumulator, Findings
from ragpipe.scoring.rules.rule_inputs import Facts
from ragpipe.scoring.scored_columns import Scored, score_block
from ragpipe.scoring.settings import ScoringSettings


@dataclass(frozen=True)
class DescribedBlock:
    """A block of cases, scored.

    Attributes:
        block: the cases.
        fields: what they can be grouped by.
        scored: their scores.
        facts: what rules may ask of them.
        findings: what the rules say of them.
        n_failed: their failed judgements.
        contexts: the counts of their contexts by method.
        records: their rows of `records.parquet`.
    """

    block: CaseBlock
    fields: Fields
    scored: Scored
    facts: Facts
    findings: Findings
    n_failed: int
    contexts: Mapping[str, ContextCounts]
    records: pa.Table


def case_rules(settings: ScoringSettings) -> DiagnosisAccumulator:
    """The rules of a scoring section, before the first block."""
    return DiagnosisAccumulator(settings.failure_modes, settings.diagnosis, settings.counted_items())


def facts_of(block: CaseBlock, columns: Mapping[str, pa.Array], scored: Scored, specs: Sequence[ScoreSpec]) -> Facts:
    """What rules may ask of a block; `specs` are those of the metrics."""
    names = [spec.name for spec in specs]
    return Facts(block, {**scored.columns, OVERALL.name: scored.overall}, columns, names)


class BlockDescriber:
    """Scores blocks, each by itself.

    Args:
        specs: the scores that metrics declare, in config order.
        settings: how to score.
    """

    def __init__(self, specs: Sequence[ScoreSpec], settings: ScoringSettings):
        self._specs, self._settings = specs, settings
        self._schema, self._rules = records_schema(settings.all_specs(specs)), case_rules(settings)

    def describe(self, block: CaseBlock, columns: Mapping[str, pa.Array]) -> DescribedBlock:
        """A block with its `case_columns`, scored. Raises RagpipeError for scores that no metric may give."""
        fields = Fields(columns)
        scored = score_block(block, fields, self._specs, self._settings)
        facts = facts_of(block, columns, scored, self._specs)
        findings = self._rules.find(facts)
        listed = {**self._rules.columns(findings, len(block)), **case_flags(block)}
        return DescribedBlock(
            block,
            fields,
            scored,
            facts,
            findings,
            failed_judgements(block),
            context_counts(block.outputs["method"], block.chunks),
            records_of(columns, scored, listed, self._schema),
        )
