"""What the values of one field are, but for texts: how many, from where to where, which are the most frequent."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

DIFFERENT = 1_000
"""Different values of a field that are counted; of more it is said that there are more."""
LABEL_LENGTH = 60
"""Characters of a text that may be a label."""
TOP = 20
"""Labels that are kept in the document; a line shows fewer."""


@dataclass(slots=True)
class Distribution:
    """The values of one field of the samples, or of the outputs.

    `present` counts the cases (or samples) with a value, `by_method` those of each method; `first_absent` is the id of the first without. Numbers are the values
    of a number, the lengths of a text in characters, the entries of a list.
    """

    kind: str = ""
    present: int = 0
    by_method: Counter[str] = field(default_factory=Counter)
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

    @property
    def median(self) -> float | None:
        """The median of the numbers; None without numbers."""
        return median(self.numbers) if self.numbers else None

    def document(self, of: int) -> dict[str, Any]:
        """The distribution over `of` cases, as JSON: keys that say nothing are left out."""
        found: dict[str, Any] = {"kind": self.kind, "present": self.present, "of": of}
        if self.first_absent:
            found["first_absent"] = self.first_absent
        if self.numbers:
            found |= {"n": len(self.numbers), "min": self.low, "median": self.median, "max": self.high}
        if self.blank:
            found["blank"] = self.blank
        if self.labels:
            found["different_at_least" if self.has_more_labels else "different"] = len(self.labels)
            if self.kind != "number":
                top = self.labels.most_common(TOP)
                found["top"] = {str(label).lower() if isinstance(label, bool) else str(label): n for label, n in top}
        if self.by_method:
            found["by_method"] = dict(self.by_method)
        return found
