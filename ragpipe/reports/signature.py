"""The line that says what a number rests on. Two results with different lines must not be compared as if they were one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.safe_text import on_one_line


def run_signature(
    *,
    version: str,
    dataset: str,
    dataset_digest: str,
    judge: str,
    calibrated: Any,
    metrics: Mapping[str, str],
    scoring: Mapping[str, Any],
    n: int,
    iteration: int,
    versions: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """`ragpipe 0.1.0 | data demo@1a2b3c4d | judge evidence 1 (uncalibrated) | faithfulness(extract:v1 verify:v1) ...`.

    `metrics` maps a metric's name to its own signature (version and prompts, may be empty), `scoring` is
    `ScoringSettings.identity()`, `n` the number of cases, `calibrated` the judge's calibration against human labels, None
    without one. `versions` are those that the outputs of each method name; where there are any, a part
    `system naive v1, graph v2` says so.
    """
    named = [f"{method} {'+'.join(some)}" for method, some in (versions or {}).items()]
    parts = (
        f"ragpipe {version}",
        f"data {dataset}@{dataset_digest[:8]}",
        *([f"system {', '.join(named)}"] if named else []),
        f"judge {judge}" + ("" if calibrated else " (uncalibrated)"),
        " ".join(f"{name}({own})" if own else name for name, own in metrics.items()) or "no metrics",
        f"scoring {sha256(dict(scoring))[:8]}",
        f"n={n}",
        f"iteration {iteration}",
    )
    return " | ".join(on_one_line(part.replace("|", "/"), 2000) for part in parts)
