"""`task=drift`: asks the judge the canary set again, and says whether it still gives the verdicts of its baseline."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

from ragpipe.comparing.judge_drift import DriftRecord, drift_file, read_drift_record
from ragpipe.config.run_validation import validate_without_metrics
from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import TRANSIENT, ConfigError, Incomplete, Problem
from ragpipe.core.resources import data_path, prompts_dir
from ragpipe.core.safe_text import shorten
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.core.yaml_files import FastLoader
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_access import open_judge, refuse_other_addresses, store_folder, store_place
from ragpipe.engine.plans.plan_summary import check_call_budget, plan_line, prompt_counter
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.extras.checks.check import table
from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.judging.replies.answer_parsing import PARSER, Unparsable, read_answer
from ragpipe.judging.settings import JudgeSettings
from ragpipe.prompting.fences import fenced_values
from ragpipe.prompting.library import PromptLibrary
from ragpipe.reports.console import Console
from ragpipe.reports.model import Report, Section, Verbatim
from ragpipe.reports.number_format import plural
from ragpipe.reports.render.terminal import print_report
from ragpipe.reports.sections.results_section import check_section, served_words
from ragpipe.schema.call import Call, Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.stages.plan_calls import Plan, StepPlan, expected_tokens
from ragpipe.stages.step_tokens import TokenSample
from ragpipe.stats.mcnemar import mcnemar_p
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.run.folder_lock import FolderLock, waiting

Verdicts = dict[str, JsonValue]
"""Values by name: `item/field`, or `item/field[2]` for the second numbered item of the reply."""
UNREADABLE, MISSING = "(unreadable)", "(missing)"
"""The verdicts of a reply that is no answer at all, and of one that leaves them out."""
BASELINE_REPEATS = 10
"""How often the baseline asks each question. A verdict is kept where all of them agree."""
MORE_REPEATS = 5
"""How often a question with a changed verdict is asked again in a check."""
DRIFTED = 3
"""The exit code where the judge has drifted."""
_SET = "canaries.v1.yaml"
_FEW = 60  # stable verdicts below which a change of 5 % is missed in more than one check of ten
_SHOWN = 20  # changed verdicts that are printed; the drift file has all
_ITERATION = 1
_LOCK_WAIT_S = 600.0  # for another start that checks a judge of the same call store


@dataclass(frozen=True)
class CanaryItem:
    """One question of the set. `grades` are the verdicts that its authors give, by the name of the verdict."""

    name: str
    payload: Payload
    answer: type[Answer]
    grades: Mapping[str, JsonValue]

    def verdicts(self, text: str) -> Verdicts:
        """The graded verdicts in a reply."""
        try:
            answer = read_answer(text, self.answer, fenced_values(self.payload.messages))[0].model_dump(mode="json")
        except Unparsable:
            return dict.fromkeys(self.grades, UNREADABLE)
        return {name: _value(answer, name.partition("/")[2]) for name in self.grades}


@dataclass(frozen=True)
class CanarySet:
    """The questions. `digest` changes with every message, schema and grade."""

    version: int
    digest: str
    items: tuple[CanaryItem, ...]

    @property
    def grades(self) -> dict[str, JsonValue]:
        """The grades of all items by the name of the verdict."""
        return {name: grade for item in self.items for name, grade in item.grades.items()}


@cache
def read_canaries() -> CanarySet:
    """The shipped set. Its templates are those that ragpipe ships, whatever `prompt_dirs` says."""
    content = yaml.load(data_path(f"package:{_SET}").read_text(encoding="utf-8"), Loader=FastLoader)
    library = PromptLibrary([prompts_dir()])
    items = tuple(_item(item, library) for item in content["items"])
    digest = sha256([[item.name, item.payload.id, dict(item.grades)] for item in items])
    return CanarySet(content["version"], digest, items)


def _item(item: Mapping[str, Any], library: PromptLibrary) -> CanaryItem:
    folder, step, version = item["prompt"].replace("/", ".", 1).split(".", 2)
    prompt, answer = library.load(folder, step, version), ANSWER_TYPES[item["answer"]]
    values = {
        name: [{"text": text} for text in value] if prompt.roles.get(name) == "sources" else value
        for name, value in item["values"].items()
    }
    grades: dict[str, JsonValue] = {}
    for place, grade in item["grades"].items():
        if isinstance(grade, list):  # one grade for each numbered item of the reply
            grades |= {f"{item['id']}/{place}[{number}]": value for number, value in enumerate(grade, 1)}
        else:
            grades[f"{item['id']}/{place}"] = grade
    return CanaryItem(item["id"], Payload(prompt.render(**values), answer_schema(answer)), answer, grades)


def _value(answer: Mapping[str, Any], field: str) -> JsonValue:
    """The value at `score`, `correctness.score` or `verdict[2]`, which is that of the item with index 2."""
    field, _, place = field.rstrip("]").partition("[")
    value: Any = answer
    if place:
        numbered = [item for item in answer.get("verdicts", ()) if item.get("index") == int(place)]
        value = numbered[0] if len(numbered) == 1 else {}
    for key in field.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return sorted(value) if isinstance(value, list) else value


def is_right(value: JsonValue, grade: JsonValue) -> bool:
    """Whether a verdict is the one that the set's authors give: equal, or within their range."""
    if isinstance(grade, dict):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and grade["low"] <= value <= grade["high"]  # type: ignore[operator]
    return _same(value, grade)


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
    refuse_other_addresses(config)
    identity = config.judge.identity_of_judge()
    path = drift_file(store_folder(config), identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    with waiting(_LOCK_WAIT_S), FolderLock(path.parent) as lock:
        for notice in lock.notices:
            console.warn(notice)
        record = read_drift_record(path) or DriftRecord(config.judge.label, identity)
        start = _Start(config, console, read_canaries(), record, path)
        reason = start.why_new()
        has_drifted = start.check() if reason is None else start.make_baseline(reason)
    console.say(f"written: {path}")
    return DRIFTED if has_drifted else 0


@dataclass
class _Start:
    config: RunConfig
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
        named = {"name": _SET, "version": self.canaries.version, "digest": self.canaries.digest}
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
        said = (
            f"{len(kept):,} of {len(kept) + len(random):,} verdicts were the same {BASELINE_REPEATS} times and are kept"
        )
        if random:
            said += f"; left out as random: {', '.join(random[:5])}{' ...' if len(random) > 5 else ''}"
        self.console.say(f"baseline: {said}; answered by {served_words(baseline['served'])}")
        if len(kept) < _FEW:
            few = f"only {len(kept):,} verdicts are stable: a change of 5 % of them is often missed"
            self.console.say(f"{few} (docs/extras/checks.md)")
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
            questions = plural(len(items), "question")
            self.console.say(f"drift: {questions} with a changed verdict: asked {MORE_REPEATS} times more")
            again = self._ask(items, range(first + 1, first + 1 + MORE_REPEATS))
        entry |= check_document(kept, verdicts, again, self.canaries.grades)
        entry |= {"ended_at": _now(), "calls": len(self.calls), "served": _served(self.calls)}
        if entry["alarm"]:
            entry["after"] = quiet[-1] if quiet else baseline["started_at"]
        record.write(self.path)
        self._say_check(entry, baseline)
        return bool(entry["alarm"])

    def _say_check(self, check: Mapping[str, Any], baseline: Mapping[str, Any]) -> None:
        shown, label = [check_section(check, baseline)], self.config.judge.label
        if check["changed"]:
            heads = ("verdict", "before", "now", "5 more", "drifted")
            rows = sorted(check["changed"], key=lambda row: not row["drifted"])[:_SHOWN]
            shown.append(Section("changed", "Changed verdicts", (table(heads, map(_changed_cells, rows)),)))
        print_report(Report("", "", "", None, (), tuple(shown)), self.console)
        if not check["alarm"]:
            self.console.say(f"no drift of {label}")
            return
        verdicts = plural(check["drifted"], "verdict")
        self.console.warn(
            f"{label} HAS DRIFTED: {verdicts} differ from the baseline in all six replies. Comparisons of runs that it judged before "
            "with runs since are refused. judge.season=NAME asks every question again; the next check makes a new baseline"
        )

    def _opened(self, count: int) -> dict[str, Any]:
        """The first keys of a baseline or check that begins, with `count` repeat numbers of which the call store holds no reply: a drift
        file may have been removed while its replies stayed. The numbers count as used from now on."""
        first, place = self.record.next_repeat, store_place(self.config)
        while read_calls(place, self._keys(self.canaries.items, range(first, first + count))):
            first += count
        self.record.next_repeat = first + count
        return {"first_repeat": first, "started_at": _now(), "ended_at": None}

    def _keys(self, items: Iterable[CanaryItem], repeats: Sequence[int]) -> list[str]:
        judge = judge_parts(self.config.judge.identity_of_judge())
        parts = (key_parts(item.payload, judge, _ITERATION, number) for item in items for number in repeats)
        return [question_key(of_one) for of_one in parts]

    def _ask(self, items: Sequence[CanaryItem], repeats: Sequence[int]) -> list[Verdicts]:
        """The verdicts of the items, one mapping per repeat. Raises Incomplete where a question failed for a passing reason."""
        payer = f"drift-{sha256(self.config.judge.identity_of_judge())[:12]}"  # the same for the same judge
        self._announce(items, repeats, payer)
        asked = [(item, repeat) for item in items for repeat in repeats]
        calls = run_async(self._calls(asked, payer))
        if passing := [call for call in calls if call.status in TRANSIENT]:
            raise Incomplete(
                f"{len(passing):,} canary questions failed for a passing reason, first {passing[0].status}: "
                f"{passing[0].message}; the same command asks them again"
            )
        self.calls += calls
        verdicts: dict[int, Verdicts] = {repeat: {} for repeat in repeats}
        for (item, repeat), call in zip(asked, calls, strict=True):
            failed = dict.fromkeys(item.grades, f"({call.status})")
            verdicts[repeat] |= item.verdicts(call.text or "") if call.status == "ok" else failed
        return list(verdicts.values())

    def _announce(self, items: Sequence[CanaryItem], repeats: Sequence[int], payer: str) -> None:
        """Print the plan. Raises ConfigError where it is over `judge.max_calls`."""
        keys = self._keys(items, repeats)
        stored = len(read_calls(store_place(self.config), keys, run_id=payer))
        counter, sample = prompt_counter(self.config.judge), TokenSample()
        for item in items:
            length = sum(len(message["content"]) for message in item.payload.messages)
            sample.add(length, counter.tokens(item.payload.messages, item.answer))
            sample.add_calls(length, expected_tokens(item.answer, {}), len(repeats))
        step = StepPlan("drift", "canaries", "", calls=len(keys), sample=sample)
        plan = Plan(len(items), 1, [], [step], stored=stored, missing=len(keys) - stored)
        self.console.say(plan_line(plan, self.config))
        check_call_budget(plan, self.config)

    async def _calls(self, asked: Sequence[tuple[CanaryItem, int]], payer: str) -> list[Call]:
        """The calls in the order of the questions."""
        done = 0

        async def call(item: CanaryItem, repeat: int) -> Call:
            nonlocal done
            asker = f"{item.name} / drift / {repeat}"
            question = session.question(item.payload, item.answer, _ITERATION, asker, repeat=repeat)
            reply = await session.reply(question)
            done += 1
            return reply

        async with open_judge(self.config, payer, warn=self.console.warn, embeds=False) as session:
            work = lambda: WorkDone(done, errors=session.usage.failed)  # noqa: E731
            meter = WorkMeter("judging", len(asked), work, session=session)
            progress = self.console.progress(meter.state, label="asking the canary set", noun="questions")
            with progress, SignalHandlers(session, self.console.warn):
                try:
                    replies = await asyncio.gather(*(call(*one) for one in asked), return_exceptions=True)
                finally:
                    await session.drain()
        if failed := [reply for reply in replies if isinstance(reply, BaseException)]:
            raise failed[0]
        return [reply for reply in replies if isinstance(reply, Call)]


def kept_verdicts(repeats: Sequence[Verdicts]) -> Verdicts:
    """The verdicts that all repeats of the baseline gave alike, by name. The others are random and prove no drift."""
    first, *later = repeats
    return {name: value for name, value in first.items() if all(_same(value, repeat[name]) for repeat in later)}


def changed_names(kept: Verdicts, now: Verdicts) -> list[str]:
    """The kept verdicts that are not the same now."""
    return [name for name, value in kept.items() if not _same(value, now[name])]


def changed_verdicts(kept: Verdicts, first: Verdicts, again: Sequence[Verdicts]) -> list[dict[str, Any]]:
    """What became of the kept verdicts that changed in the check's first replies: `drifted` where all five further ones, `again`, differ
    from the baseline too."""
    rows = []
    for name in changed_names(kept, first):
        before, values = kept[name], [repeat[name] for repeat in again]
        drifted = len(values) == MORE_REPEATS and not any(_same(value, before) for value in values)
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


def _same(a: JsonValue, b: JsonValue) -> bool:
    """Whether two values are the same JSON; 4 and 4.0 are one number, true is none."""
    if isinstance(a, list | dict) or isinstance(b, list | dict):
        return canonical_json(a) == canonical_json(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


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
