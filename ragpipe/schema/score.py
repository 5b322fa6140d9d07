"""Score: what a metric says about a case, and ScoreSpec: what a metric declares about its scores before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "skipped", "error"]


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """Declaration of one score of a metric.

    `low` and `high` bound the native scale; both None for a count or an unbounded quantity, which is never normalised.
    `binary` says that only 0 and 1 occur (its mean is a rate). `diagnostic` scores are shown but weigh nothing.
    `grades` are those that a judge gives, the best first, each with its lowest value; empty for a share of verdicts, a
    computed score and a scale without steps. `in_class` says that it is 1 where a case is of one class of several: the
    name of the classification and of the class.
    """

    name: str
    low: float | None = 0.0
    high: float | None = 1.0
    higher_is_better: bool = True
    binary: bool = False
    diagnostic: bool = False
    grades: tuple[tuple[str, float], ...] = ()
    in_class: tuple[str, str] | None = None


def whole_grades(low: float, high: float) -> tuple[tuple[str, float], ...]:
    """The steps of a scale of whole numbers as grades, the best first."""
    return tuple((str(step), float(step)) for step in range(int(high), int(low) - 1, -1))


@dataclass(frozen=True, slots=True)
class Score:
    """One named result of a metric for one case.

    `value` is in the native scale, None unless `status` is `ok`. `reason` is one line: why it was skipped,
    what failed, or the judge's feedback. `details` is plain JSON (claims, verdicts, flags). `name` None means the
    metric's own name. Whether it is good is not said here: scoring adds `score` (0..1) and `passed`.
    """

    value: float | None = None
    name: str | None = None
    status: Status = "ok"
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "ok":
            if isinstance(self.value, bool) or not isinstance(self.value, int | float):
                raise TypeError(f"an ok score needs a number, found {self.value!r}")
            if self.value != self.value or self.value in (float("inf"), float("-inf")):
                raise ValueError(f"a score cannot be {self.value}: give it status `error` or `skipped` with a reason")
        elif self.value is not None:
            raise ValueError(f"a score with status {self.status!r} has no value, found {self.value!r}")
