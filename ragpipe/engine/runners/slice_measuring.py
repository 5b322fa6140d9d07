"""A run opened from its folder alone, to measure slices of one iteration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ragpipe.config.run_validation import validate_finished_config
from ragpipe.config.settings import RunConfig, prompt_folders
from ragpipe.core.errors import RagpipeError
from ragpipe.core.validation import NoOrigins
from ragpipe.engine.judge_access import case_window, open_judge
from ragpipe.engine.runners.slice_messages import WorkerStart
from ragpipe.engine.runs.finished_run import read_config, run_prompts
from ragpipe.engine.runs.run_identity import metric_signatures
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.metrics.base import Metric
from ragpipe.stages.case_measuring import CaseMeasuring
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import references_of
from ragpipe.stages.measured_cases import KnownMeasurements, MeasuredCases, ReplayedCases
from ragpipe.stages.slices import MeasuredSlice, Slice, measure_slice
from ragpipe.store.places import cache_folder
from ragpipe.store.run.run_folder import RunFolder


def case_measuring(config: RunConfig, session: JudgeSession, known: KnownMeasurements | None = None) -> CaseMeasuring:
    """How the cases of a run are measured, by its configuration. `known` is what need not be measured."""
    metrics: list[Metric] = list(config.metrics.values())
    return CaseMeasuring(
        metrics,
        session,
        case_deadline_s=getattr(config.judge, "case_deadline_s", None),
        on_metric_error=config.on_metric_error,
        known=known,
        jury=config.judge if isinstance(config.judge, JurySettings) else None,
    )


def introduce(session: JudgeSession, providers: ProviderRegistry, folder: RunFolder, began_at: float) -> None:
    """Tell a session what is known of its providers, which texts the run is about, and when the start began (seconds of the epoch)."""
    session.set_beginning(began_at)
    session.share_provider_state(providers)
    session.corpus = references_of(folder.samples)


Measure = Callable[[Slice], Coroutine[Any, Any, MeasuredSlice]]
"""Measures one slice; several may be under way at once."""


@asynccontextmanager
async def open_measuring(start: WorkerStart, warn: Callable[[str], None]) -> AsyncIterator[Measure]:
    """What measures slices of the run that a worker was told of. Raises RagpipeError where the folder describes other metrics than the
    driver has, and what opening the judge raises."""
    folder = RunFolder(start.folder)
    config = _config_of(folder)
    if metric_signatures(config) != start.signatures:
        raise RagpipeError(f"{folder.config} describes other metrics than the run that is under way")
    reader = CaseReader(folder.samples, folder.outputs, start.iteration)
    known = _known(start, config)
    try:
        async with open_judge(config, start.run_id, warn=warn) as session:
            session.corpus = references_of(folder.samples)
            yield partial(
                measure_slice,
                reader,
                measuring=case_measuring(config, session, known),
                room=asyncio.Semaphore(case_window(config)),
                keep_messages=config.keep_messages,
            )
    finally:
        reader.close()
        known.close()


def _known(start: WorkerStart, config: RunConfig) -> KnownMeasurements:
    """What need not be measured: nothing that the plan has measured, for only the driver has that."""
    replayed = ReplayedCases(keep_messages=config.keep_messages, limit=0)
    if start.earlier is None:
        return KnownMeasurements(replayed)
    earlier = MeasuredCases.from_json(start.earlier, config.metrics.values())
    return KnownMeasurements(replayed, {start.iteration: earlier})


def _config_of(folder: RunFolder) -> RunConfig:
    """The configuration of a run under way, with the templates that were copied into its folder."""
    plain, origins = read_config(folder), NoOrigins()
    prompts = run_prompts(folder, prompt_folders(plain.get("prompt_dirs") or [], cache_folder(plain)))
    return validate_finished_config(plain, origins, prompts=prompts)
