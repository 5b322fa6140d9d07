"""The questions about a case in the order in which its metrics ask them: a table holds them in that of their ids."""

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

    No row says when it was asked, and when is not the order anyway: questions that fan out are answered as it happens. So
    the metrics run once more over these replies. What they do not ask then (the replies were not kept, or a
    metric stops at an error) stands after the others, in the order of the table.
    """
    metrics = {name: place for place, name in enumerate(config.metrics)}
    places = run_async(_places(config, case, rows, corpus))
    last = len(places)
    return sorted(rows, key=lambda row: (metrics[row["metric"]], places.get(_name(row), last)))


async def _places(config: RunConfig, case: Case, rows: Sequence[Row], corpus: Corpus) -> dict[tuple[str, ...], int]:
    """When each question is asked for the first time, by its name."""
    found: dict[tuple[str, ...], int] = {}
    async with open_replay(config, RecordedRowReplies(rows)) as session:
        session.corpus = corpus
        for name in {row["metric"] for row in rows}:
            judge = CaseJudge(session, case.key, name)
            with suppress(Exception):  # whatever ended the metric here ended it in the run, and stands with its score
                await config.metrics[name].measure(case, judge)
            for use in judge.uses:
                found.setdefault((use.metric, use.step, use.turn, use.payload.id), len(found))
    return found


def _name(row: Row) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in _QUESTION)
