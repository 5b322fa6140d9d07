"""The line that says what a number rests on. Two results with different lines must not be compared as if they were one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.digest import sha256
from ragpipe.reports.text import one_line


def signature(
    *,
    version: str,
    dataset: str,
    dataset_digest: str,
    judge: str,
    uncalibrated: bool,
    metrics: Mapping[str, str],
    scoring: Mapping[str, Any],
    n: int,
    iteration: int,
) -> str:
    """`ragpipe 0.1.0 | data demo@1a2b3c4d | judge evidence 1 (uncalibrated) | faithfulness(extract:v1 verify:v1) ...`.

    `metrics` maps a metric's name to its own signature (version and prompts, may be empty), `scoring` is
    `ScoringSettings.identity()`, `n` the number of cases.
    """
    parts = (
        f"ragpipe {version}",
        f"data {dataset}@{dataset_digest[:8]}",
        f"judge {judge}" + (" (uncalibrated)" if uncalibrated else ""),
        " ".join(f"{name}({own})" if own else name for name, own in metrics.items()) or "no metrics",
        f"scoring {sha256(dict(scoring))[:8]}",
        f"n={n}",
        f"iteration {iteration}",
    )
    return " | ".join(one_line(part.replace("|", "/"), 2000) for part in parts)
