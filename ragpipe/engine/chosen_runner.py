"""Which processes measure the cases of an iteration: this one, or workers beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import case_window, computes_vectors, member_configs
from ragpipe.engine.run_identity import metric_signatures
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.slice_messages import WorkerStart
from ragpipe.engine.slice_workers import SliceWorkers
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.store.files.processes import usable_cores


@asynccontextmanager
async def open_workers(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    known: KnownMeasurements | None,
    start: str,
    say: Callable[[str], None],
) -> AsyncIterator[SliceWorkers | None]:
    """The workers of `runner=processes`, ended at the end of the block; None where this process measures the cases itself: it says
    why, if that was not chosen.

    Args:
        spec: the run.
        policy: the task.
        iteration: the number of the iteration.
        known: what need not be measured.
        start: the start of the run that asks.
        say: prints the reason, and what workers have to say.
    """
    runner = spec.config.runner
    why = None if runner.kind == "local" else _one_process(spec.config, policy)
    if why:
        say(f"runner={runner.kind}: {why}; this process measures the cases alone")
    if why or runner.kind == "local":
        yield None
        return
    earlier = known.earlier.get(iteration) if known is not None else None
    worker_start = WorkerStart(
        spec.folder.root.absolute(),
        spec.run_id,
        iteration,
        metric_signatures(spec.config),
        start,
        None if earlier is None else earlier.as_json(),
    )
    workers = _slice_workers(spec.config, worker_start, say)
    try:
        yield workers
    finally:
        await workers.close()


def _slice_workers(config: RunConfig, start: WorkerStart, say: Callable[[str], None]) -> SliceWorkers:
    """The workers of a run. Where a server is asked, slices have no more cases than are open at once, and a worker has several: it
    waits for answers, and the last cases of one slice must not leave it idle."""
    runner, count = config.runner, config.runner.workers or usable_cores()
    if not _asks_servers(config):
        return SliceWorkers(start, workers=count, largest=runner.slice, say=say)
    largest = min(runner.slice, max(1, case_window(config) // 2))
    return SliceWorkers(start, workers=count, largest=largest, at_once=1 + case_window(config) // largest, say=say)


def _asks_servers(config: RunConfig) -> bool:
    """Whether questions may go to a server, for a judge or for an embedder."""
    judges = [member.judge for member in member_configs(config).values()]
    return any(isinstance(section, JudgeSettings) for section in (*judges, config.embedder))


def _one_process(config: RunConfig, policy: EvaluatePolicy) -> str | None:
    """Why the cases cannot be measured elsewhere; None where they can."""
    if type(policy) is not EvaluatePolicy:
        return "this task takes replies from a finished run"
    if config.transport.kind == "batch":
        return "a batch is made of the questions of one process"
    judges = [member.judge for member in member_configs(config).values()]
    if any(isinstance(judge, DetectorSettings) for judge in judges) or computes_vectors(config):
        return "a model that computes here takes all cores by itself, and batches across cases"
    return None
