"""`task=drift`: asks the judge the canary set again, and says whether it still gives the verdicts of its baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ragpipe.comparison.run_differences import DriftRecord, drift_file, read_drift_record
from ragpipe.core.call import Call
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins
from ragpipe.core.text import shorten
from ragpipe.extras.checks.canaries import SET, CanaryItem, CanarySet, Verdicts, is_right, read_canaries, same_value
from ragpipe.judge.answer_parsing import PARSER
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.recording_judge import reply_size
from ragpipe.report.console import Console
from ragpipe.report.model import Report, RunVerdict, Section, Table, Verbatim
from ragpipe.report.results_section import check_section, served_words
from ragpipe.report.section_page import write_sections
from ragpipe.report.styled_text import plural, whole
from ragpipe.report.terminal import print_report
from ragpipe.runs.own_questions import ITERATION, OpenJudge, OwnQuestion, OwnQuestions
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.validation import validate_without_metrics
from ragpipe.stats.differences import mcnemar_p
from ragpipe.store.folder_lock import FolderLock, waiting

BASELINE_REPEATS = 10
"""How often the baseline asks each question. A verdict is kept where all of them agree."""
MORE_REPEATS = 5
"""How often a question with a changed verdict is asked again in a check."""
DRIFTED = 3
"""The exit code where the judge has drifted."""
_FEW = 60  # stable verdicts below which a change of 5 % is missed in more than one check of ten
_SHOWN = 20  # changed verdicts that are printed; the drift file has all
_LOCK_WAIT_S = 600.0  # for another start that checks a judge of the same call store


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunConfig:
    """Check the judge. Raises ConfigError."""
    origins = origins or NoOrigins()
    config = validate_without_metrics({**plain, "dataset": {"name": "canaries", "path": "canaries"}}, origins)
    if not isinstance(config.judge, JudgeSettings) or config.transport.kind != "live":
        key = "transport" if isinstance(config.judge, JudgeSettings) else "judge"
        found = "stored" if key == "transport" else config.judge.label
        expected = "a language model that is asked: stored and computed replies do not drift"
        problem = Problem(origins.location(key), key, found, expected, "judge=llm judge.model=... transport=live")
        raise ConfigError("task=drift cannot start; nothing was asked", [problem])
    return config


def run(config: RunConfig, console: Console) -> int:
    """Check the judge, a language model, against its baseline; make one where none holds. The check has a budget of its own.

    Returns 0, or 3 where the judge has drifted. Raises ConfigError for a plan over `judge.max_calls`, DataError for a damaged drift file,
    Incomplete where questions failed for a passing reason (the same command asks these again), Interrupted, ProviderUnusable,
    FolderLocked.
    """
    questions = OwnQuestions(config, "drift", console)
    identity = config.judge.identity_of_judge()
    path = drift_file(config.store.folder(config.output_dir), identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    with waiting(_LOCK_WAIT_S), FolderLock(path.parent) as lock:
        for notice in lock.notices:
            console.warn(notice)
        record = read_drift_record(path) or DriftRecord(config.judge.label, identity)
        start = _Start(questions, console, read_canaries(), record, path)
        reason = start.why_new()
        has_drifted = start.check() if reason is None else start.make_baseline(reason)
        pages = write_sections(path, drift_report(record))
    for written in (path, *pages):
        console.say(f"written: {written}")
    return DRIFTED if has_drifted else 0


def drift_report(record: DriftRecord) -> Report:
    """The page of a judge: what the newest check found, or the baseline without one, the verdicts that changed, and all checks."""
    baseline, checks = record.baseline, record.ended_checks()
    if baseline is None or not checks:
        kept = len(baseline["verdicts"]) if baseline else 0
        said = f"no check yet: a baseline of {plural(kept, 'stable verdict')}"
        return Report(f"Drift of {record.judge}", "", "", RunVerdict("plain", "", said), (), ())
    newest = checks[-1]
    changed, total = len(newest["changed"]), newest["verdicts"]
    said = f"no drift: all {total:,} stored verdicts are as in the baseline"
    if newest["alarm"]:
        said = f"DRIFTED: {newest['drifted']:,} of {total:,} stored verdicts changed in all six replies"
    elif changed:
        said = f"no drift: {changed:,} of {total:,} stored verdicts changed in the first reply, none in all six"
    rows = [
        (check["ended_at"][:16].replace("T", " "), f"{check['matched']:,} of {check['verdicts']:,}", whole(check["drifted"]))
        for check in checks
    ]
    history = Table.of(("checked (UTC)", "as in the baseline", "drifted"), rows)
    sections = (*_found(newest, baseline), Section("checks", "All checks", (history,)))
    verdict = RunVerdict("bad" if newest["alarm"] else "good", "", said)
    return Report(f"Drift of {record.judge}", "", "", verdict, (), sections)


def _found(check: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[Section]:
    """What a check found, and the verdicts that changed."""
    yield check_section(check, baseline)
    if check["changed"]:
        heads = ("verdict", "before", "now", "5 more", "drifted")
        rows = sorted(check["changed"], key=lambda row: not row["drifted"])[:_SHOWN]
        yield Section("changed", "Changed verdicts", (Table.of(heads, map(_changed_cells, rows)),))


@dataclass
class _Start:
    questions: OwnQuestions
    console: Console
    canaries: CanarySet
    record: DriftRecord
    path: Path
    calls: list[Call] = field(default_factory=list)

    def why_new(self) -> str | None:
        """Why the baseline is made now; None where there is one that holds."""
        baseline = self.record.baseline
        if baseline is None:
            return "this judge has none yet"
        reasons = {
            "the canary set is another one": baseline["canaries"]["digest"] != self.canaries.digest,
            "replies are read otherwise than then": baseline["parser"] != PARSER,
            "an earlier start was interrupted": baseline["ended_at"] is None,
            "the judge has drifted since the last one": any(check["alarm"] for check in self.record.ended_checks()),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def make_baseline(self, reason: str) -> bool:
        """Ask all questions ten times, and keep the verdicts that agree. Nothing has drifted then."""
        self.console.say(f"drift: a new baseline of {BASELINE_REPEATS} repeats, because {reason}")
        named = {"name": SET, "version": self.canaries.version, "digest": self.canaries.digest}
        made_for, baseline = {"canaries": named, "parser": PARSER}, self.record.baseline
        if baseline is None or baseline["ended_at"] is not None or not made_for.items() <= baseline.items():
            baseline = {**made_for, **self._opened(BASELINE_REPEATS), "repeats": BASELINE_REPEATS}
            self.record.baseline = baseline
            self.record.write(self.path)
        first = baseline["first_repeat"]
        kept = kept_verdicts(self._ask(self.canaries.items, range(first, first + BASELINE_REPEATS)))
        random = [name for name in self.canaries.grades if name not in kept]
        baseline |= {"verdicts": kept, "random": random, "ended_at": _now(), "served": _served(self.calls)}
        self.record.write(self.path)
        said = f"{len(kept):,} of {len(kept) + len(random):,} verdicts were the same {BASELINE_REPEATS} times and are kept"
        if random:
            said += f"; left out as random: {', '.join(random[:5])}{' ...' if len(random) > 5 else ''}"
        self.console.say(f"baseline: {said}; answered by {served_words(baseline['served'])}")
        if len(kept) < _FEW:
            few = f"only {len(kept):,} verdicts are stable: a change of 5 % of them is often missed (docs/extras/checks.md)"
            self.console.say(few)
        return False

    def check(self) -> bool:
        """Ask all questions once, those with a changed verdict five times more. Returns whether the judge has drifted."""
        record, baseline = self.record, self.record.baseline
        assert baseline is not None
        quiet = [check["started_at"] for check in record.ended_checks()]
        entry = next((check for check in record.checks if check["ended_at"] is None), None)  # a start that was stopped
        if entry is None or entry["baseline"] != baseline["first_repeat"]:
            entry = {"baseline": baseline["first_repeat"], **self._opened(1 + MORE_REPEATS)}
            record.checks = [check for check in record.checks if check["ended_at"] is not None] + [entry]
            record.write(self.path)
        kept, first = baseline["verdicts"], entry["first_repeat"]
        (verdicts,) = self._ask(self.canaries.items, [first])
        again: list[Verdicts] = []
        if changed := {name.partition("/")[0] for name in changed_names(kept, verdicts)}:
            items = [item for item in self.canaries.items if item.name in changed]
            self.console.say(f"drift: {plural(len(items), 'question')} with a changed verdict: asked {MORE_REPEATS} times more")
            again = self._ask(items, range(first + 1, first + 1 + MORE_REPEATS))
        entry |= check_document(kept, verdicts, again, self.canaries.grades)
        entry |= {"ended_at": _now(), "calls": len(self.calls), "served": _served(self.calls)}
        if entry["alarm"]:
            entry["after"] = quiet[-1] if quiet else baseline["started_at"]
        record.write(self.path)
        print_report(Report("", "", "", None, (), tuple(_found(entry, baseline))), self.console)
        if not entry["alarm"]:
            self.console.say(f"no drift of {record.judge}")
            return False
        self.console.warn(
            f"{record.judge} HAS DRIFTED: {plural(entry['drifted'], 'verdict')} differ from the baseline in all six replies. "
            "Comparisons of runs that it judged before with runs since are refused. judge.season=NAME asks every question "
            "again; the next check makes a new baseline"
        )
        return True

    def _opened(self, count: int) -> dict[str, Any]:
        """The first keys of a baseline or check that begins, with `count` repeat numbers, which are used from now on."""
        first, items = self.record.next_repeat, self.canaries.items
        # replies of these numbers are stored where a drift file was removed
        while self.questions.stored(_question(item, number) for item in items for number in range(first, first + count)):
            first += count
        self.record.next_repeat = first + count
        return {"first_repeat": first, "started_at": _now(), "ended_at": None}

    def _ask(self, items: Sequence[CanaryItem], repeats: Sequence[int]) -> list[Verdicts]:
        """The verdicts of the items, one mapping per repeat. Raises Incomplete where a question failed for a passing reason."""
        asked = [(item, repeat) for item in items for repeat in repeats]
        self.questions.announce({"canaries": [_question(*of_one) for of_one in asked]}, cases=len(items))

        def calls(judge: OpenJudge) -> Awaitable[list[Any]]:
            return judge.all(_call(judge, *of_one) for of_one in asked)

        replies = self.questions.ask(calls, total=len(asked), label="asking the canary set")
        self.calls += replies
        verdicts: dict[int, Verdicts] = {repeat: {} for repeat in repeats}
        for (item, repeat), call in zip(asked, replies, strict=True):
            failed = dict.fromkeys(item.grades, f"({call.status})")
            verdicts[repeat] |= item.verdicts(call.text or "") if call.status == "ok" else failed
        return list(verdicts.values())


def _question(item: CanaryItem, repeat: int) -> OwnQuestion:
    length = sum(len(message["content"]) for message in item.payload.messages)
    return OwnQuestion(item.payload, item.answer, length, reply_size(item.answer, {}), repeat)


async def _call(judge: OpenJudge, item: CanaryItem, repeat: int) -> Call:
    asker = f"{item.name} / drift / {repeat}"
    return await judge.session.reply(judge.session.question(item.payload, item.answer, ITERATION, asker, repeat=repeat))


def kept_verdicts(repeats: Sequence[Verdicts]) -> Verdicts:
    """The verdicts that all repeats of the baseline gave alike, by name. The others are random and prove no drift."""
    first, *later = repeats
    return {name: value for name, value in first.items() if all(same_value(value, repeat[name]) for repeat in later)}


def changed_names(kept: Verdicts, now: Verdicts) -> list[str]:
    """The kept verdicts that are not the same now."""
    return [name for name, value in kept.items() if not same_value(value, now[name])]


def changed_verdicts(kept: Verdicts, first: Verdicts, again: Sequence[Verdicts]) -> list[dict[str, Any]]:
    """What became of the kept verdicts that changed in the check's first replies: `drifted` where all five further ones, `again`, differ
    from the baseline too."""
    rows = []
    for name in changed_names(kept, first):
        before, values = kept[name], [repeat[name] for repeat in again]
        drifted = len(values) == MORE_REPEATS and not any(same_value(value, before) for value in values)
        rows.append({"verdict": name, "before": before, "first": first[name], "again": values, "drifted": drifted})
    return rows


def check_document(
    kept: Verdicts, first: Verdicts, again: Sequence[Verdicts], grades: Mapping[str, JsonValue]
) -> dict[str, Any]:
    """What a check found, from the verdicts of the baseline, of the first replies and of the further ones about items with a change.

    `matched` of the `verdicts` are as in the baseline (`exact_match` is their share). `flips` counts the others by direction,
    as the grades see it; `mcnemar_p` is printed and decides nothing. `alarm`: some verdict drifted.
    """
    changed = changed_verdicts(kept, first, again)
    flips = Counter(_direction(row, grades[row["verdict"]]) for row in changed)
    drifted, matched = sum(row["drifted"] for row in changed), len(kept) - len(changed)
    return {
        "verdicts": len(kept),
        "matched": matched,
        "exact_match": matched / len(kept) if kept else None,
        "right": sum(is_right(first[name], grade) for name, grade in grades.items()),
        "graded": len(grades),
        "flips": {name: flips[name] for name in ("to_wrong", "to_right", "other")},
        "mcnemar_p": mcnemar_p(flips["to_right"], flips["to_wrong"]),
        "changed": changed,
        "drifted": drifted,
        "alarm": drifted > 0,
    }


def _direction(row: Mapping[str, Any], grade: JsonValue) -> str:
    before, now = is_right(row["before"], grade), is_right(row["first"], grade)
    return "other" if before == now else "to_right" if now else "to_wrong"


def _changed_cells(row: Mapping[str, Any]) -> Sequence[str]:
    before, now = (Verbatim(shorten(str(row[name]), 24)) for name in ("before", "first"))
    differ = f"{sum(value != row['before'] for value in row['again'])} differ"
    return (Verbatim(row["verdict"]), before, now, differ, "yes" if row["drifted"] else "no")


def _served(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The models and fingerprints that answered, with their counts; the call store has those of each call."""
    counts = Counter((call.model, call.fingerprint) for call in calls)
    return [{"model": model, "fingerprint": mark, "calls": n} for (model, mark), n in counts.most_common()]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
