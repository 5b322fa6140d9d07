"""Judging one iteration of a run: opens its cases and its judge session, and shows the progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragpipe.engine.event_loop import SignalHandlers
from ragpipe.engine.judge_access import case_window
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.reports.console import Console
from ragpipe.reports.live_progress import Progress
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.judge_cases import JudgeStage, JudgingProgress
from ragpipe.stages.load_dataset import references_of
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.store.run.progress_file import ProgressView
from ragpipe.store.run.wall_clock import WallClock


@dataclass(frozen=True)
class JudgedIteration:
    """How the judging of an iteration ended, and how many calls it made to the judge."""

    progress: JudgingProgress
    calls: int


async def judge_iteration(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    providers: ProviderRegistry,
    console: Console,
    *,
    known: KnownMeasurements | None = None,
) -> JudgedIteration:
    """Judge all cases of one iteration, and show the progress.

    Args:
        spec: the run.
        policy: opens the judge session.
        iteration: the number of the iteration, from 1.
        providers: counts calls against `judge.max_calls`, and keeps what is learnt of a provider, over all iterations.
        console: shows the progress.
        known: what need not be measured.

    Raises what stopped the judging early.
    """
    reader = CaseReader(spec.folder.samples, spec.folder.outputs, iteration)
    clock = WallClock(spec.folder.iteration(iteration).wall)
    try:
        async with policy.open_session(spec.config, spec.run_id, console.warn) as session:
            session.share_provider_state(providers)
            session.corpus = references_of(spec.folder.samples)
            with console.progress(cases=reader.count) as display:

                def update(progress: JudgingProgress) -> None:
                    clock.tick()
                    _show(progress, session, display)

                stage = _stage(spec, reader, session, console, known, update)
                with SignalHandlers(stage, console.warn):
                    progress = await stage.run()
            return JudgedIteration(progress, session.usage.asked)
    finally:
        clock.write()
        reader.close()


def _stage(
    spec: RunSpec,
    reader: CaseReader,
    session: JudgeSession,
    console: Console,
    known: KnownMeasurements | None,
    update: Callable[[JudgingProgress], None],
) -> JudgeStage:
    """The judging of the iteration that the reader is for, by the run's configuration."""
    config, folder = spec.config, spec.folder.iteration(reader.iteration)
    return JudgeStage(
        cases=reader,
        metrics=spec.metrics,
        session=session,
        folder=folder,
        view=ProgressView(folder.progress, name=spec.source.name, iteration=reader.iteration, total=reader.count),
        window=case_window(config),
        keep_messages=config.keep_messages,
        on_metric_error=config.on_metric_error,
        on_change=update,
        on_notice=console.warn,
        retry_errors=config.retry_errors,
        known=known,
    )


def _show(progress: JudgingProgress, session: JudgeSession, display: Progress) -> None:
    usage = session.usage
    display.update(
        cases=progress.done,
        calls=usage.asked,
        tokens=usage.spend.tokens,
        cost_usd=usage.spend.usd,
        errors=progress.errors,
        resumed=progress.resumed,
    )
