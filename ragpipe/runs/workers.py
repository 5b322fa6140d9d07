"""What measures cases beside this process, where another runner was chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.registry import imported
from ragpipe.judge.settings import JudgeSettings
from ragpipe.report.console import Console
from ragpipe.runs.case_measuring import SliceRunner
from ragpipe.runs.identity import metric_signatures
from ragpipe.runs.judge_access import computes_vectors, member_configs
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec

ASKS_HERE = "calls leave from one process"


@dataclass(frozen=True)
class WorkerStart:
    """What a runner tells each of its workers. The run folder says what to measure; `signatures` are the metrics as this
    process has them (`metric_signatures`): a worker that reads others must refuse."""

    folder: Path
    run_id: str
    iteration: int
    signatures: dict[str, str]

    def values(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**vars(self), "folder": str(self.folder)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> WorkerStart:
        """From the JSON object."""
        return cls(**{**values, "folder": Path(values["folder"])})


@asynccontextmanager
async def open_workers(
    spec: RunSpec, policy: EvaluatePolicy, iteration: int, console: Console
) -> AsyncIterator[SliceRunner | None]:
    """What measures the cases, ended at the end of the block; None where this process does: it says why, if that was not
    chosen."""
    config, runner = spec.config, spec.config.runner
    if not runner.implementation:
        yield None
        return
    why = stays_here(config) if type(policy) is EvaluatePolicy else "this task takes replies from a finished run"
    if why is not None:
        console.say(here_line(config, why))
        yield None
        return
    start = WorkerStart(spec.folder.root.absolute(), spec.run_id, iteration, metric_signatures(config))
    async with imported(runner.implementation)(start, runner, console.warn) as workers:
        yield workers


def here_line(config: RunConfig, why: str) -> str:
    """What the user is told where another runner was chosen and this process measures the cases."""
    return f"runner={config.runner.kind}: {why}; this process measures the cases alone"


def stays_here(config: RunConfig) -> str | None:
    """Why this process measures the cases although another runner was chosen; None where that one does, or none was."""
    if not config.runner.implementation:
        return None
    judges = [member.judge for member in member_configs(config).values()]
    if any(isinstance(section, JudgeSettings) for section in (*judges, config.embedder)):
        return ASKS_HERE
    computes = computes_vectors(config) or any(judge.computes for judge in judges)
    return config.runner.stays_here(computes=computes, shares_store=config.store.url is not None)
