"""Judging one iteration of a run: opens its cases and its judge session, and shows the progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ragpipe.core.errors import JudgeError, OutputError
from ragpipe.judge.budget import BudgetUsedUp
from ragpipe.judge.embedder import NoEmbedder
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.provider_state import ProviderRegistry
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.report.console import Console
from ragpipe.runs.case_measuring import CaseMeasuring
from ragpipe.runs.event_loop import SignalHandlers
from ragpipe.runs.judge_access import member_configs
from ragpipe.runs.judge_cases import JudgeStage, JudgingProgress
from ragpipe.runs.load_dataset import references_of
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.plan_notices import changed_line
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


async def judge_iteration(
    spec: RunSpec,
    policy: EvaluatePolicy,
    iteration: int,
    providers: ProviderRegistry,
    console: Console,
    *,
    check: Callable[[], None],
    known: ReplayedCases | None,
    planned_calls: int | None,
    began: float,
    began_at: float,
) -> JudgedIteration:
    """Judge all cases of one iteration, and show the progress; signals end it early.

    Args:
        spec: the run.
        policy: opens the judge session.
        iteration: the number of the iteration, from 1.
        providers: counts calls against `judge.max_calls`, and keeps what is learnt of a provider, over all iterations.
        console: shows the progress, which cases came out otherwise than before, and what is spent of a budget.
        check: raises OutputError when the start must end: the data was edited, or its folder is no longer locked.
        known: cases that the plan has measured.
        planned_calls: calls that the plan expects of this iteration; None without a plan.
        began: when this start began, in monotonic seconds, for `judge.run_deadline_s`.
        began_at: from when on failures are of this start, in seconds of the epoch, for `retry_errors`.

    Raises what stopped the judging early.
    """
    config, folder = spec.config, spec.folder.iteration(iteration)
    ends_at = end_of_asking(config, began)
    reader = CaseReader(spec.folder.samples, spec.folder.outputs, iteration)
    clock = WallClock(folder.wall)
    view = ProgressView(folder.progress, name=spec.source.name, iteration=iteration, total=reader.count)
    try:
        async with (
            open_workers(spec, policy, iteration, console) as workers,
            policy.open_session(config, spec.run_id, console.warn) as session,
        ):
            session.set_beginning(began_at)
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

            meter = WorkMeter("judging", reader.count, work, session=session, planned_calls=planned_calls)
            label = f"judging {iteration} of {len(spec.iterations)}:" if len(spec.iterations) > 1 else "judging"
            shown = console.progress(meter.state, label=label, keep=view.show)
            try:
                with run_deadline(config, session, ends_at), _watched(check, stage), shown, SignalHandlers(stage, console.warn):
                    progress = await stage.run()
            finally:
                view.show(meter.state(), at_once=True)
            if progress.changed:
                console.warn(changed_line(progress.changed, progress.first_changed))
            if session.budget is not None:
                console.say(session.budget.line())
            used_up = None if session.budget is None else session.budget.used_up
            return JudgedIteration(progress, session.total_asked(), used_up)
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


def end_of_asking(config: RunConfig, began: float) -> float | None:
    """When no question is asked any more, in seconds of the epoch, for a start that began at so many monotonic seconds; None: never."""
    seconds: float | None = getattr(config.judge, "run_deadline_s", None)
    return None if seconds is None else time.time() + began + seconds - time.monotonic()


@contextmanager
def run_deadline(config: RunConfig, session: JudgeSession, ends_at: float | None) -> Iterator[None]:
    """Inside, no question is asked after `ends_at` (`end_of_asking`): those that are left fail (kind `run_deadline`)."""
    if ends_at is None:
        yield
        return
    seconds = getattr(config.judge, "run_deadline_s", 0.0)
    why = JudgeError("run_deadline", f"not asked any more: judge.run_deadline_s={seconds:g} s of this start were over")
    timer = asyncio.get_running_loop().call_later(max(0.0, ends_at - time.time()), session.end_asking, why)
    try:
        yield
    finally:
        timer.cancel()


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
