"""Which processes measure the cases of an iteration: this one, or workers beside it."""

from __future__ import annotations

import os
from collections.abc import Callable

from ragpipe.config.settings import RunConfig
from ragpipe.embedding.settings import ApiEmbedder
from ragpipe.engine.judge_access import member_configs
from ragpipe.engine.run_identity import metric_signatures
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.slice_messages import WorkerStart
from ragpipe.engine.slice_workers import SliceWorkers
from ragpipe.judging.settings import JudgeSettings
from ragpipe.stages.replayed_cases import KnownMeasurements


def chosen_workers(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    known: KnownMeasurements | None,
    say: Callable[[str], None],
) -> SliceWorkers | None:
    """The workers of `runner=processes`; None where this process measures the cases itself: it says why, if that was not chosen.

    Args:
        spec: the run.
        policy: the task.
        iteration: the number of the iteration.
        known: what need not be measured.
        say: prints the reason, and what workers have to say.
    """
    runner = spec.config.runner
    if runner.kind == "local":
        return None
    if why := _one_process(spec.config, policy, iteration, known):
        say(f"runner={runner.kind}: {why}; this process measures the cases alone")
        return None
    start = WorkerStart(spec.folder.root.absolute(), spec.run_id, iteration, metric_signatures(spec.config))
    return SliceWorkers(start, width=runner.workers or usable_cores(), largest=runner.slice, say=say)


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_process(
    config: RunConfig, policy: EvaluatePolicy, iteration: int, known: KnownMeasurements | None
) -> str | None:
    """Why the cases cannot be measured elsewhere; None where they can."""
    if type(policy) is not EvaluatePolicy:
        return "this task takes replies from a finished run"
    if any(isinstance(member.judge, JudgeSettings) for member in member_configs(config).values()):
        return "the judge is a language model, whose limits and budget hold in one process"
    if isinstance(config.embedder, ApiEmbedder):
        return "the embedder is a provider's, whose limits hold in one process"
    if known is not None and iteration in known.earlier:
        return "measurements of an earlier run are taken over"
    return None
