"""Judging one iteration of a run: opens its cases and its judge session, and shows the progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ragpipe.comparing.judge_drift import NOTE, drift_file, read_drift_record, reply_times
from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import JudgeError, OutputError
from ragpipe.engine.chosen_runner import open_workers
from ragpipe.engine.event_loop import SignalHandlers
from ragpipe.engine.judge_access import case_measuring, case_window, store_folder, store_place
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.judging.limits.budget import BudgetUsedUp
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.reports.console import Console
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.judge_cases import JudgeStage, JudgingProgress
from ragpipe.stages.load_dataset import references_of
from ragpipe.stages.measured_cases import KnownMeasurements
from ragpipe.stages.slices import SliceRunner
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.run.progress_file import ProgressView
from ragpipe.store.run.progress_state import WallClock
from ragpipe.store.run.run_folder import IterationFolder
from ragpipe.store.run.run_tables import batches

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
    known: KnownMeasurements | None = None,
    planned_calls: int | None = None,
    began: float | None = None,
    began_at: float | None = None,
) -> JudgedIteration:
    """Judge all cases of one iteration, and show the progress.

    Args:
        spec: the run.
        policy: opens the judge session.
        iteration: the number of the iteration, from 1.
        providers: counts calls against `judge.max_calls`, and keeps what is learnt of a provider, over all iterations.
        console: shows the progress.
        check: raises OutputError when the start must end: the data was edited, or its folder is no longer locked.
        known: what need not be measured.
        planned_calls: calls that the plan expects of this iteration; None without a plan.
        began: when this start began, in monotonic seconds, for `judge.run_deadline_s`; None: now.
        began_at: from when on failures are of this start, in seconds of the epoch, for `retry_errors`; None: from now on.

    Raises what stopped the judging early.
    """
    ends_at = end_of_asking(spec.config, time.monotonic() if began is None else began)
    began_at = time.time() if began_at is None else began_at
    reader = CaseReader(spec.folder.samples, spec.folder.outputs, iteration)
    folder = spec.folder.iteration(iteration)
    clock = WallClock(folder.wall)
    view = ProgressView(folder.progress, name=spec.source.name, iteration=iteration, total=reader.count)
    try:
        async with (
            open_workers(spec, policy, iteration, known, console) as workers,
            policy.open_session(spec.config, spec.run_id, console.warn) as session,
        ):
            session.set_beginning(began_at)
            session.share_provider_state(providers)
            session.corpus = references_of(spec.folder.samples)
            stage = _stage(spec, reader, session, console, known, view, workers, lambda _: clock.tick())
            meter = _meter(stage, session, planned_calls)
            with run_deadline(spec.config, session, ends_at), _watched(check, stage):
                progress = await _run_shown(stage, meter, view, console, _label(spec, iteration))
            return _judged(progress, session, spec, console)
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


async def _run_shown(
    stage: JudgeStage, meter: WorkMeter, view: ProgressView, console: Console, label: str
) -> JudgingProgress:
    """Run the stage, showing its progress; signals end it early."""
    try:
        with console.progress(meter.state, label=label, keep=view.show), SignalHandlers(stage, console.warn):
            return await stage.run()
    finally:
        view.show(meter.state(), at_once=True)


def _judged(progress: JudgingProgress, session: JudgeSession, spec: RunSpec, console: Console) -> JudgedIteration:
    """How it ended. Prints what is spent of a budget."""
    if session.budget is None:
        return JudgedIteration(progress, session.total_usage.asked)
    console.say(session.budget.line())
    return JudgedIteration(progress, session.total_usage.asked, session.budget.used_up)


def _label(spec: RunSpec, iteration: int) -> str:
    """What the line says is done: with several iterations which of them it is."""
    return f"judging {iteration} of {len(spec.iterations)}:" if len(spec.iterations) > 1 else "judging"


def _meter(stage: JudgeStage, session: JudgeSession, planned_calls: int | None) -> WorkMeter:
    def work() -> WorkDone:
        progress = stage.state
        return WorkDone(progress.done, progress.resumed, progress.errors, dict(progress.error_kinds))

    return WorkMeter("judging", stage.state.cases, work, session=session, planned_calls=planned_calls)


def _stage(
    spec: RunSpec,
    reader: CaseReader,
    session: JudgeSession,
    console: Console,
    known: KnownMeasurements | None,
    view: ProgressView,
    workers: SliceRunner | None,
    on_change: Callable[[JudgingProgress], None],
) -> JudgeStage:
    """The judging of the iteration that the reader is for, by the run's configuration."""
    config, folder = spec.config, spec.folder.iteration(reader.iteration)
    return JudgeStage(
        cases=reader,
        measuring=case_measuring(config, session, known),
        session=session,
        folder=folder,
        view=view,
        slices=workers,
        window=case_window(config),
        keep_messages=config.keep_messages,
        on_change=on_change,
        on_notice=console.warn,
        retry_errors=config.retry_errors,
        known=known,
    )


_BATCH = 4_096  # rows read at once


def note_reply_times(
    config: RunConfig,
    folder: IterationFolder,
    manifest: dict[str, Any],
    *,
    source: Mapping[str, Any] | None,
    reads_store: bool,
) -> None:
    """Note in the manifest when the first and the last reply of the judge came that the run rests on, and what its drift file says
    (`judge_drift.NOTE`).

    Args:
        config: the configuration of the run.
        folder: the iteration that was judged.
        manifest: the manifest of the run.
        source: the manifest of the finished run whose cases these are; its replies are those of a run by the same judge, where the
            call store knows none.
        reads_store: whether the call store may be read.

    Only where the judge has a drift file, or there is a source: nothing else reads it.
    """
    if not isinstance(config.judge, JudgeSettings):
        return
    place, identity = store_place(config), config.judge.identity_of_judge()
    record = read_drift_record(drift_file(store_folder(config), identity)) if reads_store else None
    times: list[str] = []
    if record is not None and folder.judge_inputs.is_file():
        for batch in batches(folder.judge_inputs, ("key", "template"), size=_BATCH):
            keys = {row["key"] for row in batch.to_pylist() if row["template"] is not None}
            times += [call.created_at for call in read_calls(place, keys).values() if call.created_at]
            times = [min(times), max(times)] if times else []
    if source is not None and source["identity"].get("judge_identity") == identity and not times:
        times = list(reply_times(source))
    noted = manifest.get(NOTE, {})
    if times:
        times += [noted[name] for name in ("first", "last") if name in noted]
        noted |= {"first": min(times), "last": max(times)}
    if record is not None:
        noted |= record.note()
    if noted:
        manifest[NOTE] = noted


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
