"""The `jury` section of a composed configuration: it becomes the judge of the run, where it names members or repeats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import Problem
from ragpipe.core.validation import ConfigOrigins, did_you_mean
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.from_config import OF_A_JURY
from ragpipe.schema.usage import PARTS

SECTION = JurySettings.section
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}\Z")


def with_jury(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with its jury as `judge` (`kind: jury`), and without the section `jury`.

    Without members and repeats, the judge stays as it is. Repeats alone ask the judge itself so often: it is the one member, `judge`.
    What metrics say of their judging moves to `judge.by_metric`.
    """
    jury = plain.get(SECTION)
    if not isinstance(jury, Mapping):
        return plain
    rest = {key: value for key, value in plain.items() if key != SECTION}
    members = jury.get("members") or {}
    if not members and jury.get("repeats", 1) == 1:
        return rest
    metrics, by_metric = {}, {}
    for name, section in (plain.get("metrics") or {}).items():
        if isinstance(section, Mapping):
            if judging := {key: section[key] for key in OF_A_JURY if key in section}:
                by_metric[name] = judging
            section = {key: value for key, value in section.items() if key not in OF_A_JURY}
        metrics[name] = section
    judge = {**jury, "kind": "jury", "members": members or {"judge": plain.get("judge")}, "by_metric": by_metric}
    if not members:
        judge["min_members"] = 1
    return {**rest, "judge": judge, "metrics": metrics}


def jury_problems(jury: JurySettings, origins: ConfigOrigins) -> list[Problem]:
    """What is wrong with a jury as a whole: names, members that are the same judge, members that are not there or never asked."""
    faults = [*_member_faults(jury), *_unknown_members(jury), *_unasked_members(jury)]
    if jury.min_members > len(jury.members):
        expected = f"at most the number of members, {len(jury.members)}"
        faults.append((f"{SECTION}.min_members", str(jury.min_members), expected, ""))
    return [Problem(origins.location(key), key, state, expected, fix) for key, state, expected, fix in faults]


_Fault = tuple[str, str, str, str]


def _member_faults(jury: JurySettings) -> list[_Fault]:
    faults: list[_Fault] = []
    seen: dict[str, str] = {}
    for name, member in jury.members.items():
        key = f"{SECTION}.members.{name}"
        if not _NAME.match(name):
            faults.append((key, f"the name {name!r}"[:100], "letters, digits and '_', beginning with a letter", ""))
        identity = sha256(member.identity_of_judge())
        if identity in seen:
            fix = f"{SECTION}.repeats=N asks one judge several times"
            faults.append((key, f"the same judge as {seen[identity]}", "another judge", fix))
        seen.setdefault(identity, name)
        if isinstance(member, JudgeSettings) and member.budget.is_set:
            part = next(part for part in PARTS if getattr(member.budget, part) is not None)
            state, fix = "a budget of one member", f"{SECTION}.budget.{part}=..."
            faults.append((f"{key}.budget.{part}", state, "one budget for all members", fix))
    return faults


def _unknown_members(jury: JurySettings) -> list[_Fault]:
    named = {f"metrics.{name}.judge": its.judge for name, its in jury.by_metric.items() if its.judge is not None}
    if jury.cascade is not None:
        named |= {f"{SECTION}.cascade.first": jury.cascade.first, f"{SECTION}.cascade.then": jury.cascade.then}
    expected = f"a member: {', '.join(jury.members)}"
    return [
        (key, member, expected, did_you_mean(member, jury.members))
        for key, member in named.items()
        if member not in jury.members
    ]


def _unasked_members(jury: JurySettings) -> list[_Fault]:
    """Members that a cascade leaves out, and that no metric names."""
    if jury.cascade is None:
        return []
    asked = {jury.cascade.first, jury.cascade.then, *(its.judge for its in jury.by_metric.values())}
    expected = "a member of the cascade, or the judge of a metric"
    return [
        (f"{SECTION}.members.{name}", "a member that is never asked", expected, f"~{SECTION}.members.{name}")
        for name in jury.members
        if name not in asked
    ]
