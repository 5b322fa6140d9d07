"""Judging one iteration of a run: opens its cases, its judge session and what measures beside this process, and shows the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ragpipe.core.errors import OutputError
from ragpipe.core.usage import Usage
from ragpipe.judge.budget import BudgetUsedUp
from ragpipe.judge.embedder import NoEmbedder
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.provider_state import ProviderRegistry
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.report.console import Console
from ragpipe.runs.case_measuring import CaseMeasuring
from ragpipe.runs.event_loop import SignalHandlers, run_async
from ragpipe.runs.judge_access import member_configs
from ragpipe.runs.judge_cases import JudgeStage, JudgingProgress
from ragpipe.runs.load_dataset import references_of
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.runs.work_meter import WorkDone, WorkMeter
from ragpipe.runs.workers import open_workers
from ragpipe.store.progress import ProgressView, WallClock

_LOOK_S = 2.0  # between two looks at the times of the data files, and at the lock


@dataclass(frozen=True)
class JudgedIteration:
    """How the judging of an iteration ended, and how many calls it made to the judge. `used_up` says why the budget admitted
    nothing more; None where it did, or there is none."""

    progress: JudgingProgress
    calls: int
    used_up: BudgetUsedUp | None = None


def judge_iteration(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    providers: ProviderRegistry,
    console: Console,
    *,
    check: Callable[[], None],
    known: ReplayedCases | None,
    began_at: float,
    spent: Usage,
) -> JudgedIteration:
    """Judge all cases of one iteration, and show the progress; signals end it early. Raises what stopped the judging.

    `providers` counts calls and keeps what is learnt of a provider over all iterations; `check` raises OutputError when the
    start must end, because the data was edited or its folder is no longer locked; failures since `began_at`, in seconds of the
    epoch, are of this start, for `retry_errors`. The run has `spent` so much before.
    """
    config, folder = spec.config, spec.folder.iteration(iteration)
    reader = CaseReader(spec.folder.samples, spec.folder.outputs, iteration)
    clock = WallClock(folder.wall)
    view = ProgressView(folder.progress, name=spec.source.name, iteration=iteration, total=reader.count)

    async def judge() -> JudgedIteration:
        async with (
            open_workers(spec, policy, iteration, console) as workers,
            policy.open_session(config, spec.run_id, console.warn) as session,
        ):
            session.set_beginning(began_at)
            providers.answered_before = spent.calls > 0
            session.share_provider_state(providers)
            session.corpus = references_of(spec.folder.samples)
            stage = JudgeStage(
                cases=reader,
                measuring=case_measuring(config, session),
                session=session,
                folder=folder,
                view=view,
                slices=workers,
                window=case_window(config),
                keep_messages=config.keep_messages,
                on_change=lambda _: clock.tick(),
                on_notice=console.warn,
                retry_errors=config.retry_errors,
                known=known,
            )

            def work() -> WorkDone:
                state = stage.state
                return WorkDone(state.done, state.resumed, state.errors, dict(state.error_kinds))

            meter = WorkMeter("judging", reader.count, work, session=session, spent_before=spent)
            label = f"judging {iteration} of {len(spec.iterations)}:" if len(spec.iterations) > 1 else "judging"
            shown = console.progress(meter.state, label=label, keep=view.show)
            try:
                with _watched(check, stage), shown, SignalHandlers(stage, console.warn):
                    progress = await stage.run()
            finally:
                view.show(meter.state(), at_once=True)
            if progress.changed:
                console.warn(
                    f"{progress.changed:,} finished cases came out otherwise than an earlier start of this run had written down "
                    f"(first: {progress.first_changed}): their replies were asked again or changed. Both results are in "
                    "journal.jsonl; the later one counts"
                )
            if session.budget is not None:
                console.say(session.budget.line())
            used_up = None if session.budget is None else session.budget.used_up
            return JudgedIteration(progress, session.total_asked(), used_up)

    try:
        return run_async(judge())
    finally:
        clock.write()
        reader.close()


@contextmanager
def _watched(check: Callable[[], None], stage: JudgeStage) -> Iterator[None]:
    """Inside, the stage ends when the check fails: it would be paid for a run that nobody can start again."""

    async def look() -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                check()
        except OutputError as error:
            stage.stop(error)

    watch = asyncio.create_task(look())
    try:
        yield
    finally:
        watch.cancel()


EMBEDDING_WINDOW = 64
"""Cases open at once where a model computes texts here, for an embedder or a detector: those of several cases make a batch."""


def case_window(config: RunConfig) -> int:
    """The number of cases that are open at once.

    With a language model the transport says it.
    """
    if isinstance(config.judge, JudgeSettings):
        return config.transport.open_cases(config.judge)
    if isinstance(config.judge, JurySettings):
        return max(map(case_window, member_configs(config).values()))
    if config.judge.computes:
        return EMBEDDING_WINDOW
    return 4 if isinstance(config.embedder, NoEmbedder) else EMBEDDING_WINDOW


def case_measuring(config: RunConfig, session: JudgeSession) -> CaseMeasuring:
    """How the cases of a run are measured, by its configuration."""
    return CaseMeasuring(
        list(config.metrics.values()),
        session,
        on_metric_error=config.on_metric_error,
        jury=config.judge if isinstance(config.judge, JurySettings) else None,
    )
