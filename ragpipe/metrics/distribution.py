"""What the values of one field are, but for texts: how many, from where to where, which are the most frequent."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any

DIFFERENT = 1_000
"""Different values of a field and method that are counted; of more it is said that there are more."""
LABEL_LENGTH = 60
"""Characters of a text that may be a label."""
TOP = 20
"""Labels that are kept in the document; a line shows fewer."""


@dataclass(slots=True)
class Distribution:
    """The values of one field in the cases of one method, or in the samples.

    `present` counts the cases (or samples) with a value, `first_absent` is the id of the first without. Numbers are the values
    of a number, the lengths of a text in characters, the entries of a list.
    """

    kind: str = ""
    present: int = 0
    first_absent: str = ""
    low: float = math.inf
    high: float = -math.inf
    numbers: array[float] = field(default_factory=lambda: array("d"))
    labels: Counter[Any] = field(default_factory=Counter)
    has_more_labels: bool = False
    n_values: int = 0
    blank: int = 0

    def add(self, values: Iterable[Any]) -> None:
        """The values of one case: of a list the number of its entries, of anything else itself."""
        self.present += 1
        for value in values:
            self.n_values += 1
            if self.kind == "text":
                self.blank += not value.strip()
                self._number(len(value))
            elif self.kind == "label" or isinstance(value, str | bool):  # a field may be a number here and a text there
                self._label(value)
            else:
                self._number(value)
                if self.kind == "number":
                    self._label(value)

    def _number(self, value: float) -> None:
        self.low, self.high = min(self.low, value), max(self.high, value)  # an integer stays one
        self.numbers.append(value)

    def _label(self, value: Any) -> None:
        label = value[:LABEL_LENGTH] if isinstance(value, str) else value
        if label in self.labels or len(self.labels) < DIFFERENT:
            self.labels[label] += 1
        else:
            self.has_more_labels = True


def median_of(parts: Sequence[Distribution]) -> float | None:
    """The median of the numbers of some distributions; None without numbers."""
    numbers = list(chain.from_iterable(part.numbers for part in parts))
    return median(numbers) if numbers else None


def merged(parts: Sequence[Distribution]) -> Distribution:
    """One distribution of all parts."""
    whole = Distribution(next((part.kind for part in parts if part.kind), ""))
    for part in parts:
        whole.present += part.present
        whole.blank += part.blank
        whole.n_values += part.n_values
        whole.first_absent = whole.first_absent or part.first_absent
        whole.low, whole.high = min(whole.low, part.low), max(whole.high, part.high)
        whole.numbers.extend(part.numbers)
        whole.labels.update(part.labels)
        whole.has_more_labels |= part.has_more_labels
    return whole


def document(parts: Sequence[Distribution], of: int) -> dict[str, Any]:
    """The distribution of some parts together over `of` cases, as JSON: keys that say nothing are left out."""
    whole = merged(parts)
    found: dict[str, Any] = {"kind": whole.kind, "present": whole.present, "of": of}
    if whole.first_absent:
        found["first_absent"] = whole.first_absent
    if whole.numbers:
        found |= {"n": len(whole.numbers), "min": whole.low, "median": median_of(parts), "max": whole.high}
    if whole.blank:
        found["blank"] = whole.blank
    if whole.labels:
        found["different"] = len(whole.labels)
        if whole.has_more_labels:
            found["different_at_least"] = found.pop("different")
        if whole.kind != "number":
            found["top"] = {_label_text(label): count for label, count in whole.labels.most_common(TOP)}
    return found


def _label_text(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)
