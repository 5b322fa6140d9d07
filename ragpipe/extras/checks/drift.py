"""`task=drift`: asks the judge the canary set again, and says whether it still gives the verdicts of its baseline."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ragpipe.config.run_validation import validate_without_metrics
from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.errors import TRANSIENT, ConfigError, Incomplete, Problem, RagpipeError
from ragpipe.core.safe_text import shorten
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_access import open_judge, refuse_other_addresses, store_folder, store_place
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, prompt_counter
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.extras.checks.canary_set import CanaryItem, CanarySet, Verdicts, read_canaries
from ragpipe.extras.checks.drift_rule import (
    BASELINE_REPEATS,
    MORE_REPEATS,
    changed_names,
    check_document,
    kept_verdicts,
)
from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.judging.replies.answer_parsing import PARSER
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.settings import JudgeSettings
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.reports.sections.drift_section import served_words
from ragpipe.schema.call import Call
from ragpipe.stages.expected_replies import expected_tokens
from ragpipe.stages.plan_calls import Plan, StepPlan
from ragpipe.stages.step_tokens import TokenSample
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.calls.drift_file import DriftRecord, drift_file, read_drift_record
from ragpipe.store.run.folder_lock import FolderLock, waiting

_FEW = 60
"""Stable verdicts below which a change of 5 % is missed in more than one check of ten."""
_SHOWN = 20
_HEADS = ("verdict", "before", "now", "5 more", "drifted")
_ITERATION = 1
_LOCK_WAIT_S = 600.0
"""How long a start waits for another one that checks a judge of the same call store."""
_TITLE = "task=drift cannot start; nothing was asked"
DRIFTED = 3
"""The exit code where the judge has drifted."""


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunConfig:
    """Check the judge and the canary set. Raises ConfigError."""
    origins = origins or NoOrigins()
    config = validate_without_metrics({**plain, "dataset": {"name": "canaries", "path": "canaries"}}, origins)
    if not isinstance(config.judge, JudgeSettings) or config.transport.kind != "live":
        key = "transport" if isinstance(config.judge, JudgeSettings) else "judge"
        actual = "stored" if key == "transport" else config.judge.label
        expected = "a language model that is asked: stored and computed replies do not drift"
        problem = Problem(origins.location(key), key, actual, expected, "judge=llm judge.model=... transport=live")
        raise ConfigError(_TITLE, [problem])
    read_canaries(config.drift.canaries)
    return config


def run(config: RunConfig, console: Console) -> int:
    """Make the baseline, or check against it. Returns 0, or 3 where the judge has drifted. Raises as `check_drift`."""
    refuse_other_addresses(config)
    outcome = check_drift(config, console)
    say_drift(outcome.kind, outcome.document, outcome.baseline, config.judge.label, console)
    console.say(f"written: {outcome.path}")
    return DRIFTED if outcome.alarm else 0


@dataclass(frozen=True)
class DriftOutcome:
    """What a start did: made a baseline, or checked against one. `document` is its entry in the drift file."""

    kind: Literal["baseline", "check"]
    document: dict[str, Any]
    baseline: dict[str, Any]
    path: Path

    @property
    def alarm(self) -> bool:
        """Whether the judge has drifted."""
        return bool(self.document.get("alarm"))


def check_drift(config: RunConfig, console: Console) -> DriftOutcome:
    """Check the judge, a language model, against its baseline; make one where none holds. The check has a budget of its own.

    Raises ConfigError for a canary set that cannot be used and for a plan over `judge.max_calls`, DataError for a damaged drift
    file, Incomplete where questions failed for a passing reason (the same command asks these again), Interrupted,
    ProviderUnusable, FolderLocked.
    """
    canaries = read_canaries(config.drift.canaries)
    identity = config.judge.identity_of_judge()
    path = drift_file(store_folder(config), identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    with waiting(_LOCK_WAIT_S), FolderLock(path.parent) as lock:
        for notice in lock.notices:
            console.warn(notice)
        record = read_drift_record(path) or DriftRecord(config.judge.label, identity)
        start = _Start(config, console, canaries, record, path)
        if reason := _why_new(record, canaries, asked=config.drift.new_baseline):
            return start.make_baseline(reason)
        return start.check()


def _why_new(record: DriftRecord, canaries: CanarySet, *, asked: bool) -> str | None:
    """Why the baseline is made now; None where there is one that holds."""
    baseline = record.baseline
    if baseline is None:
        return "this judge has none yet"
    if baseline["canaries"]["digest"] != canaries.digest:
        return "the canary set is another one"
    if baseline["parser"] != PARSER:
        return "replies are read otherwise than then"
    if baseline["ended_at"] is None:
        return "an earlier start was interrupted"
    if baseline["drifted"]:
        return "the judge has drifted since the last one"
    return "drift.new_baseline=true" if asked else None


def _is_of(baseline: Mapping[str, Any], canaries: CanarySet) -> bool:
    """Whether a baseline holds for this set, and for replies read as now."""
    return bool(baseline["canaries"]["digest"] == canaries.digest and baseline["parser"] == PARSER)


@dataclass
class _Start:
    config: RunConfig
    console: Console
    canaries: CanarySet
    record: DriftRecord
    path: Path
    calls: list[Call] = field(default_factory=list)

    @property
    def payer(self) -> str:
        """The name under which the call store keeps what is paid: the same for the same judge."""
        return f"drift-{sha256(self.config.judge.identity_of_judge())[:12]}"

    def make_baseline(self, reason: str) -> DriftOutcome:
        baseline = self.record.baseline
        is_open = baseline is not None and baseline["ended_at"] is None
        if baseline is None or not is_open or not _is_of(baseline, self.canaries):
            first = self._free_repeats(BASELINE_REPEATS)
            baseline = {
                "canaries": self.canaries.document(),
                "parser": PARSER,
                "first_repeat": first,
                "repeats": BASELINE_REPEATS,
                "started_at": _now(),
                "ended_at": None,
                "drifted": False,
            }
            self.record.baseline = baseline
            self.record.write(self.path)
        self.console.say(f"drift: a new baseline of {BASELINE_REPEATS} repeats, because {reason}")
        numbers = range(baseline["first_repeat"], baseline["first_repeat"] + BASELINE_REPEATS)
        repeats = self._ask(self.canaries.items, numbers)
        kept = kept_verdicts(repeats)
        names = list(self.canaries.grades)
        baseline |= {
            "ended_at": _now(),
            "verdicts": kept,
            "random": [name for name in names if name not in kept],
            "served": _served(self.calls),
        }
        self.record.write(self.path)
        return DriftOutcome("baseline", baseline, baseline, self.path)

    def check(self) -> DriftOutcome:
        baseline = self.record.baseline
        assert baseline is not None
        kept: Verdicts = baseline["verdicts"]
        entry = self._open_check()
        first = entry["first_repeat"]
        (verdicts,) = self._ask(self.canaries.items, [first])
        changed = {name.partition("/")[0] for name in changed_names(kept, verdicts)}
        again: list[Verdicts] = []
        if changed:
            items = [item for item in self.canaries.items if item.name in changed]
            self.console.say(
                f"drift: {plural(len(items), 'question')} with a changed verdict: asked {MORE_REPEATS} times more"
            )
            again = self._ask(items, range(first + 1, first + 1 + MORE_REPEATS))
        entry |= check_document(kept, verdicts, again, self.canaries.grades)
        entry |= {"ended_at": _now(), "calls": len(self.calls), "served": _served(self.calls)}
        if entry["alarm"]:
            self.record.alarms.append(
                {"after": self._last_quiet(), "found": entry["ended_at"], "verdicts": entry["drifted"]}
            )
            baseline["drifted"] = True
        self.record.write(self.path)
        return DriftOutcome("check", entry, baseline, self.path)

    def _open_check(self) -> dict[str, Any]:
        """The check that an interrupted start has left open, else a new one, which is written down."""
        assert self.record.baseline is not None
        baseline = self.record.baseline["first_repeat"]
        checks = self.record.checks
        if checks and checks[-1]["ended_at"] is None and checks[-1]["baseline"] == baseline:
            return checks[-1]
        entry = {
            "baseline": baseline,
            "first_repeat": self._free_repeats(1 + MORE_REPEATS),
            "started_at": _now(),
            "ended_at": None,
        }
        self.record.checks = [check for check in checks if check["ended_at"] is not None] + [entry]
        self.record.write(self.path)
        return entry

    def _last_quiet(self) -> str:
        """When the judge was last known to be as in the baseline: as the last finished check against it began."""
        assert self.record.baseline is not None
        baseline = self.record.baseline
        quiet = [
            check["started_at"]
            for check in self.record.checks[:-1]
            if check["baseline"] == baseline["first_repeat"] and check["ended_at"] is not None
        ]
        return str(quiet[-1] if quiet else baseline["started_at"])

    def _free_repeats(self, count: int) -> int:
        """The first of `count` repeat numbers with which the call store holds no reply: a drift file may have been removed while
        its replies stayed. The numbers count as used from now on."""
        first, place = self.record.next_repeat, store_place(self.config)
        while read_calls(place, self._keys(self.canaries.items, range(first, first + count))):
            first += count
        self.record.next_repeat = first + count
        return first

    def _keys(self, items: Iterable[CanaryItem], repeats: Iterable[int]) -> list[str]:
        judge, numbers = judge_parts(self.config.judge.identity_of_judge()), list(repeats)
        return [
            question_key(key_parts(item.payload, judge, _ITERATION, number)) for item in items for number in numbers
        ]

    def _ask(self, items: Sequence[CanaryItem], repeats: Iterable[int]) -> list[Verdicts]:
        """The verdicts of the items, one mapping per repeat. Raises Incomplete where a question failed for a passing reason."""
        numbers = list(repeats)
        self._announce(items, numbers)
        calls = run_async(self._calls(items, numbers))
        passing = [call for call in calls if call.status in TRANSIENT]
        if passing:
            raise Incomplete(
                f"{len(passing):,} canary questions failed for a passing reason, first {passing[0].status}: "
                f"{passing[0].message}; the same command asks them again"
            )
        self.calls += calls
        of_item = [calls[place * len(numbers) : (place + 1) * len(numbers)] for place in range(len(items))]
        return [
            {
                name: value
                for item, replies in zip(items, of_item, strict=True)
                for name, value in _verdicts(item, replies[number]).items()
            }
            for number in range(len(numbers))
        ]

    def _announce(self, items: Sequence[CanaryItem], numbers: Sequence[int]) -> None:
        """Print the plan. Raises ConfigError where it is over `judge.max_calls`."""
        keys = self._keys(items, numbers)
        stored = len(read_calls(store_place(self.config), keys, run_id=self.payer))
        counter, sample = prompt_counter(self.config.judge), TokenSample()
        for item in items:
            length = sum(len(message["content"]) for message in item.payload.messages)
            sample.add(length, counter.tokens(item.payload.messages, item.answer))
            sample.add_calls(length, expected_tokens(item.answer, {}), len(numbers))
        step = StepPlan("drift", "canaries", "", calls=len(keys), sample=sample)
        plan = Plan(len(items), 1, [], [step], stored=stored, missing=len(keys) - stored)
        self.console.say(plan_line(plan, self.config))
        check_call_budget(plan, self.config)

    async def _calls(self, items: Sequence[CanaryItem], numbers: Sequence[int]) -> list[Call]:
        """The calls, item by item and of each its repeats in order."""
        async with open_judge(self.config, self.payer, warn=self.console.warn, embeds=False) as session:
            asker = _Asker(session)
            total = len(items) * len(numbers)
            meter = WorkMeter(
                "judging", total, lambda: WorkDone(asker.done, errors=session.usage.failed), session=session
            )
            progress = self.console.progress(meter.state, label="asking the canary set", noun="questions")
            with progress, SignalHandlers(asker, self.console.warn):
                try:
                    tasks = (asker.call(item, number) for item in items for number in numbers)
                    replies = await asyncio.gather(*tasks, return_exceptions=True)
                finally:
                    await session.drain()
        calls = []
        for reply in replies:
            if isinstance(reply, BaseException):
                raise asker.reason or reply
            calls.append(reply)
        return calls


class _Asker:
    """Asks through a session, and can be stopped."""

    def __init__(self, session: JudgeSession):
        self._session = session
        self.done = 0
        self.reason: RagpipeError | None = None

    def stop(self, why: RagpipeError) -> None:
        """Send nothing more; replies in flight still go into the call store."""
        self.reason = self.reason or why
        self._session.stop(why)

    def cancel(self) -> None:
        """Give up the calls in flight."""
        self._session.cancel()

    async def call(self, item: CanaryItem, repeat: int) -> Call:
        asker = f"{item.name} / drift / {repeat}"
        question = self._session.question(item.payload, item.answer, _ITERATION, asker, repeat=repeat)
        call = await self._session.reply(question)
        self.done += 1
        return call


def _verdicts(item: CanaryItem, call: Call) -> Verdicts:
    """The verdicts in a reply; a question that failed for good (refused, cut short) has its status as each of them."""
    if call.status != "ok":
        return dict.fromkeys(item.grades, f"({call.status})")
    return item.verdicts(call.text or "")


def _served(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The models and fingerprints that answered, with their counts; the call store has those of each call."""
    counts = Counter((call.model, call.fingerprint) for call in calls)
    return [{"model": model, "fingerprint": mark, "calls": n} for (model, mark), n in counts.most_common()]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def say_drift(
    kind: str, document: Mapping[str, Any], baseline: Mapping[str, Any], label: str, console: Console
) -> None:
    """Print what a start found; a drifted judge is a warning.

    Args:
        kind: `baseline` or `check`.
        document: the new baseline, or the check.
        baseline: the baseline that holds.
        label: the judge's printable name.
        console: where it is printed.
    """
    for line in _baseline_lines(document) if kind == "baseline" else _check_lines(document, baseline):
        console.say(line)
    if kind == "baseline":
        return
    if rows := _changed_rows(document):
        console.table(_HEADS, rows, title="changed verdicts", left=(0,))
    sentence = _conclusion(document, label)
    if document["alarm"]:
        console.warn(sentence)
    else:
        console.say(sentence)


def _baseline_lines(baseline: Mapping[str, Any]) -> list[str]:
    """Lines about a new baseline."""
    kept, random = len(baseline["verdicts"]), len(baseline["random"])
    lines = [
        f"baseline: {kept:,} of {kept + random:,} verdicts were the same {baseline['repeats']} times and are kept",
        f"answered by: {served_words(baseline['served'])}",
    ]
    if baseline["random"]:
        names = ", ".join(baseline["random"][:5]) + (" ..." if random > 5 else "")
        lines.append(f"left out as random: {names}")
    if few := _few_line(kept):
        lines.append(few)
    return lines


def _check_lines(check: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Lines about a check, without its table of changed verdicts and its _conclusion."""
    since, flips, p = baseline["started_at"][:16].replace("T", " "), check["flips"], check["mcnemar_p"]
    lines = [
        f"as in the baseline of {since} UTC: {_share(check['matched'], check['verdicts'])} verdicts",
        f"right by the grades of the canary set: {_share(check['right'], check['graded'])}",
        f"flips: {flips['to_wrong']:,} from right to wrong, {flips['to_right']:,} from wrong to right, {flips['other']:,} other"
        + (f"; McNemar p {p:.3f} (decides nothing)" if p is not None else ""),
        f"answered by: {served_words(check['served'])}",
    ]
    if few := _few_line(check["verdicts"]):
        lines.append(few)
    return lines


def _changed_rows(check: Mapping[str, Any]) -> list[list[str]]:
    """The changed verdicts, those that drifted first."""
    changed = sorted(check["changed"], key=lambda row: not row["drifted"])[:_SHOWN]
    return [
        [
            row["verdict"],
            shorten(str(row["before"]), 24),
            shorten(str(row["first"]), 24),
            f"{sum(value != row['before'] for value in row['again'])} differ",
            "yes" if row["drifted"] else "no",
        ]
        for row in changed
    ]


def _conclusion(check: Mapping[str, Any], label: str) -> str:
    """The last line: whether the judge has drifted, and what follows."""
    if not check["alarm"]:
        return f"no drift of {label}"
    verdicts = plural(check["drifted"], "verdict")
    return (
        f"{label} HAS DRIFTED: {verdicts} differ from the baseline in all six replies. Comparisons of runs that it judged before "
        "with runs since are refused. judge.season=NAME asks every question again; the next check makes a new baseline"
    )


def _few_line(kept: int) -> str | None:
    """A line where few verdicts are stable."""
    if kept >= _FEW:
        return None
    return f"only {kept:,} verdicts are stable: a change of 5 % of them is often missed (docs/drift.md)"


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / total:.1%})" if total else "0 of 0"
