"""Blocks of cases with all that scoring says of a block by itself. What depends on other blocks is kept by `Accumulators`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from ragpipe.patterns.hostile_text import degenerate_signs, suspicious_signs
from ragpipe.prompting.fences import foreign_tags
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.accumulators import failed_judgements
from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.case_records import records_of, records_schema
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.dimensions import Fields
from ragpipe.scoring.pointer_checks import ContextCounts, context_counts
from ragpipe.scoring.rules.conditions import Facts
from ragpipe.scoring.rules.diagnosis import DiagnosisAccumulator, Findings
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
    return Facts(block, {**scored.columns, OVERALL.name: scored.overall}, columns, [spec.name for spec in specs])


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


SUSPICIOUS, DEGENERATE = "suspicious", "degenerate"
FOREIGN_TAG = "tag_of_"


def case_flags(block: CaseBlock) -> dict[str, pa.Array]:
    """The columns `flags` and `flag_reasons` of a block.

    `flags` holds `suspicious` where the answer has a sign of `suspicious_signs` or any text holds another one's fence tag, and
    `degenerate` where the answer says nothing of its own. `flag_reasons` names the part and the sign:
    `answer: orders_to_judge`, `contexts: tag_of_question`.
    """
    flags: list[list[str]] = []
    reasons: list[list[str]] = []
    for case in _texts(block):
        answer, question = case["answer"], case["question"]
        odd = [f"answer: {sign}" for text in answer for sign in suspicious_signs(text)]
        odd += [f"{holder}: {FOREIGN_TAG}{owner}" for holder, owner in foreign_tags(case)]
        empty = [f"answer: {sign}" for text in answer for sign in degenerate_signs(text, question[0], case["contexts"])]
        flags.append([name for name, signs in ((SUSPICIOUS, odd), (DEGENERATE, empty)) if signs])
        reasons.append([*odd, *empty])
    kind = pa.list_(pa.string())
    return {"flags": pa.array(flags, kind), "flag_reasons": pa.array(reasons, kind)}


def _texts(block: CaseBlock) -> Iterator[dict[str, Sequence[str]]]:
    """The texts of each case by part. An answer that is not recorded, or of a system that failed, is none."""
    contexts: list[list[str]] = [[] for _ in range(len(block))]
    texts = block.chunks.column("text")
    with_text = np.flatnonzero(pc.greater(pc.binary_length(texts), 0).fill_null(False).to_numpy(zero_copy_only=False))
    kept = texts.take(pa.array(with_text)).to_pylist()
    for case, text in zip(block.chunks.cases[with_text].tolist(), kept, strict=True):
        contexts[case].append(text)
    outputs, samples = block.outputs, block.samples
    rows = zip(
        samples["question"].to_pylist(),
        outputs["answer"].to_pylist(),
        outputs["error"].to_pylist(),
        samples["references"].to_pylist(),
        samples["history"].to_pylist(),
        contexts,
        strict=True,
    )
    for question, answer, error, references, history, passages in rows:
        yield {
            "question": [question],
            "answer": [] if answer is None or error else [answer],
            "contexts": passages,
            "references": references or [],
            "history": [turn["text"] for turn in from_json(history)] if history else [],
        }
