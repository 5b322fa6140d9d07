"""Small scored runs from literals, for what compares runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from ragpipe.comparison.comparison import Comparison, compare_sides
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import Side, opened_side
from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.run_tables import Row, score, write_run

IDENTITY: Mapping[str, Any] = {
    "system": {"kind": "recorded"},
    "judge_identity": {"model": "m-1", "temperature": 0},
    "embedder": {"kind": "none"},
    "parser": 3,
    "scoring": {},
    "metrics": {"grade": {"class": "Grade", "version": 1, "parameters": {"history": True}, "prompts": {"ask": "a" * 64}}},
}
PROMPTS = {"grade/ask.v1@aaaaaaaa": "a" * 64}
GRADE = ScoreSpec(name="grade", low=0, high=1)


def scored_run(
    root: Path,
    rows: Sequence[Row],
    *,
    specs: Sequence[ScoreSpec] = (GRADE,),
    scoring: ScoringSettings | None = None,
    run_id: str = "000000000001",
    identity: Mapping[str, Any] = IDENTITY,
    prompts: Mapping[str, str] = PROMPTS,
) -> RunFolder:
    settings = scoring or ScoringSettings(weights={"grade": 1.0}, thresholds={"grade": 0.5}, fill_defaults=False)
    write_run(root, rows)
    score(root, specs, settings, run_id=run_id)
    combine_iterations(RunFolder(root), [1], settings)
    manifest = {
        "format": FORMAT, "run_id": run_id, "name": "test", "created_at": "2026-01-01T00:00:00.000+00:00",
        "data": {"name": "test", "digest": "d", "tables": "t"}, "prompts": dict(prompts), "identity": deepcopy(dict(identity)),
        "iterations": {"1": "complete"},
    }  # fmt: skip
    (root / "manifest.json").write_text(json.dumps(manifest))
    return RunFolder(root)


def graded(values: Mapping[str, float], method: str = "default", *, output: Mapping[str, Any] | None = None, **more: Any) -> list[Row]:
    """A row per sample with its grade. Another grade has another answer, unless `output` is given."""
    outputs = {sample: {"answer": f"Worth {value}."} if output is None else output for sample, value in values.items()}
    return [Row(sample, method, {"grade": value}, output=outputs[sample], **more) for sample, value in values.items()]


@contextmanager
def side_of(folder: RunFolder, method: str | None = None) -> Iterator[Side]:
    with opened_side(folder, json.loads(folder.manifest.read_text()), method) as side:
        yield side


def compared(base: RunFolder, candidate: RunFolder, **settings: Any) -> Comparison:
    with side_of(base) as before, side_of(candidate) as after:
        return compare_sides(before, [after], CompareSettings(**settings))[0]
