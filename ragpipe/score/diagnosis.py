"""Diagnoses: what is wrong with a case and what to try, by the rules of `scoring.diagnosis`, each with its advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from pydantic_core import from_json

from ragpipe.core.settings import Settings
from ragpipe.score.case_blocks import GrowingArray
from ragpipe.score.conditions import Facts, Rule, Truth
from ragpipe.score.dimensions import within
from ragpipe.score.normalisation import OK

Counts = NDArray[np.int32]
Places = NDArray[np.int64]
UNKNOWN = -1

Name = Annotated[str, Field(min_length=1)]


class Listed(Settings):
    """A list in the details of a score: `detail` is its key, or a dotted path. With `where` only the objects in it count
    whose keys have these values (`{supported: false}`)."""

    score: Name = Field(description="Score in whose details the list is.")
    detail: Name = Field(description="Key, or dotted path, of the list.")
    where: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Values that an item must have to count. Default: all items count."
    )

    def count(self, details: Mapping[str, Any]) -> int:
        """How many items the details of one case list; 0 where the list is absent."""
        items = within(details, self.detail)
        if not isinstance(items, list):
            return 0
        return sum(not self.where or (isinstance(item, dict) and self._fits(item)) for item in items)

    def _fits(self, item: Mapping[str, Any]) -> bool:
        return all(key in item and item[key] == value for key, value in self.where.items())


class Items(Settings):
    """What is counted of a failure mode. `name` is the plural that reports print; of the lists `of`, each case counts the
    first whose score it has (two metrics that list the same claims must not count them twice)."""

    name: Name = Field(description="Plural name of the items, as reports print it.")
    of: list[Listed] = Field(
        min_length=1, description="The lists that hold the items; in each case the first whose score the case has counts."
    )


def _counted(items: Items, facts: Facts) -> Counts:
    counts = np.full(facts.n, UNKNOWN, dtype=np.int32)
    for listed in items.of:
        if listed.score not in facts.measured:
            continue
        due = (counts == UNKNOWN) & (facts.columns[listed.score].status == OK)
        counts[due] = 0
        cases, texts = facts.detail_rows(listed.score, listed.detail, due)
        for case, text in zip(cases.tolist(), texts, strict=True):
            counts[case] = listed.count(from_json(text))
    return counts


EXAMPLES = 5  # cases named with each diagnosis

Sentence = Annotated[str, Field(min_length=1)]


class Diagnosis(Settings):
    """`when` is the rule, `message` what is wrong in one sentence, `advice` what to try, the likeliest first. Among the
    diagnoses of a case the one with the lowest `order` comes first, ties in the order of the YAML. The words are in
    `metrics.json` and so belong to a run's identity, although they change no number."""

    when: Rule = Field(description="Rule that a case must meet.")
    message: Sentence = Field(description="What is wrong, in one sentence.")
    advice: list[Sentence] = Field(default_factory=list, description="What to try, the likeliest first. Default: none.")
    order: int = Field(default=100, description="Position among the diagnoses of a case, lowest first.")


@dataclass(frozen=True)
class Findings:
    """What the rules say of a block of cases: the truth of each failure mode and diagnosis that the run can decide, and by failure
    mode the number of items of each case."""

    modes: Mapping[str, Truth]
    diagnoses: Mapping[str, Truth]
    items: Mapping[str, Counts]


class DiagnosisAccumulator:
    """Failure modes, their items, and diagnoses of all cases so far. Rules that are None were switched off."""

    def __init__(
        self,
        modes: Mapping[str, Rule | None],
        diagnoses: Mapping[str, Diagnosis | None],
        items: Mapping[str, Items] | None = None,
    ):
        self._rules = {name: rule for name, rule in modes.items() if rule is not None}
        active = [(name, diagnosis) for name, diagnosis in diagnoses.items() if diagnosis is not None]
        self._diagnoses = dict(sorted(active, key=lambda pair: pair[1].order))
        self._counted = {mode: counted for mode, counted in (items or {}).items() if mode in self._rules}
        self._modes: dict[str, GrowingArray[np.int8]] = {}
        self._found: dict[str, GrowingArray[np.int8]] = {}
        self._items: dict[str, GrowingArray[np.int32]] = {}
        self._failed = GrowingArray(np.bool_)
        self._examples: dict[str, list[dict[str, str | int]]] = {name: [] for name in self._diagnoses}

    def find(self, facts: Facts) -> Findings:
        """Judge a block; its modes are in `facts.modes` from now on. Nothing is kept."""
        for name, rule in self._rules.items():
            if (truth := rule.holds(facts)) is not None:
                facts.modes[name] = truth
        truths = {name: diagnosis.when.holds(facts) for name, diagnosis in self._diagnoses.items()}
        items = {
            mode: _counted(items, facts)
            for mode, items in self._counted.items()
            if any(listed_items.score in facts.measured for listed_items in items.of)
        }
        return Findings(facts.modes, {name: truth for name, truth in truths.items() if truth is not None}, items)

    def columns(self, findings: Findings, n: int) -> dict[str, pa.Array]:
        """The two columns of `records.parquet` for a block of `n` cases."""
        return {
            "failure_modes": listed(findings.modes, list(self._rules), n),
            "diagnosis": listed(findings.diagnoses, list(self._diagnoses), n),
        }

    def add(self, facts: Facts, findings: Findings) -> None:
        """Keep what was found in the next block."""
        for name, truth in findings.modes.items():
            self._modes.setdefault(name, GrowingArray(np.int8)).add(truth)
        for name, counts in findings.items.items():
            self._items.setdefault(name, GrowingArray(np.int32)).add(counts)
        for name, truth in findings.diagnoses.items():
            self._found.setdefault(name, GrowingArray(np.int8)).add(truth)
            examples = self._examples[name]
            for place in np.flatnonzero(truth == 1)[: EXAMPLES - len(examples)].tolist():
                examples.append(facts.key(place))
        verdicts = [column.passed == 0 for column in facts.columns.values()]
        self._failed.add(np.any(verdicts, axis=0) if verdicts else np.zeros(facts.n, dtype=np.bool_))

    def close(self) -> None:
        """To be called after the last block."""
        self._truths = {name: self._modes[name].array() for name in self._rules if name in self._modes}
        self._diagnosed = {name: self._found[name].array() for name in self._diagnoses if name in self._found}
        self._failures: NDArray[np.bool_] = self._failed.array()

    def mode(self, name: str) -> Truth | None:
        """The truth of a failure mode for every case; None where this run cannot decide it."""
        return self._truths.get(name)

    def summary(self, places: Places) -> dict[str, Any]:
        """The counts over the cases at `places`, for one summary of `metrics.json`; items also those of cases that passed."""
        counted = mode_counts(self._truths, self._failures, places)
        for mode, items in self._items.items():
            if mode in counted["failure_modes"]:
                counts = items.array()[places]
                counted["failure_modes"][mode]["n_items"] = int(counts[counts != UNKNOWN].sum())
        return {**counted, "diagnosis": diagnosis_counts(self._diagnosed, places)}

    def document(self) -> dict[str, Any]:
        """The part that is once in `metrics.json`: each diagnosis that was made with its words and examples (the first cases in
        data order), what the items of failure modes are called, and the rules that ask for scores which this run lacks."""
        counts = diagnosis_counts(self._diagnosed, np.arange(len(self._failures), dtype=np.int64))
        made = [
            {
                "name": name,
                **counts[name],
                "message": self._diagnoses[name].message,
                "advice": self._diagnoses[name].advice,
                "examples": self._examples[name],
            }
            for name in counts
            if counts[name]["n"]
        ]
        return {
            "diagnosis": made,
            "failure_items": {mode: self._counted[mode].name for mode in self._counted if mode in self._items},
            "not_applicable": {
                "failure_modes": [name for name in self._rules if name not in self._truths],
                "diagnosis": [name for name in self._diagnoses if name not in self._diagnosed],
            },
        }


def diagnosis_counts(truths: Mapping[str, Truth], places: Places) -> dict[str, Any]:
    """Of each diagnosis: the cases that have it, those where it comes first, those where it could be decided.

    `truths` are in the order of priority.
    """
    taken = np.zeros(len(places), dtype=np.bool_)
    counts = {}
    for name, truth in truths.items():
        holds = truth[places] == 1
        counts[name] = {
            "n": int(np.count_nonzero(holds)),
            "n_first": int(np.count_nonzero(holds & ~taken)),
            "n_judged": int(np.count_nonzero(truth[places] >= 0)),
        }
        taken |= holds
    return counts


def mode_counts(truths: Mapping[str, Truth], failed: NDArray[np.bool_], places: Places) -> dict[str, Any]:
    """How often each mode occurs among the cases at `places`, with the denominators.

    `n_with_failure_mode` are the cases with at least one mode, `n_failure_modes` the modes of all cases together,
    `n_failed_without_mode` the cases that failed a score but match no failure mode. Of each mode `n` cases have it, `n_judged` is for
    how many its rule could be decided.
    """
    chosen = {name: truth[places] for name, truth in truths.items()}
    any_mode = np.zeros(len(places), dtype=np.bool_)
    for truth in chosen.values():
        any_mode |= truth == 1
    counts = {name: int(np.count_nonzero(truth == 1)) for name, truth in chosen.items()}
    return {
        "n_with_failure_mode": int(np.count_nonzero(any_mode)),
        "n_failure_modes": sum(counts.values()),
        "n_failed_without_mode": int(np.count_nonzero(failed[places] & ~any_mode)),
        "failure_modes": {name: {"n": n, "n_judged": int(np.count_nonzero(chosen[name] >= 0))} for name, n in counts.items()},
    }


def listed(truths: Mapping[str, Truth], names: Sequence[str], n: int) -> pa.Array:
    """For each of `n` cases the rules that are true, in the order of `names`."""
    active = [name for name in names if name in truths]
    if not active:
        return pa.array([[]] * n, type=pa.list_(pa.string()))
    holds = np.stack([truths[name] == 1 for name in active], axis=1)
    offsets = np.concatenate([[0], np.cumsum(holds.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(active).take(pa.array(np.nonzero(holds)[1])))


def share(part: float | None, total: int) -> float | None:
    """Part of whole, 0 to 1; None when there is no whole, and for an unknown part."""
    return part / total if total and part is not None else None
