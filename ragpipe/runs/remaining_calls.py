"""The questions of a run that have no stored reply yet: every case is measured over the replies that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.sample import Case
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.metrics.recording_judge import RecordingJudge
from ragpipe.runs.case_measuring import measure_case
from ragpipe.runs.judge_access import open_replay, recorded_replies, store_place, usable_replies
from ragpipe.runs.judge_cases import Resumption
from ragpipe.runs.load_dataset import references_of
from ragpipe.runs.measured_cases import CaseReader, ReplayedCases
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.table_rows import Measurement, failed_measurement, scores_by_name
from ragpipe.store.call_database import call_database
from ragpipe.store.call_store import StoredCalls
from ragpipe.store.recorded_replies import FallbackStore, RecordedReplies


def may_have_replies(config: RunConfig, recorded: Sequence[Path], resumed: Mapping[int, Resumption]) -> bool:
    """Whether a reply of this run may be stored, recorded or written already."""
    is_recorded = bool(recorded) or config.store.recorded is not None
    return is_recorded or any(state.written for state in resumed.values()) or call_database(store_place(config)).exists()


async def remaining_calls(
    config: RunConfig,
    reader: CaseReader,
    run_id: str | None,
    recorded: Sequence[Path],
    resumed: Mapping[int, Resumption],
    known: ReplayedCases | None,
    repeats: int,
    most: int,
) -> RemainingCalls:
    """What is left to ask in all iterations, by about `most` of the cases of each."""
    from_file = recorded_replies(config)
    stored = StoredCalls(store_place(config), run_id=run_id)  # opened here: SQLite stays in the thread of its loop
    replies = usable_replies(config, stored, from_file)
    if recorded:
        replies = FallbackStore(RecordedReplies(recorded, failures="permanent"), replies)
    remaining, metrics = RemainingCalls(), list(config.metrics.values())
    async with open_replay(config, replies) as session:
        session.corpus = references_of(reader.samples)
        for iteration in range(1, config.iterations + 1):
            state = resumed.get(iteration, Resumption())
            remaining.stored += state.stored
            left = [block for block in range(reader.blocks) if block not in state.written]
            sample = reader.spread(left, most)
            factor = reader.cases_in(left) / max(1, reader.cases_in(sample))
            for session.repeat in range(1, repeats + 1):
                counted = await count_remaining(reader.of(iteration, sample), metrics, session, known)
                remaining.stored += round(counted.stored * factor)
                remaining.missing += round(counted.missing * factor)
    return remaining


@dataclass(slots=True)
class RemainingCalls:
    """Questions with a stored reply, and questions (at most) without one."""

    stored: int = 0
    missing: int = 0


async def count_remaining(
    cases: Iterable[Case], metrics: Sequence[Metric], session: JudgeSession, known: ReplayedCases | None = None
) -> RemainingCalls:
    """Replay every case through every metric that asks, over the stored replies of the session, and count what it needs. Where
    a reply is missing, all that the metric would ask over likely replies beyond the stored questions counts as missing. `known`
    keeps the cases of which every question has a reply, for the run."""
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    total = RemainingCalls()
    for case in cases:
        measured: list[Measurement] = []
        for metric in asking:
            if reason := run_skip_reason(metric, case, embedder=session.embedder is not None):
                measured.append(failed_measurement(metric, Skipped(reason), []))
                continue
            if measurement := await _replay(metric, case, session, total):
                measured.append(measurement)
        if len(measured) == len(asking) and known is not None:
            known.add(case.key, measured)
    return total


async def _replay(metric: Metric, case: Case, session: JudgeSession, total: RemainingCalls) -> Measurement | None:
    """What a metric gives for a case over stored replies; None where one is missing. Counts its questions."""
    judge = CaseJudge(session, case.key, metric.name)
    is_known, measurement = True, None
    try:
        measurement = Measurement(metric, scores_by_name(metric, await measure_case(metric, case, judge)), judge.uses)
    except (JudgeError, Skipped) as outcome:
        is_known = not any(use.call.status == "missing_reply" for use in judge.uses)
        measurement = failed_measurement(metric, outcome, judge.uses) if is_known else None
    except Exception:  # a bug of the metric: the run itself will report it
        is_known = False
    asked = [use for use in judge.uses if use.prompt is not None]  # texts to an embedder are planned apart
    stored = sum(use.call.status != "missing_reply" for use in asked)
    total.stored += stored
    if is_known:
        return measurement
    recording = RecordingJudge(lambda _: None)
    await recording.run(metric, case)
    total.missing += max(len(asked), recording.count) - stored
    return None
