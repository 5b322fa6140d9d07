"""Which processes measure the cases of an iteration: this one, or tasks of Ray. Calls leave from this one alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import computes_vectors, member_configs
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runners.ray_runner import RayRunner, open_ray_runner
from ragpipe.engine.runners.slice_messages import WorkerStart
from ragpipe.engine.runs.run_identity import metric_signatures
from ragpipe.judging.settings import JudgeSettings
from ragpipe.reports.console import Console
from ragpipe.stages.measured_cases import KnownMeasurements

SLICE = 250
"""The most cases of a slice, where the configuration does not say."""
ASKS_HERE = "calls leave from one process"


@asynccontextmanager
async def open_workers(
    spec: RunSpec, policy: EvaluatePolicy, iteration: int, known: KnownMeasurements | None, console: Console
) -> AsyncIterator[RayRunner | None]:
    """The tasks that measure the cases, ended at the end of the block; None where this process does: it says why, if that was not
    chosen.

    Args:
        spec: the run.
        policy: the task.
        iteration: the number of the iteration.
        known: what need not be measured.
        console: says the reason, and warns of what workers have to say.
    """
    config, runner = spec.config, spec.config.runner
    if runner.kind == "local":
        yield None
        return
    why = stays_here(config) if type(policy) is EvaluatePolicy else "this task takes replies from a finished run"
    if why is not None:
        console.say(here_line(why))
        yield None
        return
    earlier = known.earlier.get(iteration) if known is not None else None
    start = WorkerStart(
        spec.folder.root.absolute(),
        spec.run_id,
        iteration,
        metric_signatures(config),
        None if earlier is None else earlier.as_json(),
    )
    async with open_ray_runner(start, runner, largest=runner.slice or SLICE, warn=console.warn) as tasks:
        yield tasks


def here_line(why: str) -> str:
    """What the user is told where tasks of Ray were chosen and this process measures the cases."""
    return f"runner=ray: {why}; this process measures the cases alone"


def stays_here(config: RunConfig) -> str | None:
    """Why the cases of a run with `runner=ray` are measured by its own process; None where tasks of Ray measure them, or it is not the runner."""
    if config.runner.kind != "ray":
        return None
    judges = [member.judge for member in member_configs(config).values()]
    if any(isinstance(section, JudgeSettings) for section in (*judges, config.embedder)):
        return ASKS_HERE
    computes = computes_vectors(config) or any(judge.computes for judge in judges)
    if computes and not config.runner.num_gpus:
        return "a model that computes here takes all cores by itself, and batches across cases"
    if computes and config.runner.address is not None and config.store.url is None:
        return "workers on several machines need one call store: set store.url"
    return None
