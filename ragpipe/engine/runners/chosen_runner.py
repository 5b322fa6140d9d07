"""Which processes measure the cases of an iteration: this one, workers beside it, or tasks of Ray."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import case_window, computes_vectors, member_configs
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runners.ray_runner import RayRunner, open_ray_runner
from ragpipe.engine.runners.slice_messages import WorkerStart
from ragpipe.engine.runners.slice_workers import SliceWorkers
from ragpipe.engine.runs.run_identity import metric_signatures
from ragpipe.engine.workers.worker_count import MANY_CASES, MANY_COMPUTED_CASES, worker_count
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.reports.console import Console
from ragpipe.stages.load_dataset import BLOCK
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.store.files.processes import usable_cores

Workers = SliceWorkers | RayRunner
SLICE = 250
"""The most cases of a slice, where the configuration does not say."""
_SLICES_EACH = 5
"""Whole blocks per worker from which on a slice is one: the last of them may keep one worker alone."""


def worker_start(
    spec: RunSpec,
    iteration: int,
    start: str,
    began_at: float,
    ends_at: float | None,
    known: KnownMeasurements | None,
) -> WorkerStart:
    """What workers are told first.

    Args:
        spec: the run.
        iteration: the number of the iteration.
        start: the start of the run that asks (`ProviderRegistry.start`).
        began_at: when that start began, in seconds of the epoch.
        ends_at: when no question is asked any more (`end_of_asking`).
        known: what need not be measured.
    """
    earlier = known.earlier.get(iteration) if known is not None else None
    return WorkerStart(
        spec.folder.root.absolute(),
        spec.run_id,
        iteration,
        metric_signatures(spec.config),
        start,
        began_at,
        ends_at,
        None if earlier is None else earlier.as_json(),
    )


@asynccontextmanager
async def open_workers(
    spec: RunSpec, policy: EvaluatePolicy, start: WorkerStart, cases: int, console: Console
) -> AsyncIterator[Workers | None]:
    """The workers that measure the cases, ended at the end of the block; None where this process does: it says why, if that was not
    chosen.

    Args:
        spec: the run.
        policy: the task.
        start: what workers are told first.
        cases: how many cases there are.
        console: says the reason, and warns of what workers have to say.
    """
    config, runner = spec.config, spec.config.runner
    is_auto = runner.kind == "auto"
    many = MANY_CASES if any(metric.prompts() for metric in config.metrics.values()) else MANY_COMPUTED_CASES
    count = worker_count(runner, is_much=cases >= many and not (is_auto and _asks_servers(config)))
    why = _one_process(config, policy) if count else None
    if why and not is_auto:
        console.say(f"runner={runner.kind}: {why}; this process measures the cases alone")
    if why or not count:
        yield None
        return
    if runner.kind == "ray":
        largest, asks = runner.slice or SLICE, _asks_servers(config)
        async with open_ray_runner(
            start, runner, largest=largest, cores=usable_cores(), asks=asks, warn=console.warn
        ) as tasks:
            yield tasks
        return
    if is_auto:
        console.say(f"{count} processes measure the cases; runner=local: one")
    workers = _slice_workers(config, start, count, runner.slice or default_slice(config, cases, count), console.warn)
    try:
        yield workers
    finally:
        await workers.close()


def default_slice(config: RunConfig, cases: int, workers: int) -> int:
    """The most cases of a slice. A whole block is cheapest, because it is read once and written by its worker; but every worker must
    get several slices, and a case that is judged takes long."""
    is_computed = all(isinstance(metric, Computed) for metric in config.metrics.values())
    return BLOCK if is_computed and cases >= _SLICES_EACH * workers * BLOCK else SLICE


def _slice_workers(
    config: RunConfig, start: WorkerStart, count: int, largest: int, warn: Callable[[str], None]
) -> SliceWorkers:
    """So many workers of a run. Where a server is asked, slices have no more cases than are open at once, and a worker has several: it
    waits for answers, and the last cases of one slice must not leave it idle."""
    if not _asks_servers(config):
        return SliceWorkers(start, workers=count, largest=largest, at_once=2, warn=warn)
    largest = min(largest, max(1, case_window(config) // 2))
    return SliceWorkers(start, workers=count, largest=largest, at_once=1 + case_window(config) // largest, warn=warn)


def _asks_servers(config: RunConfig) -> bool:
    """Whether questions may go to a server, for a judge or for an embedder."""
    judges = [member.judge for member in member_configs(config).values()]
    return any(isinstance(section, JudgeSettings) for section in (*judges, config.embedder))


def _computes(config: RunConfig) -> bool:
    """Whether a model is loaded to judge or to embed."""
    judges = [member.judge for member in member_configs(config).values()]
    return computes_vectors(config) or any(isinstance(judge, DetectorSettings) for judge in judges)


def _one_process(config: RunConfig, policy: EvaluatePolicy) -> str | None:
    """Why the cases cannot be measured elsewhere; None where they can."""
    if type(policy) is not EvaluatePolicy:
        return "this task takes replies from a finished run"
    if _asks_servers(config):
        return "calls leave from one process"
    has_gpus = config.runner.kind == "ray" and config.runner.num_gpus > 0
    computes = _computes(config)
    if computes and not has_gpus:
        return "a model that computes here takes all cores by itself, and batches across cases"
    is_far = config.runner.kind == "ray" and config.runner.address is not None
    if is_far and computes and config.store.url is None:
        return "workers on several machines need one call store: set store.url"
    return None
