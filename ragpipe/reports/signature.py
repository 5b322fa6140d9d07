"""The signature of a run: data, judge, metrics and scoring in one line. Results are comparable when it is equal."""

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
    calibration: str,
    metrics: Mapping[str, str],
    scoring: Mapping[str, Any],
    n: int,
    iteration: int,
    versions: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """`ragpipe 0.1.0 | data demo@1a2b3c4d | judge evidence 1 (uncalibrated) | faithfulness(extract:v1 verify:v1) ...`.

    Args:
        version: The version of ragpipe.
        dataset: The name of the data set.
        dataset_digest: The digest of its cases.
        judge: The label of the judge.
        calibration: What to say of its calibration against human labels; empty where every score has passed one.
        metrics: For each metric its own signature (version and prompts), which may be empty.
        scoring: `ScoringSettings.identity()`.
        n: The number of cases.
        iteration: The number of the iteration.
        versions: The versions that the outputs of each method name. Where there are any, a part
            `system naive v1, graph v2` says so.
    """
    systems = [f"{method} {'+'.join(names)}" for method, names in (versions or {}).items()]
    parts = (
        f"ragpipe {version}",
        f"data {dataset}@{dataset_digest[:8]}",
        *([f"system {', '.join(systems)}"] if systems else []),
        f"judge {judge}" + (f" ({calibration})" if calibration else ""),
        " ".join(f"{name}({version})" if version else name for name, version in metrics.items()) or "no metrics",
        f"scoring {sha256(dict(scoring))[:8]}",
        f"n={n}",
        f"iteration {iteration}",
    )
    return " | ".join(on_one_line(part.replace("|", "/"), 2000) for part in parts)
