"""Diagnoses: what is wrong with a case and what to try, by the rules of `scoring.diagnosis`, each with its advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.schema.settings import Settings
from ragpipe.scoring.growing_columns import GrowingArray
from ragpipe.scoring.rules.conditions import Rule, Truth
from ragpipe.scoring.rules.failure_items import Counts, ItemLedger, Items
from ragpipe.scoring.rules.failure_modes import Places, TruthLedger, find_modes, listed, mode_counts
from ragpipe.scoring.rules.rule_inputs import Facts

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
    """What the rules say of a block of cases.

    Attributes:
        modes: the truth of each failure mode that the run can decide.
        diagnoses: the truth of each diagnosis that it can decide, in the order of priority.
        items: by failure mode the number of items of each case.
    """

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
        self._modes, self._found = TruthLedger(self._rules), TruthLedger(self._diagnoses)
        self._items = ItemLedger({mode: diagnosis for mode, diagnosis in (items or {}).items() if mode in self._rules})
        self._failed = GrowingArray(np.bool_)
        self._examples: dict[str, list[dict[str, str | int]]] = {name: [] for name in self._diagnoses}

    def find(self, facts: Facts) -> Findings:
        """Judge a block. Nothing is kept."""
        modes = find_modes(self._rules, facts)
        truths = {
            name: truth
            for name, diagnosis in self._diagnoses.items()
            if (truth := diagnosis.when.holds(facts)) is not None
        }
        return Findings(modes, truths, self._items.counts(facts))

    def columns(self, findings: Findings, n: int) -> dict[str, pa.Array]:
        """The two columns of `records.parquet` for a block of `n` cases."""
        return {
            "failure_modes": listed(findings.modes, list(self._rules), n),
            "diagnosis": listed(findings.diagnoses, list(self._diagnoses), n),
        }

    def add(self, facts: Facts, findings: Findings) -> None:
        """Keep what was found in the next block."""
        self._modes.add(findings.modes)
        self._items.add(findings.items)
        self._found.add(findings.diagnoses)
        self._failed.add(_failed(facts))
        for name, truth in findings.diagnoses.items():
            examples = self._examples[name]
            for place in np.flatnonzero(truth == 1)[: EXAMPLES - len(examples)].tolist():
                examples.append(facts.key(place))

    def close(self) -> None:
        """To be called after the last block."""
        self._modes.close()
        self._items.close()
        self._found.close()
        self.failed: NDArray[np.bool_] = self._failed.array()

    def mode(self, name: str) -> Truth | None:
        """The truth of a failure mode for every case; None where this run cannot decide it."""
        return self._modes.truths.get(name)

    def summary(self, places: Places) -> dict[str, Any]:
        """The counts over the cases at `places`, for one summary of `metrics.json`."""
        counted = mode_counts(self._modes.truths, self.failed, places)
        for mode, n_items in self._items.summary(places).items():
            if mode in counted["failure_modes"]:
                counted["failure_modes"][mode]["n_items"] = n_items
        return {
            **counted,
            "diagnosis": diagnosis_counts(self._found.truths, places),
        }

    def document(self) -> dict[str, Any]:
        """The part that is once in `metrics.json`: each diagnosis that was made with its words and examples (the first cases in
        data order), what the items of failure modes are called, and the rules that this run cannot decide."""
        everything = np.arange(len(self.failed), dtype=np.int64)
        counts = diagnosis_counts(self._found.truths, everything)
        made = [
            {
                "name": name,
                **counts[name],
                "message": self._diagnoses[name].message,
                "advice": self._diagnoses[name].advice,
                "examples": self._examples[name],
            }
            for name in self._diagnoses
            if name in counts and counts[name]["n"]
        ]
        return {
            "diagnosis": made,
            "failure_items": self._items.names,
            "not_applicable": {
                "failure_modes": self._modes.not_applicable,
                "diagnosis": self._found.not_applicable,
            },
        }


def diagnosis_counts(truths: Mapping[str, Truth], places: Places) -> dict[str, Any]:
    """Of each diagnosis: the cases that have it, those where it comes first, those where it could be decided.

    `truths` are in the order of priority.
    """
    taken = np.zeros(len(places), dtype=np.bool_)
    counts = {}
    for name, truth in truths.items():
        here = truth[places]
        holds = here == 1
        n = int(np.count_nonzero(holds))
        counts[name] = {
            "n": n,
            "n_first": int(np.count_nonzero(holds & ~taken)),
            "n_judged": int(np.count_nonzero(here >= 0)),
        }
        taken |= holds
    return counts


def _failed(facts: Facts) -> NDArray[np.bool_]:
    """The cases that did not pass a score (of those in the run, the overall score among them)."""
    failed = np.zeros(facts.n, dtype=np.bool_)
    for column in facts.columns.values():
        failed |= column.passed == 0
    return failed
