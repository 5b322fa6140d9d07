"""The figures of an iteration from its scored cases: metrics.json, cost.json, low_scores.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ragpipe.core.errors import ConfigError
from ragpipe.core.score import warnings_about
from ragpipe.core.version import FORMAT
from ragpipe.metrics.from_config import shipped_scores
from ragpipe.runs.scored_cases import ScoreInputs, scored_cases
from ragpipe.score.cost import cost, served_line, signed
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.jury_agreement import jury_document, jury_warnings
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_tables import read_columns


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
