"""The language of rules: what must hold of a case for a failure mode or a diagnosis to apply. Data, written in YAML.

    {score: faithfulness, passed: false}                    a score of the case
    {score: [answer_relevance, chunk_relevancy], below: 0.5}   the first of these that the run has; `*` is any score
    {score: rejection_calibration, detail: failure_mode, equals: false_rejection}   what a metric wrote beside it
    {field: answerable, equals: false}                      a field of the case; {field: answer, blank: true}; `judge` is the run's
    {failure_mode: retrieval_miss}                          a failure mode of the case (in diagnoses)
    {all: [...]}  {any: [...]}  {none: [...]}               a list alone means `any`

Every condition is true, false or unknown for a case. Unknown is what was not measured (skipped, failed, not labelled):
it never counts as false. A condition on a score that the run does not have says nothing at all and is not applicable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import from_json

from ragpipe.core.sample import OUTPUT_KEY, Expected
from ragpipe.core.score import Status
from ragpipe.core.settings import Settings
from ragpipe.core.text_forms import is_blank
from ragpipe.score.case_blocks import CaseBlock
from ragpipe.score.dimensions import LISTS, META, field_fault, field_labels, nearest_field, within
from ragpipe.score.normalisation import OK, STATUSES, TOLERANCE, Column

Truth = NDArray[np.int8]
"""By case: 1 true, 0 false, -1 unknown."""

ANY_SCORE = "*"
Number = Annotated[float, Field(allow_inf_nan=False)]
Names = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(lambda names: [names] if isinstance(names, str) else names, json_schema_input_type=str | list[str]),
]
Label = bool | int | float | str


class _Condition(Settings):
    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if value is not None}

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, condition: Any) -> Any:
        for key in condition if isinstance(condition, dict) else ():
            if key not in cls.model_fields and key in _KINDS:
                raise ValueError(
                    f"one condition in a mapping, not {' and '.join(map(str, condition))}: join several with `all`"
                )
            if key not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {key!r}{nearest_field(str(key), cls.model_fields)}; known here: {known}")
        return condition

    def holds(self, facts: Facts) -> Truth | None:
        """For each case whether it holds; None when the run has not what the condition asks about."""
        raise NotImplementedError

    def leaves(self) -> Iterator[_Condition]:
        parts = [part for key in ("all", "any", "none") for part in getattr(self, key, ())]
        yield from (leaf for part in parts for leaf in part.leaves()) if parts else [self]


class Bounds(_Condition):
    below: Number | None = Field(default=None, description="The value is below this number. null: not tested.")
    above: Number | None = Field(default=None, description="The value is above this number. null: not tested.")
    at_most: Number | None = Field(default=None, description="The value is at most this number. null: not tested.")
    at_least: Number | None = Field(default=None, description="The value is at least this number. null: not tested.")

    _naming: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="after")
    def _asks_something(self) -> Bounds:
        tests = [name for name in type(self).model_fields if name not in self._naming]
        if all(getattr(self, name) is None for name in tests):
            raise ValueError(f"a test: at least one of {', '.join(tests)}")
        return self

    def _within(self, values: NDArray[np.float64]) -> list[Truth]:
        with np.errstate(invalid="ignore"):
            tests = (
                None if self.below is None else values < self.below - TOLERANCE,
                None if self.above is None else values > self.above + TOLERANCE,
                None if self.at_most is None else values <= self.at_most + TOLERANCE,
                None if self.at_least is None else values >= self.at_least - TOLERANCE,
            )
        return [known(test, ~np.isnan(values)) for test in tests if test is not None]


class ScoreCondition(Bounds):
    """On the value of a score, in its native scale. `measured` asks whether there is a value at all, `judged` whether the case passed
    or failed by it, both also in a run without the score. Several tests must all hold."""

    score: Names = Field(
        description="Name of the score, or several of which the first that the run has counts. `*`: any score."
    )
    passed: bool | None = Field(default=None, description="Whether the case passed by the score. null: not tested.")
    status: Status | None = Field(default=None, description="Status of the score: ok, skipped or error. null: not tested.")
    measured: bool | None = Field(default=None, description="Whether the score has a value. null: not tested.")
    judged: bool | None = Field(
        default=None, description="Whether the case passed or failed by the score at all. null: not tested."
    )

    _naming = frozenset({"score"})

    def holds(self, facts: Facts) -> Truth | None:
        if ANY_SCORE in self.score:
            return any_of([self._of(facts, name) for name in facts.columns])
        name = facts.first(self.score)
        if name is not None:
            return self._of(facts, name)
        if self.identity().keys() - {"score"} in ({"measured"}, {"judged"}):  # what a run without the score can answer
            return np.full(facts.n, not (self.measured or self.judged), dtype=np.int8)
        return None

    def _of(self, facts: Facts, name: str) -> Truth | None:
        column = facts.columns[name]
        truths = self._within(column.values)
        has_value = ~np.isnan(column.values)
        if self.passed is not None:
            truths.append(known(column.passed == int(self.passed), column.passed >= 0))
        if self.status is not None:
            truths.append(known(column.status == STATUSES.index(self.status), column.status >= 0))
        if self.measured is not None:
            truths.append((has_value == self.measured).astype(np.int8))
        if self.judged is not None:
            truths.append(((column.passed >= 0) == self.judged).astype(np.int8))
        return all_of(truths)


class LabelledCondition(Bounds):
    equals: Label | Annotated[list[Label], Field(min_length=1)] | None = Field(
        default=None, description="The value, or one of several, that it must have. null: not tested."
    )
    blank: bool | None = Field(default=None, description="Whether the value is absent or empty. null: not tested.")

    def _of(self, valued: Valued, absent_is_false: NDArray[np.bool_]) -> Truth | None:
        """Of one value per case. `absent_is_false` says where an absent value is a finding and not unknown."""
        values, numbers = valued.values, valued.numbers
        truths = []
        if self.equals is not None:
            accepted, named = set(field_labels(self.equals)), [field_labels(value) for value in values]
            holds = np.array([not accepted.isdisjoint(labels) for labels in named], dtype=np.bool_)
            present = np.array([bool(labels) for labels in named], dtype=np.bool_)
            truths.append(known(holds[numbers], absent_is_false | present[numbers]))
        if self.blank is not None:
            truths.append((valued.blank == self.blank).astype(np.int8))
        if not (None is self.below is self.above is self.at_most is self.at_least):
            truths += self._within(np.array([_number(value) for value in values], dtype=np.float64)[numbers])
        return all_of(truths)


class DetailCondition(LabelledCondition):
    """On what a metric wrote into the details of a score: `detail` is a key, or a dotted path. A key that is absent from a
    score with status ok equals nothing. A list equals what one of its items equals, and is as large as it has items."""

    score: Names = Field(description="Name of the score, or several of which the first that the run has counts.")
    detail: str = Field(min_length=1, description="Key, or dotted path, in the details of the score.")

    _naming = frozenset({"score", "detail"})

    def holds(self, facts: Facts) -> Truth | None:
        name = facts.first(self.score)
        return None if name is None or name not in facts.measured else self._of(*facts.details(name, self.detail))


class FieldCondition(LabelledCondition):
    """On a field of the case: what it can be broken down by, `meta.<key>` or `expected.<key>`. A field that the case does
    not have is unknown; `blank` asks for just that, or for a text without a character to see. An answer that is not
    recorded is unknown to `blank` too."""

    field: str = Field(description="Field of the case: a column, `meta.<key>` or `expected.<key>`.")

    _naming = frozenset({"field"})

    @field_validator("field")
    @classmethod
    def _known_field(cls, field: str) -> str:
        if fault := field_fault(field, (*_EXPECTED, JUDGE)):
            raise ValueError(fault)
        return field

    def holds(self, facts: Facts) -> Truth | None:
        values = facts.field(self.field)
        truth = self._of(values, np.zeros(facts.n, dtype=np.bool_))
        if truth is None or self.field != "answer":
            return truth
        recorded = np.array([value is not None for value in values.values], dtype=np.bool_)[values.numbers]
        return known(truth == 1, recorded & (truth >= 0))


class FailureModeCondition(_Condition):
    """On a failure mode of the case."""

    failure_mode: str = Field(description="Name of a failure mode that the case has.")

    def holds(self, facts: Facts) -> Truth | None:
        return facts.modes.get(self.failure_mode)


class AllOf(_Condition):
    """True when all hold, false when one does not, else unknown."""

    all: list[Condition] = Field(min_length=1, description="Conditions that must all hold.")

    def holds(self, facts: Facts) -> Truth | None:
        return all_of([condition.holds(facts) for condition in self.all])


class AnyOf(_Condition):
    """True when one holds; false when none of those that are known does; unknown when none is known."""

    any: list[Condition] = Field(min_length=1, description="Conditions of which one must hold.")

    def holds(self, facts: Facts) -> Truth | None:
        return any_of([condition.holds(facts) for condition in self.any])


class NoneOf(_Condition):
    """True when all are known not to hold, false when one holds, else unknown."""

    none: list[Condition] = Field(min_length=1, description="Conditions of which none may hold.")

    def holds(self, facts: Facts) -> Truth | None:
        negated = [None if (truth := condition.holds(facts)) is None else _turned(truth) for condition in self.none]
        return all_of(negated)


# By the key that names each kind, the more telling one first; no tag is a key, so that a fault's place can be read.
_KINDS = ("all", "any", "none", "failure_mode", "field", "detail", "score")


def _kind(condition: Any) -> str | None:
    keys = condition if isinstance(condition, dict) else getattr(condition, "model_fields_set", ())
    return next((f"a {kind} condition" for kind in _KINDS if kind in keys), None)


Condition = Annotated[
    Annotated[AllOf, Tag("a all condition")]
    | Annotated[AnyOf, Tag("a any condition")]
    | Annotated[NoneOf, Tag("a none condition")]
    | Annotated[FailureModeCondition, Tag("a failure_mode condition")]
    | Annotated[FieldCondition, Tag("a field condition")]
    | Annotated[DetailCondition, Tag("a detail condition")]
    | Annotated[ScoreCondition, Tag("a score condition")],
    Discriminator(
        _kind,
        custom_error_type="no_condition",
        custom_error_message="a mapping with one of the keys score, field, failure_mode, all, any, none",
    ),
]
Rule = Annotated[
    Condition,
    BeforeValidator(
        lambda rule: {"any": rule} if isinstance(rule, list) else rule, json_schema_input_type=Condition | list[Condition]
    ),
]


def known(holds: Any, is_known: Any) -> Truth:
    """A truth that is unknown where `is_known` is not."""
    return np.where(is_known, np.asarray(holds, dtype=np.bool_), -1).astype(np.int8)


def all_of(truths: list[Truth] | list[Truth | None]) -> Truth | None:
    """The conjunction; None as soon as one of them is not applicable."""
    applicable = [truth for truth in truths if truth is not None]
    if len(applicable) < len(truths):
        return None
    if len(applicable) == 1:
        return applicable[0]
    stacked = np.stack(applicable)
    return np.where((stacked == 0).any(axis=0), 0, stacked.min(axis=0)).astype(np.int8)


def any_of(truths: list[Truth | None]) -> Truth | None:
    """The disjunction of those that are applicable and, case by case, known; None when none is applicable."""
    applicable = [truth for truth in truths if truth is not None]
    return np.stack(applicable).max(axis=0).astype(np.int8) if applicable else None


def _turned(truth: Truth) -> Truth:
    return np.where(truth < 0, truth, 1 - truth).astype(np.int8)


JUDGE = "judge"
EXPECTED = "expected."
_EXPECTED = tuple(EXPECTED + name for name in Expected.model_fields)

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Valued:
    """Some different values, and for each case the number of its own."""

    values: list[Any]
    numbers: Whole

    @cached_property
    def blank(self) -> NDArray[np.bool_]:
        """For each case whether its value is absent or empty. Many rules ask it of the answer, whose values are all different."""
        blank = [value is None or value == [] or (isinstance(value, str) and is_blank(value)) for value in self.values]
        return np.array(blank, dtype=np.bool_)[self.numbers]


class Facts:
    """One block. `columns` are the scores of the run by name, composites and the overall score with them; `measured` are
    those that a metric gave; `cases` are the columns of `case_columns`, and `judge`. `modes` are filled in as they are found."""

    def __init__(
        self, block: CaseBlock, columns: Mapping[str, Column], cases: Mapping[str, pa.Array], measured: Collection[str]
    ):
        self.n = len(block)
        self.columns = columns
        self.measured = set(measured)
        self.modes: dict[str, NDArray[np.int8]] = {}
        self._block = block
        self._cases = cases
        self._fields: dict[str, Valued] = {}
        self._rows: dict[str, Whole] = {}

    def first(self, names: Sequence[str]) -> str | None:
        """The first of these scores that the run has."""
        return next((name for name in names if name in self.columns), None)

    def field(self, name: str) -> Valued:
        """A field's values; None where there is none."""
        if name not in self._fields:
            self._fields[name] = self._field(name)
        return self._fields[name]

    def details(self, score: str, path: str) -> tuple[Valued, NDArray[np.bool_]]:
        """The value at `path` in the details of a score, and where that score is ok."""
        cases, texts = self.detail_rows(score, path)
        numbers = np.zeros(self.n, dtype=np.int64)
        numbers[cases] = np.arange(1, len(cases) + 1)
        values = [None, *(within(from_json(text), path) for text in texts)]
        return Valued(values, numbers), self.columns[score].status == OK

    def detail_rows(self, score: str, key: str, among: NDArray[np.bool_] | None = None) -> tuple[Whole, list[str]]:
        """The details of a score as JSON texts, of the cases `among` whose details may hold `key`, with their cases."""
        if not self._rows:
            names = self._block.scores["score_name"].combine_chunks().dictionary_encode()
            codes = names.indices.to_numpy(zero_copy_only=False)
            self._rows = {name: np.flatnonzero(codes == code) for code, name in enumerate(names.dictionary.to_pylist())}
        rows = self._rows.get(score, np.empty(0, dtype=np.int64))
        if among is not None:
            rows = rows[among[self._block.cases[rows]]]
        texts = self._block.scores["details"].take(pa.array(rows, type=pa.int64()))
        first = key.partition(".")[0]
        mentions = pc.match_substring(texts, f'"{first}') if first.isidentifier() else texts.is_valid()
        kept = pa.array(np.flatnonzero(pc.fill_null(mentions, False).to_numpy()), type=pa.int64())
        return self._block.cases[rows[kept.to_numpy()]], texts.take(kept).to_pylist()

    def key(self, place: int) -> dict[str, str | int]:
        """The key of a case: `sample_id`, `method` and `repeat`."""
        return {name: self._block.outputs[name][place].as_py() for name in OUTPUT_KEY}

    def _field(self, name: str) -> Valued:
        for prefix in (META, EXPECTED):
            if name.startswith(prefix) and name != prefix:
                cells = self.field(prefix)
                return Valued([within(cell, name.removeprefix(prefix)) for cell in cells.values], cells.numbers)
        if name in LISTS:
            return Valued(self._cases[LISTS[name]].to_pylist(), np.arange(self.n))
        if name in (META, EXPECTED):
            texts = _different(self._cases["meta"] if name == META else self._block.samples["expected"])
            return Valued([from_json(text) if text else {} for text in texts.values], texts.numbers)
        return _different(self._cases[name])


def _number(value: Any) -> float:
    number = len(value) if isinstance(value, list) else value
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else np.nan


def _different(column: pa.Array | pa.ChunkedArray) -> Valued:
    plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = plain.dictionary_encode(null_encoding="encode")
    return Valued(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
