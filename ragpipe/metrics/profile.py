"""The profile of a data set: the distribution of every field, and what looks wrong, from one pass over its records."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, NamedTuple, Protocol, TypeVar

from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.core.sample import Case, Expected, Output, Sample, several
from ragpipe.data.settings import DatasetSettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.computed.recorded import RecordedMetric, RecordedScore, recorded_value
from ragpipe.metrics.needs import DataFacts

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
        self._of_outputs: dict[str, Distribution] = {}
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
            self._describe(self._of_outputs, field, sample.id, output.method)
        self._methods.add(number, output)
        self._values.add_output(output)

    def _describe(self, distributions: dict[str, Distribution], field: FieldValue, where: str, method: str = "") -> None:
        found = distributions.get(field.name)
        if found is None:
            if not self._has_room(field.name):
                return
            found = distributions[field.name] = Distribution()
        if not found.kind and (field.each is not None or field.value is not None):
            found.kind = field.kind  # of an absent value it is not known
        if field.each is None and field.value is None:
            found.first_absent = found.first_absent or where
            return
        found.add((field.value,) if field.each is None else field.each)
        if method:
            found.by_method[method] += 1

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

    def output_fields(self) -> dict[str, Distribution]:
        """The distributions of the outputs' fields that some output has, by name."""
        return {name: found for name, found in self._of_outputs.items() if found.n_values}

    def document(self) -> dict[str, Any]:
        cases = sum(self.cases.values())
        return {
            "samples": self.samples,
            "cases": dict(self.cases),
            "findings": [finding.document() for finding in self.findings()],
            "fields_of_samples": {name: found.document(self.samples) for name, found in self.sample_fields().items()},
            "fields_of_outputs": {name: found.document(cases) for name, found in self.output_fields().items()},
            "fields_left_out": sorted(self._left_out),
        }


_NO_OUTPUT = Output(sample_id="-")


class FieldValue(NamedTuple):
    """A field of a case.

    `kind` is text (described by its characters), number, label (texts and booleans, described by the most frequent) or list
    (described by the number of entries). `value` is that value, of a list the number of its entries; None where it is absent.
    `each` are values that stand together in one place (the texts of all contexts): then `value` is None.
    """

    name: str
    kind: str
    value: Any
    each: tuple[Any, ...] | None = None


_LABELS = ("recency_conflict_rule", "answerable", "category", "subcategory", "difficulty", "question_type", "vault")
_LISTS = ("relevant_docs", "relevant_chunks", "gains", "anchors", "required_support_groups")


def sample_fields(sample: Sample) -> Iterator[FieldValue]:
    """The fields of a sample; those of `expected` and `meta` by their own names."""
    yield FieldValue("question", "text", sample.question)
    yield _entries("history", sample.history or None)
    yield _entries("references", sample.references or None)
    yield FieldValue("references[]", "text", None, tuple(sample.references))
    for name in _LISTS:
        yield _entries(name, getattr(sample, name))
    if sample.gains:
        yield FieldValue("gains[]", "number", None, tuple(sample.gains.values()))
    for name in _LABELS:
        yield FieldValue(name, "label", getattr(sample, name))
    for name in Expected.model_fields:
        value = getattr(sample.expected, name) if sample.expected else None
        yield _any(f"expected.{name}", value)
    yield _entries("tags", sample.tags or None)
    yield FieldValue("tags[]", "label", None, tuple(sample.tags))
    for name, value in sample.meta.items():
        yield _any(f"meta.{name}", value)


def output_fields(output: Output) -> Iterator[FieldValue]:
    """The fields of an output; those of `timings`, `usage` and `recorded` by their own names."""
    yield FieldValue("answer", "text", output.answer)
    if output.retrieves:
        yield from _chunk_fields(output)
    yield _entries("citations", output.citations)
    for name in ("version", "abstained", "folder_mode", "error"):
        yield FieldValue(name, "label", getattr(output, name))
    yield _entries("selected_folders", output.selected_folders)
    for part in ("timings", "usage"):
        for name, number in getattr(output, part).items():
            yield FieldValue(f"{part}.{name}", "number", number)
    for name, value in output.recorded.items():
        yield from _recorded(f"recorded.{name}", value)


def _chunk_fields(output: Output) -> Iterator[FieldValue]:
    """What the contexts of an output are; their policies and types only where some have one."""
    chunks = output.chunks
    yield _entries("contexts", chunks)
    if not chunks:
        return
    yield FieldValue("contexts[].text", "text", None, tuple(chunk.text for chunk in chunks if chunk.text))
    scores = tuple(chunk.score for chunk in chunks if chunk.score is not None)
    if scores:
        yield FieldValue("contexts[].score", "number", None, scores)
    types = tuple(chunk.doc_type for chunk in chunks if chunk.doc_type)
    if types:
        yield FieldValue("contexts[].doc_type", "label", None, types)
    policies = tuple(chunk.policy for chunk in chunks if chunk.policy != "summarize")
    if policies:
        yield FieldValue("contexts[].policy", "label", None, policies)


def _recorded(name: str, value: Any) -> Iterator[FieldValue]:
    """A recorded value; of several verdicts by name each under its own name, a verdict that cannot be read as a label."""
    if isinstance(value, Mapping) and set(value) != {"unreadable"}:
        for part, verdict in value.items():
            yield from _recorded(f"{name}.{part}", verdict)
    elif isinstance(value, Mapping):
        yield FieldValue(f"{name} (unreadable)", "label", True)
    elif isinstance(value, list):
        yield _entries(name, value)
    else:
        yield _any(name, value)


def _entries(name: str, value: Any) -> FieldValue:
    return FieldValue(name, "list", None if value is None else len(value))


def _any(name: str, value: Any) -> FieldValue:
    if isinstance(value, list | Mapping):
        return _entries(name, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return FieldValue(name, "number", value)
    return FieldValue(name, "label", value)


FEWEST = 3
"""Questions from which on equal answers or contexts are said."""
MANY = 0.1
"""Share of a method's questions from which on one answer is given too often, unless it only declines."""
MOST = 0.5
"""Share of a method's questions from which on equal contexts are said."""
FEW_WORDS = 3
"""Words up to which many questions may have the same right answer, such as yes, no, or a year."""
MANY_SHORT, NEARLY_ALL = 10, 0.9
"""Questions, and their share, from which on an answer of few words is given too often."""
SHOWN = 4  # methods that a line names
REFUSALS = "refusals.v3"


class _SameText:
    """How many questions of a method have the same text, by its hash: [count, number of the first, of the last]."""

    def __init__(self) -> None:
        self._seen: dict[int, list[int]] = {}
        self.most = [0, 0, 0]
        self.text = ""

    def add(self, text: str, number: int) -> None:
        """One more question with this text; another output for the same question does not count."""
        seen = self._seen.setdefault(hash(text), [0, number, -1])
        if seen[2] != number:
            seen[0] += 1
            seen[2] = number
            if seen[0] > self.most[0]:
                self.most, self.text = seen, text[:200]


class _Method:
    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.answers, self.contexts = _SameText(), _SameText()
        self.repeating = [0, 0]  # outputs with a chunk that came before, the number of the first one's sample

    @property
    def questions(self) -> int:
        return len(self.asked)


class MethodChecks:
    """Counts over outputs by method. Holds a hash for each different answer and list of contexts, a number for each question."""

    def __init__(self) -> None:
        self._methods: dict[str, _Method] = {}

    def add(self, number: int, output: Output) -> None:
        """Take an output into account. `number` is that of its sample."""
        method = self._methods.setdefault(output.method, _Method())
        method.asked.add(number)
        if output.error is not None:
            return
        if output.answer and output.answer.strip():
            method.answers.add(" ".join(output.answer.split()), number)
        texts = [chunk.text or chunk.id for chunk in output.chunks or ()]
        if len(set(texts)) < len(texts):
            method.repeating = [method.repeating[0] + 1, method.repeating[1] if method.repeating[0] else number]
        if texts:
            method.contexts.add("\n".join(texts), number)

    def findings(self, ids: Sequence[str]) -> list[Finding]:
        """What the methods so far lack or repeat. `ids` are those of all samples, by number."""
        found = _differing(self._methods, ids)
        for name, method in self._methods.items():
            count, first, _ = method.answers.most
            if _is_too_often(method.answers.text, count, method.questions):
                text = f"method {name}: {count:,} of {method.questions:,} questions have the same answer, {method.answers.text[:60]!r}"
                fix = "is `answer` mapped to the right field?"
                found.append(Finding("same_answers", text, count, ids[first], fix))
            count, first, _ = method.contexts.most
            if count >= max(FEWEST, MOST * method.questions):
                text = f"method {name}: {count:,} of {method.questions:,} questions have the same contexts"
                fix = "are `contexts` mapped to what was retrieved for each question?"
                found.append(Finding("same_contexts", text, count, ids[first], fix))
            count, first = method.repeating
            if count >= max(FEWEST, MANY * method.questions):
                text = f"method {name}: {count:,} outputs have a retrieved chunk twice, first {ids[first]!r}"
                fix = "drop duplicates after retrieval: a chunk that comes again only takes a place"
                found.append(Finding("repeated_chunks", text, count, ids[first], fix))
        return found


def _differing(methods: Mapping[str, _Method], ids: Sequence[str]) -> list[Finding]:
    """Methods that do not have outputs for the same questions, as one finding; none where each has all."""
    lacking = {name: method for name, method in methods.items() if method.questions < len(ids)}
    if not lacking:
        return []
    name, method = next(iter(lacking.items()))
    where = next(name for number, name in enumerate(ids) if number not in method.asked)
    shared = len(set.intersection(*(m.asked for m in methods.values())))
    counts = ", ".join(f"{name} {method.questions:,}" for name, method in list(lacking.items())[:SHOWN])
    more = f" and {len(lacking) - SHOWN} more methods" if len(lacking) > SHOWN else ""
    text = f"of {len(ids):,} questions there are outputs of {counts}{more}; {name} lacks {where!r} first"
    fix = f"methods are compared on the {shared:,} that all share" if len(methods) > 1 else ""
    return [Finding("differing_questions", text, len(ids) - shared, where, fix, is_warning=False)]


def _is_too_often(answer: str, count: int, questions: int) -> bool:
    if len(answer.split()) <= FEW_WORDS:
        return count >= MANY_SHORT and count >= NEARLY_ALL * questions
    if count < max(FEWEST, MANY * questions):
        return False
    reading = read_refusal(answer, load_refusals(REFUSALS))
    return reading.covered and not reading.refused


class QuestionChecks:
    """Counts over samples, each added once. Holds a hash and a reference to the id for each."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._alike: list[tuple[str, str]] = []
        self._repeated: list[tuple[str, str]] = []

    def add(self, sample: Sample) -> None:
        """Compare a sample with those before it."""
        if (first := self._ids.setdefault(hash(_plain(sample.id)), sample.id)) != sample.id:
            self._alike.append((first, sample.id))
        turns = tuple(turn.text for turn in sample.history)
        if (first := self._texts.setdefault(hash((_plain(sample.question), turns)), sample.id)) != sample.id:
            self._repeated.append((first, sample.id))

    def findings(self) -> list[Finding]:
        """What the samples so far have twice."""
        found = []
        for first, second in self._alike[:1]:
            text = f"{_many(len(self._alike), 'id differs', 'ids differ')} from another in case or blanks only, first {second!r} and {first!r}"
            fix = "if they are the same question, give them one id, so that methods are compared on it"
            found.append(Finding("similar_ids", text, len(self._alike), second, fix))
        for first, second in self._repeated[:1]:
            many = _many(len(self._repeated), "question repeats", "questions repeat")
            text = f"{many} the text of another under another id, first {second!r} and {first!r}"
            fix = "answers of several methods to one question need the same id; a true duplicate counts twice in every mean"
            found.append(Finding("repeated_questions", text, len(self._repeated), second, fix))
        return found


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _plain(text: str) -> str:
    """The text without what two spellings of the same may differ in: case, and blanks at the ends or in a row."""
    return " ".join(text.casefold().split())


SECONDS = 50.0
"""Median of `timings.total` under which it is asked whether they are seconds: a generated answer takes longer than 50 ms."""
LONGEST = {"question": 10_000, "answer": 30_000, "context": 60_000}
"""Characters from which on a text is said to be very long: 15,000 tokens of one context leave a judge no room for others."""
_MILLISECONDS = re.compile(r"(?:(?:^|[_.])ms|Ms|(?i:millis\w*))\b|\btime_ms\(")


def times_are_known(settings: DatasetSettings) -> bool:
    """Whether a mapping says in which unit its times are: it reads spans, or `timings` has a `unit` or a path that ends in `ms`."""
    timings = settings.fields.get("timings")
    if timings is None:
        return False
    parts = [timings, *(timings.fields or {}).values()]
    named = (part.unit is not None or _MILLISECONDS.search(part.path or "") for part in parts)
    return settings.format == "spans" or any(named)


class _Count:
    """How often something was seen, and where first."""

    def __init__(self) -> None:
        self.n, self.first, self.most = 0, "", 0.0

    def add(self, where: str, size: float = 0.0) -> None:
        self.n += 1
        self.first = self.first or where
        self.most = max(self.most, size)


class ValueChecks:
    """Counts over samples and outputs. `metrics` are those of the run: the metric `recorded` declares scales. With `times_known`
    nothing is said of the unit of times."""

    def __init__(self, metrics: Iterable[Metric], *, times_known: bool):
        self._times_known = times_known
        takes = [metric.take for metric in metrics if isinstance(metric, RecordedMetric)]
        self._scales = {name: spec for take in takes for name, spec in take.items()}
        self._off_scale: dict[str, _Count] = {}
        self._totals: dict[str, tuple[array[float], str]] = {}
        self._long: dict[str, _Count] = {}
        self._blank_references, self._blank_contexts = _Count(), _Count()
        self._contexts_with_text = 0

    def add_sample(self, sample: Sample) -> None:
        """Take the question and the references of a sample into account."""
        self._measure("question", sample.question, sample.id)
        if any(not text.strip() for text in sample.references):
            self._blank_references.add(sample.id)

    def add_output(self, output: Output) -> None:
        """Take the texts, timings and recorded verdicts of an output into account."""
        self._measure("answer", output.answer or "", output.sample_id)
        for chunk in output.chunks or ():
            self._measure("context", chunk.text, output.sample_id)
            if chunk.text.strip():
                self._contexts_with_text += 1
            else:
                self._blank_contexts.add(output.sample_id)
        if "total" in output.timings and output.answer and not self._times_known:
            totals, _ = self._totals.setdefault(output.method, (array("d"), output.sample_id))
            totals.append(output.timings["total"])
        for name, spec in self._scales.items():
            self._compare(name, spec, output)

    def _measure(self, kind: str, text: str, where: str) -> None:
        if len(text) > LONGEST[kind]:
            self._long.setdefault(kind, _Count()).add(where, len(text))

    def _compare(self, name: str, spec: RecordedScore, output: Output) -> None:
        """Count the case where one of the verdicts behind a recorded score is a number outside its scale."""
        value = recorded_value(output.recorded, spec.source or name)
        verdicts = several(value)
        for verdict in (value,) if verdicts is None else verdicts.values():
            if isinstance(verdict, int | float) and spec.off_scale(float(verdict)):
                self._off_scale.setdefault(name, _Count()).add(output.sample_id)
                return

    def findings(self) -> list[Finding]:
        """What the values so far have that cannot be meant."""
        found = []
        for name, count in self._off_scale.items():
            spec = self._scales[name]
            text = f"recorded score {name}: {_cases(count.n)} outside its scale {spec.low:g} to {spec.high:g}, first {count.first!r}"
            fix = f"set metrics.recorded.take.{name}.low and .high to the scale of the data"
            found.append(Finding("off_scale", text, count.n, count.first, fix))
        for method, (totals, first) in self._totals.items():
            if (middle := median(totals)) < SECONDS:
                text = f"method {method}: the median of timings.total is {middle:.3g} milliseconds"
                fix = "if these are seconds, map them as {path: ..., unit: s}"
                found.append(Finding("seconds", text, len(totals), first, fix))
        return [*found, *self._texts()]

    def _texts(self) -> list[Finding]:
        """Texts that are blank or very long. Contexts that all lack a text are ids alone, and no fault."""
        found = []
        if count := self._blank_references.n:
            first = self._blank_references.first
            text = f"{count:,} sample{'s have' if count > 1 else ' has'} a blank reference, first {first!r}"
            found.append(Finding("blank_references", text, count, first, "it is left out: remove it, or map what is meant"))
        if (count := self._blank_contexts.n) and self._contexts_with_text:
            first, total = self._blank_contexts.first, count + self._contexts_with_text
            text = f"{count:,} of {total:,} contexts have no text, first in {first!r}"
            fix = "a judge sees nothing in them: join their texts by id, or map the field that holds them"
            found.append(Finding("blank_contexts", text, count, first, fix))
        for kind, counted in self._long.items():
            text = (
                f"{counted.n:,} {kind}{'s' if counted.n > 1 else ''} of more than {LONGEST[kind]:,} characters, the longest "
                f"{counted.most:,.0f}, first in {counted.first!r}"
            )
            fix = "is a whole document mapped? Questions to the judge may be too long for its context window"
            found.append(Finding(f"long_{kind}s", text, counted.n, counted.first, fix))
        return found


def _cases(count: int) -> str:
    return "1 case is" if count == 1 else f"{count:,} cases are"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was noticed, how often, where first, and what to do about it.

    `is_warning`: it is probably a fault of the data or of the mapping. Otherwise it is good to know.
    """

    name: str
    text: str
    count: int
    first: str
    fix: str = ""
    is_warning: bool = True

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text

    def document(self) -> dict[str, Any]:
        return asdict(self)


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
