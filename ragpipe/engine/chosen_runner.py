"""Which processes measure the cases of an iteration: this one, workers beside it, or tasks of Ray."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import member_configs, stores_vectors
from ragpipe.engine.ray_runner import open_ray_runner
from ragpipe.engine.run_identity import metric_signatures
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.slice_messages import WorkerStart
from ragpipe.engine.slice_workers import SliceWorkers
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.stages.slices import SliceRunner


@asynccontextmanager
async def open_workers(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    known: KnownMeasurements | None,
    say: Callable[[str], None],
) -> AsyncIterator[SliceRunner | None]:
    """The workers of `runner=processes` or `runner=ray`, ended at the end of the block; None where this process measures the cases itself: it says
    why, if that was not chosen.

    Args:
        spec: the run.
        policy: the task.
        iteration: the number of the iteration.
        known: what need not be measured.
        say: prints the reason, and what workers have to say.
    """
    runner = spec.config.runner
    why = None if runner.kind == "local" else _one_process(spec.config, policy, iteration, known)
    if why:
        say(f"runner={runner.kind}: {why}; this process measures the cases alone")
    if why or runner.kind == "local":
        yield None
        return
    start = WorkerStart(spec.folder.root.absolute(), spec.run_id, iteration, metric_signatures(spec.config))
    if runner.kind == "ray":
        async with open_ray_runner(start, runner, cores=_usable_cores(), say=say) as tasks:
            yield tasks
        return
    workers = SliceWorkers(start, width=runner.workers or _usable_cores(), largest=runner.slice, say=say)
    try:
        yield workers
    finally:
        await workers.close()


def _usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_process(
    config: RunConfig, policy: EvaluatePolicy, iteration: int, known: KnownMeasurements | None
) -> str | None:
    """Why the cases cannot be measured elsewhere; None where they can."""
    if type(policy) is not EvaluatePolicy:
        return "this task takes replies from a finished run"
    judges = [member.judge for member in member_configs(config).values()]
    if any(isinstance(judge, JudgeSettings) for judge in judges):
        return "the judge is a language model, whose limits and budget hold in one process"
    if any(isinstance(judge, DetectorSettings) for judge in judges) or stores_vectors(config):
        return "a model that computes here takes all cores by itself, and batches across cases"
    if known is not None and iteration in known.earlier:
        return "measurements of an earlier run are taken over"
    return None
