"""The rule by which a judge has drifted, from verdicts alone: a baseline of repeated verdicts, and a check against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from ragpipe.core.digest import canonical_json
from ragpipe.extras.checks.canary_set import Verdicts, is_right
from ragpipe.stats.mcnemar import mcnemar_p

BASELINE_REPEATS = 10
"""How often the baseline asks each question. A verdict is kept where all of them agree."""
MORE_REPEATS = 5
"""How often a question with a changed verdict is asked again in a check."""


@dataclass(frozen=True)
class ChangedVerdict:
    """A kept verdict that the check's first reply did not give again, and what the further replies say."""

    name: str
    before: JsonValue
    first: JsonValue
    again: tuple[JsonValue, ...]

    @property
    def drifted(self) -> bool:
        """Whether all further replies differ from the baseline too."""
        return len(self.again) == MORE_REPEATS and not any(_same(value, self.before) for value in self.again)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verdict": self.name,
            "before": self.before,
            "first": self.first,
            "again": list(self.again),
            "drifted": self.drifted,
        }


def kept_verdicts(repeats: Sequence[Verdicts]) -> Verdicts:
    """The verdicts that all repeats of the baseline gave alike, by name. The others are random and prove no drift."""
    first, *later = repeats
    return {name: value for name, value in first.items() if all(_same(value, repeat[name]) for repeat in later)}


def changed_names(kept: Verdicts, now: Verdicts) -> list[str]:
    """The kept verdicts that are not the same now."""
    return [name for name, value in kept.items() if not _same(value, now[name])]


def changed_verdicts(kept: Verdicts, first: Verdicts, again: Sequence[Verdicts]) -> list[ChangedVerdict]:
    """What became of the verdicts that changed in the check's first replies.

    Args:
        kept: the verdicts of the baseline.
        first: the verdicts of the first replies.
        again: those of the further replies, one mapping per repeat; of the items with a change only.
    """
    return [
        ChangedVerdict(name, kept[name], first[name], tuple(repeat[name] for repeat in again))
        for name in changed_names(kept, first)
    ]


def check_document(
    kept: Verdicts, first: Verdicts, again: Sequence[Verdicts], grades: Mapping[str, JsonValue]
) -> dict[str, Any]:
    """What a check found, as JSON.

    Args:
        kept: the verdicts of the baseline.
        first: the verdicts of the first replies.
        again: those of the further replies, of the items with a change.
        grades: the verdicts that the set's authors give.

    `matched` of the `verdicts` are as in the baseline (`exact_match` is their share). `flips` counts the others by direction,
    as the grades see it; `mcnemar_p` is printed and decides nothing. `alarm`: some verdict drifted.
    """
    changed = changed_verdicts(kept, first, again)
    flips = Counter(_direction(verdict, grades[verdict.name]) for verdict in changed)
    drifted = sum(verdict.drifted for verdict in changed)
    return {
        "verdicts": len(kept),
        "matched": len(kept) - len(changed),
        "exact_match": (len(kept) - len(changed)) / len(kept) if kept else None,
        "right": sum(is_right(first[name], grade) for name, grade in grades.items()),
        "graded": len(grades),
        "flips": {name: flips[name] for name in ("to_wrong", "to_right", "other")},
        "mcnemar_p": mcnemar_p(flips["to_right"], flips["to_wrong"]),
        "changed": [verdict.document() for verdict in changed],
        "drifted": drifted,
        "alarm": drifted > 0,
    }


def _direction(verdict: ChangedVerdict, grade: JsonValue) -> str:
    before, now = is_right(verdict.before, grade), is_right(verdict.first, grade)
    return "other" if before == now else "to_right" if now else "to_wrong"


def _same(a: JsonValue, b: JsonValue) -> bool:
    """Whether two values are the same JSON; 4 and 4.0 are one number, true is none."""
    if isinstance(a, list | dict) or isinstance(b, list | dict):
        return canonical_json(a) == canonical_json(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)
