"""The labels and parts of an output that a metric may need, by name: which of them a case has, and a case without one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ragpipe.schema.sample import Case, Output, Sample, is_unreadable, several


@dataclass(frozen=True, slots=True)
class LabelField:
    """A field of a sample or an output: `is_in` says whether a case has it, `without` gives the case without it."""

    name: str
    is_in: Callable[[Case], bool]
    without: Callable[[Case], Case]


def _of_sample(name: str) -> LabelField:
    empty = Sample.model_fields[name].get_default(call_default_factory=True)
    return LabelField(
        "reference" if name == "references" else name,
        (lambda case: bool(case.references))
        if name == "references"
        else lambda case: getattr(case.sample, name) is not None,
        lambda case: Case(case.sample.model_copy(update={name: empty}), case.output),
    )


def _of_expected(name: str) -> LabelField:
    def without(case: Case) -> Case:
        expected = case.sample.expected and case.sample.expected.model_copy(update={name: None})
        return Case(case.sample.model_copy(update={"expected": expected}), case.output)

    return LabelField(
        f"expected.{name}",
        lambda case: case.sample.expected is not None and getattr(case.sample.expected, name) is not None,
        without,
    )


def _of_anchors(name: str) -> LabelField:
    def without(case: Case) -> Case:
        anchors = [anchor.model_copy(update={name: None}) for anchor in case.sample.anchors or ()]
        return Case(case.sample.model_copy(update={"anchors": anchors}), case.output)

    return LabelField(
        f"anchors[].{name}",
        lambda case: any(getattr(anchor, name) is not None for anchor in case.sample.anchors or ()),
        without,
    )


def _of_output(name: str, shown: str = "") -> LabelField:
    empty = Output.model_fields[name].get_default(call_default_factory=True)
    return LabelField(
        shown or name,
        lambda case: getattr(case.output, name) is not None,
        lambda case: Case(case.sample, case.output.model_copy(update={name: empty})),
    )


def _of_chunks(name: str, empty: Any) -> LabelField:
    def without(case: Case) -> Case:
        chunks = [chunk.model_copy(update={name: empty}) for chunk in case.contexts]
        return Case(case.sample, case.output.model_copy(update={"chunks": chunks}))

    return LabelField(
        f"contexts[].{name}", lambda case: any(getattr(chunk, name) != empty for chunk in case.contexts), without
    )


FIELDS: tuple[LabelField, ...] = (
    _of_output("answer"),
    _of_output("chunks", "contexts"),
    _of_chunks("policy", "summarize"),
    _of_chunks("score", None),
    _of_output("citations"),
    _of_output("abstained"),
    _of_output("folder_mode"),
    _of_output("selected_folders"),
    *map(_of_sample, ("references", "relevant_docs", "relevant_chunks", "gains", "anchors", "required_support_groups")),
    _of_anchors("role"),
    _of_sample("recency_conflict_rule"),
    _of_sample("answerable"),
    *map(_of_expected, ("behavior", "citations", "must_quote", "context_has", "requires_citations")),
)
"""Every field that a shipped metric may ask for, outputs first."""

UNANSWERABLE = "answerable=false"
"""Names the label of a question that has no answer: `answerable` is there, and false."""


def recorded_name(name: str) -> str:
    """How a recorded value is named among the fields."""
    return f"recorded.{name}"


class DataFacts:
    """Which of the fields some case has: `fields` by name. A recorded value counts as `recorded`, and as `recorded.NAME`."""

    def __init__(self, fields: Iterable[str] = ()):
        self.fields = set(fields)

    @classmethod
    def of(cls, cases: Iterable[Case]) -> DataFacts:
        """The facts of these cases, read to the end."""
        facts = cls()
        for case in cases:
            facts.add(case)
        return facts

    def add(self, case: Case) -> None:
        """Take one more case into account."""
        self.fields.update(field.name for field in FIELDS if field.name not in self.fields and field.is_in(case))
        if case.sample.answerable is False:
            self.fields.add(UNANSWERABLE)
        for name in case.output.recorded:
            self.fields.update(("recorded", recorded_name(name)))

    def has(self, label: str) -> bool:
        """Whether some case has a field; of alternatives (`a or b`) whether some case has any of them."""
        return any(name in self.fields for name in label.split(" or "))


_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 5.0), (0.0, 10.0), (0.0, 100.0))


@dataclass
class SeenVerdicts:
    """What the verdicts of one name were: `n` numbers from `low` to `high`, all of them true or false where `is_boolean`."""

    n: int = 0
    low: float = 0.0
    high: float = 0.0
    is_boolean: bool = True
    unreadable: int = 0

    def add(self, verdict: Any) -> None:
        """Take one verdict into account. Null, where none was given, counts for nothing."""
        if verdict is None:
            return
        if is_unreadable(verdict):
            self.unreadable += 1
            return
        value = float(verdict)
        self.low, self.high = (min(self.low, value), max(self.high, value)) if self.n else (value, value)
        self.is_boolean = self.is_boolean and isinstance(verdict, bool)
        self.n += 1

    def add_recorded(self, value: Any) -> None:
        """Take a recorded value into account, which may be several verdicts: their mean is neither true nor false."""
        verdicts = several(value)
        for verdict in [value] if verdicts is None else verdicts.values():
            self.add(verdict)
        self.is_boolean = self.is_boolean and verdicts is None

    @property
    def scale(self) -> tuple[float, float] | None:
        """The narrowest of 0-1, 1-5, 0-5, 0-10 and 0-100 that holds every value; None where none does: a count without a scale."""
        return next(((low, high) for low, high in _SCALES if low <= self.low and self.high <= high), None)
