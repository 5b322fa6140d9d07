"""What the card of a test set says of its making: the steps with their counts, the strata, and what went otherwise than wanted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ragpipe.datasets.fault_list import Faults
from ragpipe.extras.test_sets.build_settings import BuildSettings
from ragpipe.extras.test_sets.log_scan import NO_VALUE, LogScan, SkippedFaults
from ragpipe.extras.test_sets.question_draw import DrawPlan, Stratum
from ragpipe.extras.test_sets.stripped_case import Placeholders

_EXACT = "same question and history: Unicode NFKC, case, blanks, signs at the ends"


SHOWN_PAIRS = 50
"""Near duplicates that the card lists."""


@dataclass
class FillCounts:
    """What became of the candidates that were looked at; `taken` by stratum, `near_pairs` the first
    near duplicates with the questions kept instead, `replaced` places by kind of personal data."""

    taken: Counter[str] = field(default_factory=Counter)
    near: int = 0
    near_pairs: list[dict[str, str]] = field(default_factory=list)
    with_personal_data: int = 0
    replaced: Counter[str] = field(default_factory=Counter)
    meta_dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Making:
    """All that the making of a set counted. `samples` is the number of samples of the log."""

    settings: BuildSettings
    scan: LogScan
    samples: int
    plan: DrawPlan
    counts: FillCounts
    faults: Faults


def sentence_of(name: str, settings: BuildSettings) -> str:
    """How the cases were drawn, in one sentence."""
    how = {
        "random": "at random",
        "stratified": f"by strata of {settings.by}" + ("" if settings.quotas else ", in equal shares"),
        "low_score": f"with the lowest {settings.score}",
        "disagreement": f"where {settings.between} differ most in {settings.score}",
    }[settings.draw]
    what = "every distinct question" if settings.size is None else f"{settings.size:,} questions, drawn {how}"
    return f"Built by ragpipe task=build_dataset from the data set {name!r}: {what}."


def steps_of(making: Making) -> list[dict[str, Any]]:
    """What each step kept and dropped, in their order."""
    settings, scan, plan, counts, faults = making.settings, making.scan, making.plan, making.counts, making.faults
    samples = making.samples
    rows = [_step("records read", scan.records, 0, "")]
    if isinstance(faults, SkippedFaults) and faults.counts:
        fields = ", ".join(f"{key}: {number}" for key, number in faults.counts.most_common())
        rows.append(_step("faults left out", None, faults.counts.total(), f"by field: {fields}"))
    rows += [
        _step("filter", len(scan), scan.filtered, "cases that dataset.filter lets through"),
        _step("samples", samples, len(scan) - samples, "cases of one id and question are one sample"),
        _step("exact duplicates", plan.distinct, samples - plan.distinct, _EXACT),
    ]
    if settings.score is not None:
        kept = plan.distinct - plan.without_value
        rows.append(_step(f"value of {settings.score}", kept, plan.without_value, "questions to draw from"))
    candidates = sum(len(stratum.candidates) for stratum in plan.strata)
    times = f"candidates, {settings.pool} times the wanted cases or all" if settings.size else "all are candidates"
    rows.append(_step("draw", candidates, None, times))
    if settings.near is not None:
        likeness = (
            f"likeness of {settings.near:g} or more, and no other difference than typing errors, a plural -s or polite words; "
            "among the candidates that were looked at"
        )
        rows.append(_step("near duplicates", None, counts.near, likeness))
    if settings.personal_data == "drop":
        rows.append(_step("personal data", None, counts.with_personal_data, "candidates with any were left out"))
    elif settings.personal_data == "replace":
        rows.append(_step("personal data", None, None, f"replaced in {counts.with_personal_data:,} cases"))
    return [*rows, _step("frozen", counts.taken.total(), None, "cases")]


def _step(name: str, kept: int | None, dropped: int | None, note: str) -> dict[str, Any]:
    return {"step": name, "kept": kept, "dropped": dropped, "note": note}


def stratum_row(stratum: Stratum, counts: FillCounts, settings: BuildSettings) -> dict[str, Any]:
    """A stratum: its distinct questions, how many were wanted of it, and how many were taken."""
    return {
        "stratum": _shown_name(stratum.name, settings),
        "questions": stratum.questions,
        "wanted": stratum.quota,
        "taken": counts.taken[stratum.name],
    }


def notes_of(making: Making) -> list[str]:
    """What went otherwise than wanted, a sentence each."""
    notes = _shortage(making) + (_strata_notes(making) if making.settings.by else [])
    if isinstance(making.faults, SkippedFaults):
        first = making.faults.first
        for key, number in making.faults.counts.most_common():
            notes.append(f"left out because of {key}: {number:,}, the first at {first[key]}")
    return notes


def _shortage(making: Making) -> list[str]:
    settings, plan = making.settings, making.plan
    taken, size = making.counts.taken.total(), settings.size
    if size is None or taken >= size:
        return []
    candidates = sum(len(stratum.candidates) for stratum in plan.strata)
    drawable = sum(stratum.questions for stratum in plan.strata)
    fix = "; a larger build.pool looks at more" if settings.quotas is None and candidates < drawable else ""
    return [
        f"{taken:,} of {size:,} cases: {drawable:,} distinct questions to draw from, candidates: {candidates:,}{fix}"
    ]


def _strata_notes(making: Making) -> list[str]:
    settings, scan, plan, taken = making.settings, making.scan, making.plan, making.counts.taken
    notes = []
    equal = (settings.size or 0) // max(1, len(plan.strata))
    for stratum in plan.strata:
        wanted_cases = stratum.quota if settings.quotas else equal
        if taken[stratum.name] < wanted_cases:
            have = f"distinct questions: {stratum.questions:,}, candidates: {len(stratum.candidates):,}"
            notes.append(
                f"stratum {_shown_name(stratum.name, settings)!r}: {taken[stratum.name]:,} of {wanted_cases:,} cases ({have})"
            )
    if NO_VALUE in scan.stratum_names:
        absent = scan.strata.count(scan.stratum_names.index(NO_VALUE))
        notes.append(f"{settings.by} is absent in {absent:,} of {len(scan):,} cases: they are the stratum {NO_VALUE}")
    if settings.quotas and (left_out := sorted(set(scan.stratum_names) - settings.quotas.keys())):
        names = ", ".join(_shown_name(name, settings) for name in left_out[:12])
        notes.append(f"no quota for {names}: none of it was taken")
    return notes


def _shown_name(stratum: str, settings: BuildSettings) -> str:
    """The name of a stratum for the card: it is a value of the log, and may hold personal data, too."""
    return stratum if settings.personal_data == "keep" else Placeholders().replaced(stratum)
