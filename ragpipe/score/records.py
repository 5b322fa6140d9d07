"""`records.parquet`: one wide row per case, with everything a reader of results wants beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic_core import from_json

from ragpipe.core.fences import foreign_tags
from ragpipe.core.hostile_text import degenerate_signs, suspicious_signs
from ragpipe.core.score import ScoreSpec
from ragpipe.score.accumulators import Scored, failed_judgements, score_block
from ragpipe.score.case_blocks import CaseBlock
from ragpipe.score.conditions import JUDGE, Facts
from ragpipe.score.diagnosis import DiagnosisAccumulator, Findings, listed
from ragpipe.score.dimensions import CASE, FLAG, REAL, TEXT, TEXTS, Fields
from ragpipe.score.normalisation import OVERALL, STATUSES
from ragpipe.score.pointer_checks import ContextCounts, context_counts
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.table_rows import table_schema

_SCORE = (
    ("", REAL, "value in the native scale; null unless status is ok"),
    (".score", REAL, "0 (worst) to 1 (best); null for counts and where there is no value"),
    (".passed", FLAG, "whether it reaches its threshold; null without one"),
    (".status", TEXT, "ok, skipped or error; null = not measured yet"),
    (".reason", TEXT, "why skipped, what failed, or the judge's feedback"),
)
_OVERALL = (
    (
        "overall_score",
        REAL,
        "weighted mean of the scores that are there; null when none with a weight is, or one of them failed",
    ),
    ("overall_passed", FLAG, "whether overall_score reaches its threshold and every gate score of the case passed"),
    ("overall_reason", TEXT, "why there is no overall_score: no_parts, or part_error with the scores that failed"),
    ("failed_by", TEXTS, "scores that did not pass, in the order of the columns"),
    ("failure_modes", TEXTS, "in which ways it went wrong (scoring.failure_modes)"),
    ("diagnosis", TEXTS, "what is wrong, the first one first (scoring.diagnosis)"),
    ("flags", TEXTS, "suspicious: a text addresses the judge; degenerate: the answer says nothing. No score depends on them"),
    ("flag_reasons", TEXTS, "the part and the sign of each flag: answer: orders_to_judge"),
)


def records_schema(specs: Sequence[ScoreSpec]) -> pa.Schema:
    """Columns of `records.parquet` for these scores, each with its description."""
    scores = [(spec.name + suffix, kind, text) for spec in specs for suffix, kind, text in _SCORE]
    return table_schema(*CASE, *scores, *_OVERALL)


def records_of(cases: Mapping[str, pa.Array], scored: Scored, findings: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """The rows of a block; `cases` are its `case_columns`, `findings` its failure modes, diagnoses and flags."""
    columns: dict[str, Any] = {**cases, **findings}
    for name, column in scored.columns.items():
        columns[name], columns[f"{name}.score"] = _numbers(column.values), _numbers(column.scores)
        columns[f"{name}.passed"], columns[f"{name}.reason"] = _flags(column.passed), column.reasons
        columns[f"{name}.status"] = pa.array(STATUSES).take(pa.array(column.status, mask=column.status < 0))
    columns["overall_score"] = _numbers(scored.overall.values)
    columns["overall_passed"] = _flags(scored.overall.passed)
    columns["overall_reason"] = scored.overall.reasons
    failed = {name: np.equal(column.passed, 0).astype(np.int8) for name, column in scored.columns.items()}
    columns["failed_by"] = listed(failed, list(failed), len(cases["sample_id"]))
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


def verdict_column(name: str) -> str:
    """The column with the verdicts of a score, be it the overall one."""
    return "overall_passed" if name == OVERALL.name else f"{name}.passed"


def _numbers(values: Any) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _flags(passed: Any) -> pa.Array:
    return pa.array(passed == 1, mask=passed < 0)


@dataclass(frozen=True)
class DescribedBlock:
    """A block of cases, scored: what they can be grouped by, their scores, what rules may ask and what they say of them, the number
    of failed judgements, the counts of contexts by method, and their rows of `records.parquet`."""

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


class BlockDescriber:
    """Scores blocks, each by itself. `specs` are the scores that metrics declare, in config order; `judge` is the printed name of
    the run's judge, for which rules may ask."""

    def __init__(self, specs: Sequence[ScoreSpec], settings: ScoringSettings, judge: str | None):
        self._specs, self._settings, self._judge = specs, settings, judge
        self._schema, self._rules = records_schema(settings.all_specs(specs)), case_rules(settings)

    def describe(self, block: CaseBlock, columns: Mapping[str, pa.Array]) -> DescribedBlock:
        """A block with its `case_columns`, scored. Raises RagpipeError for scores that no metric may give."""
        fields = Fields(columns)
        scored = score_block(block, fields, self._specs, self._settings)
        of_scores = {**scored.columns, OVERALL.name: scored.overall}
        asked = {**columns, JUDGE: pa.array([self._judge] * len(block), pa.string())}
        facts = Facts(block, of_scores, asked, [spec.name for spec in self._specs])
        findings = self._rules.find(facts)
        noted = {**self._rules.columns(findings, len(block)), **case_flags(block)}
        return DescribedBlock(
            block,
            fields,
            scored,
            facts,
            findings,
            failed_judgements(block),
            context_counts(block.outputs["method"], block.chunks),
            records_of(columns, scored, noted, self._schema),
        )


SUSPICIOUS, DEGENERATE = "suspicious", "degenerate"


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
        odd += [f"{holder}: tag_of_{owner}" for holder, owner in foreign_tags(case)]
        empty = [f"answer: {sign}" for text in answer for sign in degenerate_signs(text, question[0], case["contexts"])]
        flags.append([name for name, signs in ((SUSPICIOUS, odd), (DEGENERATE, empty)) if signs])
        reasons.append([*odd, *empty])
    kind = pa.list_(pa.string())
    return {"flags": pa.array(flags, kind), "flag_reasons": pa.array(reasons, kind)}


def _texts(block: CaseBlock) -> Iterator[dict[str, Sequence[str]]]:
    """The texts of each case by part. An answer that is not recorded, or of a system that failed, is none."""
    contexts: list[list[str]] = [[] for _ in range(len(block))]
    texts = block.chunks.column("text")
    with_text = np.flatnonzero(block.chunks.with_text)
    kept = texts.take(pa.array(with_text)).to_pylist()
    for case, text in zip(block.chunks.cases[with_text].tolist(), kept, strict=True):
        contexts[case].append(text)
    samples = (block.samples[name].to_pylist() for name in ("question", "references", "history"))
    outputs = (block.outputs[name].to_pylist() for name in ("answer", "error"))
    for question, references, history, answer, error, passages in zip(*samples, *outputs, contexts, strict=True):
        yield {
            "question": [question],
            "answer": [] if answer is None or error else [answer],
            "contexts": passages,
            "references": references or [],
            "history": [turn["text"] for turn in from_json(history)] if history else [],
        }
