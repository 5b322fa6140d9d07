"""A run folder from literals: what the tests of scoring and of reports read."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.core.digest import canonical_json
from ragpipe.core.sample import Chunk, Citation, Output, Sample
from ragpipe.core.score import ScoreSpec
from ragpipe.core.usage import Usage
from ragpipe.core.version import FORMAT
from ragpipe.runs.score_iteration import ScoreInputs, score_iteration
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.table_rows import JUDGE_INPUTS, OUTPUTS, SAMPLES, SCORES, output_row, sample_row, table_of

Result = float | tuple[float | str, str]  # a value, or it or `skipped` or `error` with the reason


@dataclass
class Row:
    """A case: its sample, method, results by score name, and the details beside some of them."""

    sample: str
    method: str
    results: Mapping[str, Result]
    labels: Mapping[str, Any] = field(default_factory=dict)
    output: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repeat: int = 1


def write_run(root: Path, rows: Sequence[Row], calls: Sequence[Mapping[str, Any]] = (), group: int = 3) -> Path:
    """Write the four tables in row groups of `group`, and a manifest that says no more than the format; returns the
    iteration's folder."""
    folder = root / "iteration-1"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "manifest.json").write_text(json.dumps({"format": FORMAT}))
    places: dict[str, int] = {}
    samples, outputs, scores = [], [], []
    for row in rows:
        if row.sample not in places:
            places[row.sample] = len(samples)
            sample = Sample(id=row.sample, **{"question": f"What is {row.sample}?", **row.labels})
            samples.append(dict(zip(SAMPLES.names, sample_row(sample), strict=True)))
        given = {"answer": "An answer.", "chunks": [Chunk(id="c1", rank=1)], **row.output}
        output = Output(sample_id=row.sample, method=row.method, repeat=row.repeat, **given)
        outputs.append(dict(zip(OUTPUTS.names, output_row(output, places[row.sample]), strict=True)))
        scores += [_score(row, name, result) for name, result in row.results.items()]
    inputs = [{**dict.fromkeys(JUDGE_INPUTS.names), "repeat": 1, "flags": [], **call} for call in calls]
    for path, given_rows, schema in (
        (root / "samples.parquet", samples, SAMPLES),
        (root / "outputs.parquet", outputs, OUTPUTS),
        (folder / "scores.parquet", scores, SCORES),
        (folder / "judge_inputs.parquet", inputs, JUDGE_INPUTS),
    ):
        pq.write_table(table_of(given_rows, schema), path, row_group_size=group)
    return folder


def _score(row: Row, name: str, result: Result) -> dict[str, Any]:
    value, reason = result if isinstance(result, tuple) else (result, "fine")
    status, number = (value, None) if isinstance(value, str) else ("ok", float(value))
    details = canonical_json(row.details[name]) if name in row.details else None
    return {
        "sample_id": row.sample, "method": row.method, "repeat": row.repeat, "iteration": 1, "metric": name,
        "score_name": name, "value": number, "status": status, "reason": reason, "details": details, "calls": [],
    }  # fmt: skip


def spent(calls: int = 0, replies: int = 0, usd: float = 0.0, **more: Any) -> Usage:
    """What a run has paid, as the ledger says it."""
    return Usage(**{"calls": calls, "replies": replies or calls, "usd_known": usd, **more})


def score(
    root: Path, specs: Sequence[ScoreSpec], settings: ScoringSettings | None = None, *, iteration: int = 1, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    return score_iteration(
        ScoreInputs(
            root / f"iteration-{iteration}",
            samples=root / "samples.parquet",
            outputs=root / "outputs.parquet",
            specs=[replace(spec, metric=spec.name, method=spec.method or "direct") for spec in specs],
            settings=settings or ScoringSettings(),
            **{
                "signature": "ragpipe 0 | test", "judge": {"label": "scripted", "calibrated": None}, "run_id": "me", "spent": spent(),
                "rates": {}, **more,
            },
        )
    )  # fmt: skip


def score_iterations(root: Path, tables: Sequence[Sequence[Row]], specs: Sequence[ScoreSpec], settings: ScoringSettings) -> None:
    for number, rows in enumerate(tables, 1):
        part = root / f"of {number}"
        shutil.move(write_run(part, rows), root / f"iteration-{number}")
        for file in ("samples.parquet", "outputs.parquet", "manifest.json"):
            shutil.copy(part / file, root / file)
        score(root, specs, settings, iteration=number, signature=f"ragpipe 0 | test | iteration {number}")


def records(root: Path) -> list[dict[str, Any]]:
    return pq.read_table(root / "iteration-1" / "records.parquet").to_pylist()


def stored(root: Path, name: str) -> dict[str, Any]:
    return json.loads((root / "iteration-1" / name).read_text())


__all__ = ["Chunk", "Citation", "Row", "records", "score", "score_iterations", "stored", "write_run"]
