"""The questions about a case in the order in which its metrics ask them; a table has them in the order of their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.engine.event_loop import run_async
from ragpipe.engine.judge_access import open_replay
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.schema.corpus import Corpus
from ragpipe.schema.sample import Case
from ragpipe.store.calls.recorded_replies import RecordedRowReplies

_QUESTION = ("metric", "step", "turn", "payload_id")

Row = Mapping[str, Any]


def in_call_order(config: RunConfig, case: Case, rows: Sequence[Row], corpus: Corpus) -> list[Row]:
    """The rows of `judge_inputs` about one case and iteration, metric by metric, each metric's as it asks them: a chain by
    rank, a fan-out by index. `corpus` are the references of the run.

    No row says when it was asked, and times would not give the order either: questions that fan out are answered in any
    order. So the metrics run once more over these replies. What they do not ask then (the replies were not kept, or a
    metric stops at an error) comes last, in the order of the table.
    """
    metrics = {name: position for position, name in enumerate(config.metrics)}
    positions = run_async(_call_positions(config, case, rows, corpus))
    last = len(positions)
    return sorted(rows, key=lambda row: (metrics[row["metric"]], positions.get(_question_id(row), last)))


async def _call_positions(
    config: RunConfig, case: Case, rows: Sequence[Row], corpus: Corpus
) -> dict[tuple[str, ...], int]:
    """The position at which each question is first asked."""
    positions: dict[tuple[str, ...], int] = {}
    async with open_replay(config, RecordedRowReplies(rows)) as session:
        session.corpus = corpus
        for name in {row["metric"] for row in rows}:
            judge = CaseJudge(session, case.key, name)
            with suppress(Exception):  # whatever ended the metric here ended it in the run, and is in its score
                await config.metrics[name].measure(case, judge)
            for use in judge.uses:
                positions.setdefault((use.metric, use.step, use.turn, use.payload.id), len(positions))
    return positions


def _question_id(row: Row) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in _QUESTION)
