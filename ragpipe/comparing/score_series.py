"""Which runs measured a score in the same way: they are one series, in which figures may be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.comparing.side import Side
from ragpipe.core.digest import sha256
from ragpipe.store.run.run_tables import read_columns

_DIGITS = 12


def score_series(side: Side, *, of_samples: bool = True) -> dict[str, str]:
    """The series of each score of a run. Two runs have a score in the same series where all that it is measured with is the same:
    the metric's class, version and parameters, the samples, the embedder, and for a judged metric the judge, the prompts and
    the reading of replies. Answers and everything else of the system may differ: they are what is compared.

    A composite, and the overall score, are in the same series where all metrics and the whole scoring are. With `of_samples=False`
    the samples may differ too, as those of two days do.
    """
    identity = side.manifest["identity"]
    by_metric = {
        name: _metric_series(metric, side.manifest, of_samples=of_samples)
        for name, metric in identity["metrics"].items()
    }
    of_all = sha256([by_metric, identity.get("scoring")])[:_DIGITS]
    metric_of = _metrics_of_scores(side)
    return {name: by_metric.get(metric_of.get(name, ""), of_all) for name in side.declared}


def _metric_series(metric: Mapping[str, Any], manifest: Mapping[str, Any], *, of_samples: bool) -> str:
    identity, data = manifest["identity"], manifest["data"]
    judged = [identity.get("judge_identity"), identity.get("parser")] if metric.get("prompts") else None
    samples = (data.get("frozen", {}).get("samples.parquet") or data["digest"]) if of_samples else None
    return sha256([dict(metric), judged, identity.get("embedder"), samples])[:_DIGITS]


def _metrics_of_scores(side: Side) -> dict[str, str]:
    """The metric that gives each score, from the scores of the first iteration."""
    columns = read_columns(side.records.with_name("scores.parquet"), ["metric", "score_name"])
    pairs = columns.group_by(["metric", "score_name"]).aggregate([])
    return dict(zip(pairs["score_name"].to_pylist(), pairs["metric"].to_pylist(), strict=True))
