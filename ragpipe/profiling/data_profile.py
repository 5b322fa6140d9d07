"""The profile of a data set: the distribution of every field, and what looks wrong, from one pass over its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from ragpipe.metrics.base import Metric
from ragpipe.profiling.case_fields import FieldValue, output_fields, sample_fields
from ragpipe.profiling.distribution import Distribution, document
from ragpipe.profiling.finding import Finding
from ragpipe.profiling.label_fields import DataFacts
from ragpipe.profiling.method_checks import MethodChecks
from ragpipe.profiling.question_checks import QuestionChecks
from ragpipe.profiling.value_checks import ValueChecks
from ragpipe.schema.sample import Case, Output, Sample

MOST_FIELDS = 400
"""Fields that are described: of data whose `meta` has another key in every record the first ones."""


class ProfiledRecord(Protocol):
    """One record of a data set: a sample and the output for it, None in a data set of questions."""

    @property
    def sample(self) -> Sample: ...
    @property
    def output(self) -> Output | None: ...


R = TypeVar("R", bound=ProfiledRecord)


class DataProfile:
    """What the records hold that were added. Texts are not kept: memory grows by some hundred bytes for each sample and case.

    Attributes:
        samples: how many samples there are.
        cases: how many cases each method has, in the order of their first one.
        facts: which labels and parts of outputs there are.
    """

    def __init__(self, metrics: Iterable[Metric] = (), *, times_known: bool = False):
        """`metrics` are those of the run, whose declared scales recorded verdicts are compared with. `times_known`: the unit of
        times is declared, so that short ones are no finding."""
        self.facts = DataFacts()
        self.cases: dict[str, int] = {}
        self._numbers: dict[str, int] = {}  # of each sample id
        self._of_samples: dict[str, Distribution] = {}
        self._of_outputs: dict[str, dict[str, Distribution]] = {}
        self._left_out: set[str] = set()
        self._questions = QuestionChecks()
        self._methods = MethodChecks()
        self._values = ValueChecks(metrics, times_known=times_known)

    @property
    def samples(self) -> int:
        return len(self._numbers)

    def watch(self, records: Iterable[R]) -> Iterator[R]:
        """The records as they are, each added to the profile on its way."""
        for record in records:
            self.add(record.sample, record.output)
            yield record

    def add(self, sample: Sample, output: Output | None) -> None:
        """Take one record into account."""
        number = self._numbers.get(sample.id)
        if number is None:
            number = self._numbers[sample.id] = len(self._numbers)
            for field in sample_fields(sample):
                self._describe(self._of_samples, field, sample.id)
            self._questions.add(sample)
            self._values.add_sample(sample)
        self.facts.add(Case(sample, output or _NO_OUTPUT))
        if output is None:
            return
        self.cases[output.method] = self.cases.get(output.method, 0) + 1
        for field in output_fields(output):
            by_method = self._of_outputs.get(field.name)
            if by_method is None:
                by_method = self._of_outputs.setdefault(field.name, {}) if self._has_room(field.name) else {}
            self._describe(by_method, field._replace(name=output.method), sample.id)
        self._methods.add(number, output)
        self._values.add_output(output)

    def _describe(self, distributions: dict[str, Distribution], field: FieldValue, where: str) -> None:
        """Add a field's value to the distribution of its name."""
        found = distributions.get(field.name)
        if found is None:
            if distributions is self._of_samples and not self._has_room(field.name):
                return
            found = distributions[field.name] = Distribution()
        if not found.kind and (field.each is not None or field.value is not None):
            found.kind = field.kind  # of an absent value it is not known
        if field.each is not None:
            found.add(field.each)
        elif field.value is None:
            found.first_absent = found.first_absent or where
        else:
            found.add((field.value,))

    def _has_room(self, name: str) -> bool:
        if len(self._of_samples) + len(self._of_outputs) < MOST_FIELDS:
            return True
        if len(self._left_out) < MOST_FIELDS:
            self._left_out.add(name)
        return False

    def findings(self) -> list[Finding]:
        """What looks wrong, and what is good to know before methods are compared: warnings first."""
        ids = list(self._numbers)
        found = [*self._questions.findings(), *self._methods.findings(ids), *self._values.findings()]
        return sorted(found, key=lambda finding: not finding.is_warning)

    def sample_fields(self) -> dict[str, Distribution]:
        """The distributions of the samples' fields that some sample has, by name."""
        return {name: found for name, found in self._of_samples.items() if found.n_values}

    def output_fields(self) -> dict[str, dict[str, Distribution]]:
        """The distributions of the outputs' fields that some output has, by name and method."""
        described = self._of_outputs.items()
        return {name: found for name, found in described if any(one.n_values for one in found.values())}

    def document(self) -> dict[str, Any]:
        """The whole profile as JSON."""
        cases = sum(self.cases.values())
        outputs = {
            name: document(list(found.values()), cases)
            | {"by_method": {method: document([one], self.cases[method]) for method, one in found.items()}}
            for name, found in self.output_fields().items()
        }
        return {
            "samples": self.samples,
            "cases": dict(self.cases),
            "findings": [finding.document() for finding in self.findings()],
            "fields_of_samples": {
                name: document([found], self.samples) for name, found in self.sample_fields().items()
            },
            "fields_of_outputs": outputs,
            "fields_left_out": sorted(self._left_out),
        }


_NO_OUTPUT = Output(sample_id="-")
