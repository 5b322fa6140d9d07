"""`rejudge.mode=resend`: sends the stored questions of a run to a judge, byte for byte, to compare two judges or see one drift.

The metrics do not run: what they would do with other answers is another mode (`replay`). Replies go into the call store, so
that a second start pays nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ragpipe.core.errors import Incomplete
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_access import open_judge, served_model, store_place
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.runs.manifest import check_formats, config_text, new_manifest, read_manifest, write_manifest
from ragpipe.engine.runs.run_identity import run_id
from ragpipe.engine.runs.run_list import write_run_list
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.judging.token_count import CHARACTERS_PER_TOKEN
from ragpipe.reports.console import Console
from ragpipe.reports.missing_replies import MISSING_REPLY, MISSING_REPLY_FIX
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.stages.plan_calls import Plan, StepPlan
from ragpipe.stages.resend_questions import ResendStage, ResendTally, stored_questions
from ragpipe.stages.step_tokens import TokenSample
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.files.write_if_changed import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder


def resend(finished: FinishedRun, console: Console) -> int:
    """Send and compare; write `resend.parquet` and `resend.json` into a sibling folder.

    Returns the exit code: 4 when some questions failed for a transient reason, or when a smaller share than
    `scoring.coverage_floor` was answered. Raises DataError for a run that did not keep its questions.
    """
    identity = {**finished.identity(), "rejudge": {"mode": "resend"}}
    target = finished.folder_of(run_id(identity))
    check_formats(target, store_place(finished.config))
    plan = _plan(finished, target.run_id)
    console.say(plan_line(plan, finished.config))
    check_call_budget(plan, finished.config)
    target.create()
    console.folder = target.root
    with FolderLock(target.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        _write_manifest(finished, target, identity)
        stage = run_async(_send(finished, target, console, plan.calls, plan.new_calls))
        document = _document(finished, stage)
        json_unless_same(target.root / "resend.json", document)
        write_run_list(target.root.parent)
    _print_results(document, target, console, stored=plan.stored or 0)
    return _exit_code(stage.total, finished.config.scoring.coverage_floor, console)


def _exit_code(total: ResendTally, floor: float, console: Console) -> int:
    if total.transient:
        if missing := total.failed.get(MISSING_REPLY):
            console.warn(f"questions without a stored reply were not asked: {MISSING_REPLY_FIX}")
        if total.transient != missing:
            console.warn("some calls failed for a transient reason: the same command asks for them again")
        return Incomplete.exit_code
    answered = _share(total.ok, total.questions)
    if answered is not None and answered < floor:
        console.warn(f"{answered:.1%} of the questions were answered, less than scoring.coverage_floor ({floor:.1%})")
        return Incomplete.exit_code
    return 0


def _plan(finished: FinishedRun, run: str) -> Plan:
    """The different questions, and how many of them the call store answers: each of the others is one call.

    A failure of this run counts as an answer, unless `retry_errors` asks again; a reply of another model that the judge
    refuses does not.
    """
    retry, served = finished.config.retry_errors, served_model(finished.config.judge)
    judge = judge_parts(finished.config.judge.identity_of_judge())
    sample, stored = TokenSample(), 0
    cases: set[tuple[str | int, ...]] = set()
    for block in stored_questions(finished.judge_inputs()):
        keys = [question_key(key_parts(question.payload, judge, question.row["iteration"], 1)) for question in block]
        for call in read_calls(store_place(finished.config), keys, run_id=run).values():
            is_refused = served is not None and served.refuse(call)
            stored += (call.status == "ok" or not retry) and not is_refused
        for question in block:
            characters = sum(len(message["content"]) for message in question.payload.messages)
            sample.add(characters, characters // CHARACTERS_PER_TOKEN)
            sample.add_calls(characters, len(question.row["reply"] or "") / CHARACTERS_PER_TOKEN, 1)
            cases.add(tuple(question.row[name] for name in OUTPUT_KEY))
    step = StepPlan("", "", "", calls=sample.calls, sample=sample)
    return Plan(len(cases), 1, [], [step], stored=stored, missing=sample.calls - stored)


def _write_manifest(finished: FinishedRun, target: RunFolder, identity: Mapping[str, Any]) -> None:
    """Write manifest and configuration of the resend, unless an earlier start did."""
    if read_manifest(target):
        return
    config = finished.config
    write_unless_same(target.config, config_text(config))
    write_manifest(
        target,
        new_manifest(
            config,
            identity,
            run_id=target.run_id,
            data=finished.manifest["data"],
            source_run=finished.run_id,
        ),
    )


async def _send(
    finished: FinishedRun, target: RunFolder, console: Console, questions: int, missing: int
) -> ResendStage:
    """Send all the questions.

    Args:
        finished: the run whose questions are sent.
        target: the folder of the results.
        console: shows the progress.
        questions: how many there are.
        missing: how many of them have no stored reply.
    """
    async with open_judge(finished.config, target.run_id, warn=console.warn) as session:
        done = 0

        def count(answered: int) -> None:
            nonlocal done
            done = answered

        def work() -> WorkDone:
            return WorkDone(done, errors=session.usage.failed)

        meter = WorkMeter("judging", questions, work, session=session, planned_calls=missing)
        stage = ResendStage(finished.judge_inputs(), session, target.root / "resend.parquet", count)
        shown = console.progress(meter.state, label="resending", noun="questions")
        with shown, SignalHandlers(stage, console.warn):
            await stage.run()
    return stage


def _document(finished: FinishedRun, stage: ResendStage) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "old": {"run_id": finished.run_id, "judge": _judge_of(finished)},
        "new": {"judge": finished.config.judge.label},
        **_counts(stage.total),
        "steps": [{"metric": m, "step": s, **_counts(tally)} for (m, s), tally in stage.steps.items()],
    }


def _counts(tally: ResendTally) -> dict[str, Any]:
    """Counts, and the shares that follow from them."""
    return {
        **asdict(tally),
        "same_text_share": _share(tally.same_text, tally.both_replied),
        "same_answer_share": _share(tally.same_answer, tally.both_read),
    }


def _judge_of(finished: FinishedRun) -> str:
    """The judge of the run itself: the configuration names the judge that the user set over it."""
    identity = finished.manifest["identity"]["judge_identity"]
    return str(identity.get("model") or identity.get("version") or identity)


def _print_results(document: Mapping[str, Any], target: RunFolder, console: Console, *, stored: int) -> None:
    lines = [
        [
            step["metric"],
            step["step"],
            f"{step['questions']:,}",
            f"{step['ok']:,}",
            _percent(step["same_answer_share"]),
            f"{step['both_read']:,}",
            _percent(step["same_text_share"]),
        ]
        for step in document["steps"]
    ]
    columns = ("metric", "step", "questions", "answered", "same answer", "of", "same text")
    console.folded(columns, lines, title=f"resent from {document['old']['run_id']} ({document['old']['judge']})")
    console.say("same answer: reasons and quotes aside; of the questions whose replies can be read in both runs")
    console.say(f"requests with the same bytes as then: {document['same_body']:,} of {document['body_known']:,}")
    if stored:
        console.say(f"{stored:,} replies came from the call store; judge.season=NAME asks the same judge again")
    for kind, count in document["failed"].items():
        console.warn(f"{count:,} questions failed: {kind}")
    console.say(f"results: {target.root}")


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
