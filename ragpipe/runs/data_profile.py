"""The profile of a data set: the distribution of every field, and what looks wrong, by the columns of its frozen tables."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.core.sample import Expected, several
from ragpipe.data.settings import DatasetSettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.computed.recorded import RecordedMetric, RecordedScore, recorded_value
from ragpipe.metrics.needs import UNANSWERABLE, DataFacts, recorded_name
from ragpipe.score.case_blocks import BLOCK, RetrievedChunks, aligned
from ragpipe.score.pointer_checks import LABEL_COLUMNS, Pointers, context_counts
from ragpipe.store.run_tables import batches

MOST_FIELDS = 400
"""Fields of samples, and of outputs, that are described: of data whose `meta` has another key in every record the first ones."""
Objects = Mapping[int, Mapping[str, Any]]
Flags = NDArray[np.bool_]
_LISTS = ("relevant_docs", "relevant_chunks", "gains", "anchors", "required_support_groups")
_LABELS = ("recency_conflict_rule", "answerable", "category", "subcategory", "difficulty", "question_type", "vault")


class DataProfile:
    """What a data set holds, by its frozen tables. Texts are not kept: memory grows by some hundred bytes for each sample and case.

    Attributes:
        cases: how many cases each method has, in the order of their first one.
        pointers: the ids that lead nowhere.
    """

    def __init__(self, metrics: Iterable[Metric] = (), *, times_known: bool = False):
        """`metrics` are those of the run, whose declared scales recorded verdicts are compared with. `times_known`: the unit of
        times is declared, so that short ones are no finding."""
        self.cases: Counter[str] = Counter()
        self.pointers = Pointers()
        self._ids: list[str] = []
        self._of_samples, self._of_outputs = _Fields(), _Fields()
        self._further_facts: set[str] = set()
        self._questions, self._methods = QuestionChecks(), MethodChecks()
        self._values = ValueChecks(metrics, times_known=times_known)

    def read(self, samples: Path, outputs: Path | None = None) -> DataProfile:
        """Take the tables into account; without `outputs` there are questions only. Raises DataError for one that cannot be read."""
        for batch in batches(samples, size=BLOCK):
            self._add_samples(batch)
        for rows, labels in aligned(samples, outputs, of_samples=LABEL_COLUMNS) if outputs else ():
            chunks = RetrievedChunks(rows["chunks"])
            self.pointers.add(rows, labels, chunks, context_counts(rows["method"], chunks))
            self._add_outputs(rows.combine_chunks().to_batches()[0], chunks)
        return self

    def _add_samples(self, rows: pa.RecordBatch) -> None:
        ids, fields = rows["id"].to_pylist(), self._of_samples
        self._ids += ids
        fields.start(ids)
        fields.texts("question", rows["question"], _true(rows["question"].is_valid()))
        for name in ("history", "references", *_LISTS, "tags"):
            is_label = name in _LISTS  # an empty one says that nothing is relevant
            fields.values(name, [n if n or is_label else None for n in _lengths(rows[name])], "list")
        fields.texts("references[]", rows["references"].flatten(), np.ones(len(ids), np.bool_))
        for row, gains in _objects(rows["gains"]):
            fields.add("gains[]", "number", list(gains.values()), np.ones(1, np.bool_), [row])
        for name in _LABELS:
            fields.values(name, rows[name].to_pylist())
        expected = dict(_objects(rows["expected"]))
        for name in Expected.model_fields:
            fields.values(f"expected.{name}", [expected[row].get(name) if row in expected else None for row in range(len(ids))])
        fields.add("tags[]", "label", rows["tags"].flatten().to_pylist(), np.ones(len(ids), np.bool_))
        fields.parts((row, f"meta.{name}", value) for row, meta in _objects(rows["meta"]) for name, value in meta.items())
        if pc.any(pc.match_substring_regex(rows["anchors"], r'[{,]"role":"')).as_py():  # inside a text, quotes are escaped
            self._further_facts.add("anchors[].role")
        self._questions.add(ids, rows["question"].to_pylist(), rows["history"].to_pylist())
        self._values.add_samples(rows)

    def _add_outputs(self, rows: pa.RecordBatch, chunks: RetrievedChunks) -> None:
        methods, fields = rows["method"].to_pylist(), self._of_outputs
        self.cases.update(methods)
        fields.start(rows["sample_id"].to_pylist(), methods)
        fields.texts("answer", rows["answer"], _true(rows["answer"].is_valid()))
        retrieving = np.flatnonzero(_true(rows["retrieves"])).tolist()
        fields.values("contexts", chunks.lengths.take(pa.array(retrieving, pa.int64())).to_pylist(), "list", retrieving)
        texts, having = chunks.column("text"), np.flatnonzero(chunks.counts).tolist()
        fields.texts("contexts[].text", texts.filter(pc.not_equal(texts, "")), np.ones(len(having), np.bool_), having)
        for name, kind, none in (("score", "number", None), ("doc_type", "label", ""), ("policy", "label", "summarize")):
            values = chunks.column(name)
            given = pc.is_valid(values) if none is None else pc.not_equal(values, none)
            having = np.unique(chunks.cases[_true(given)]).tolist()
            if having:
                fields.add(f"contexts[].{name}", kind, values.filter(given).to_pylist(), np.ones(len(having), np.bool_), having)
        for name in ("citations", "selected_folders"):
            fields.values(name, _lengths(rows[name]), "list")
        for name in ("version", "abstained", "folder_mode", "error"):
            fields.values(name, rows[name].to_pylist())
        timings, recorded = dict(_objects(rows["timings"])), dict(_objects(rows["recorded"]))
        for part, objects in (("timings", timings.items()), ("usage", _objects(rows["usage"])), ("recorded", recorded.items())):
            each = ((row, f"{part}.{name}", value) for row, found in objects for name, value in found.items())
            fields.parts((row, *named) for row, name, value in each for named in _verdicts(name, value))
        for found in recorded.values():
            self._further_facts.update(("recorded", *map(recorded_name, found)))
        self._methods.add(rows, chunks)
        self._values.add_outputs(rows, chunks, timings, recorded)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(self._ids)

    @property
    def facts(self) -> DataFacts:
        """Which labels and parts of outputs there are."""
        fields = self.sample_fields() | self.output_fields()
        facts = DataFacts([*fields, *self._further_facts])
        if (texts := fields.get("references[]")) and texts.n_values > texts.blank:
            facts.fields.add("reference")
        if "answerable" in fields and fields["answerable"].labels[False]:
            facts.fields.add(UNANSWERABLE)
        return facts

    def findings(self) -> list[Finding]:
        """What looks wrong, and what is good to know before methods are compared: warnings first."""
        found = [*self._questions.findings(), *self._methods.findings(self._ids), *self._values.findings()]
        return sorted(found, key=lambda finding: not finding.is_warning)

    def sample_fields(self) -> dict[str, Distribution]:
        """The distributions of the samples' fields that some sample has, by name."""
        return {name: found for name, found in self._of_samples.found.items() if found.n_values}

    def output_fields(self) -> dict[str, Distribution]:
        """The distributions of the outputs' fields that some output has, by name."""
        return {name: found for name, found in self._of_outputs.found.items() if found.n_values}

    def document(self) -> dict[str, Any]:
        cases = sum(self.cases.values())
        return {
            "samples": self.samples,
            "cases": dict(self.cases),
            "findings": [finding.document() for finding in self.findings()],
            "fields_of_samples": {name: found.document(self.samples) for name, found in self.sample_fields().items()},
            "fields_of_outputs": {name: found.document(cases) for name, found in self.output_fields().items()},
            "fields_left_out": sorted(self._of_samples.left_out | self._of_outputs.left_out),
        }


class _Fields:
    """The distributions of the fields of samples, or of outputs, filled block by block. A field has values in some rows of a block."""

    def __init__(self) -> None:
        self.found: dict[str, Distribution] = {}
        self.left_out: set[str] = set()

    def start(self, ids: Sequence[str], methods: Sequence[str] = ()) -> None:
        """The next block: the samples of its rows, and their methods."""
        self._ids, self._methods = ids, methods

    def values(self, name: str, values: Sequence[Any], kind: str = "", rows: Sequence[int] | None = None) -> None:
        """A field with one value in each of `rows`, None where it is absent. Its kind is that of the first one, unless it is given: of
        lists and objects the entries are counted."""
        given = [value for value in values if value is not None]
        if given and not kind:
            given = [len(value) if isinstance(value, list | Mapping) else value for value in given]
            first = type(next(value for value in values if value is not None))
            kind = "list" if issubclass(first, list | Mapping) else "number" if first in (int, float) else "label"
        self.add(name, kind, given, np.array([value is not None for value in values], np.bool_), rows)

    def texts(self, name: str, texts: pa.Array, present: Flags, rows: Sequence[int] | None = None) -> None:
        """A field with texts, in the rows as `add` has them."""
        self.add(name, "text", pc.utf8_length(texts.drop_null()).to_pylist(), present, rows)
        if name in self.found:
            self.found[name].blank += int(np.count_nonzero(_blank(texts)))

    def parts(self, parts: Iterable[tuple[int, str, Any]]) -> None:
        """Fields of objects: of each row the names and values that it has."""
        by_name: defaultdict[str, dict[int, Any]] = defaultdict(dict)
        for row, name, value in parts:
            by_name[name][row] = value
        for name, values in by_name.items():
            self.values(name, list(values.values()), "", list(values))

    def add(self, name: str, kind: str, values: list[Any], present: Flags, rows: Sequence[int] | None = None) -> None:
        """The values of those of `rows` (None: of all rows) that are `present`: one of each, or several. Of texts the lengths."""
        found = self.found.get(name)
        if found is None:
            if len(self.found) >= MOST_FIELDS:
                if len(self.left_out) < MOST_FIELDS:
                    self.left_out.add(name)
                return
            found = self.found[name] = Distribution()
        ids = self._ids if rows is None else [self._ids[row] for row in rows]
        if not found.first_absent:
            found.first_absent = next((where for where, is_present in zip(ids, present, strict=True) if not is_present), "")
        found.kind = found.kind or kind
        found.present += int(np.count_nonzero(present))
        if self._methods:
            methods = self._methods if rows is None else [self._methods[row] for row in rows]
            found.by_method.update(compress(methods, present))
        found.add(values)


def _lengths(column: pa.Array) -> list[int | None]:
    """The entries of each list, or of each JSON list or object; None where there is none."""
    if pa.types.is_list(column.type):
        return pc.list_value_length(column).to_pylist()  # type: ignore[no-any-return]
    return [None if text is None else len(from_json(text)) for text in column.to_pylist()]


def _objects(column: pa.Array) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a column that are not empty, each with its row."""
    for row, text in enumerate(column.to_pylist()):
        if text and text != "{}":
            yield row, from_json(text)


def _verdicts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Recorded values, each under its own name; a verdict that cannot be read as a label."""
    if isinstance(value, Mapping) and set(value) != {"unreadable"}:
        for part, verdict in value.items():
            yield from _verdicts(f"{name}.{part}", verdict)
    else:
        yield (f"{name} (unreadable)", True) if isinstance(value, Mapping) else (name, value)


def _true(flags: pa.Array) -> Flags:
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), np.bool_)


def _blank(texts: pa.Array) -> Flags:
    """The texts that are empty, or blanks alone."""
    return _true(pc.or_(pc.equal(texts, ""), pc.utf8_is_space(texts)))


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
        self.text: Any = ""

    def add(self, text: str | bytes, number: int) -> None:
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


class MethodChecks:
    """Counts over outputs by method. Holds a hash for each different answer and list of contexts, a number for each question."""

    def __init__(self) -> None:
        self._methods: dict[str, _Method] = {}

    def add(self, rows: pa.RecordBatch, chunks: RetrievedChunks) -> None:
        """Take outputs into account, with their chunks. Their questions are rows of the samples."""
        names = pc.if_else(pa.array(_true(pc.not_equal(chunks.column("text"), ""))), chunks.column("text"), chunks.column("id"))
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(chunks.counts)), pa.int32()), names.cast(pa.binary()))
        contexts = pc.binary_join(lists, b"\n").to_pylist()
        codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        different = np.unique(chunks.cases * max(len(names), 1) + codes) // max(len(names), 1)
        repeats = np.bincount(different, minlength=len(rows)) < chunks.counts
        cells = (rows[name].to_pylist() for name in ("method", "sample_row", "error", "answer"))
        for name, number, error, answer, joined, is_repeating in zip(*cells, contexts, repeats.tolist(), strict=True):
            method = self._methods.setdefault(name, _Method())
            method.asked.add(number)
            if error is not None:
                continue
            if answer and (text := " ".join(answer.split())):
                method.answers.add(text, number)
            if is_repeating:
                method.repeating = [method.repeating[0] + 1, method.repeating[1] if method.repeating[0] else number]
            if joined:
                method.contexts.add(joined, number)

    def findings(self, ids: Sequence[str]) -> list[Finding]:
        """What the methods so far lack or repeat. `ids` are those of all samples, by number."""
        found = _differing(self._methods, ids)
        for name, method in self._methods.items():
            count, first, _ = method.answers.most
            if _is_too_often(method.answers.text, count, len(method.asked)):
                text = f"method {name}: {count:,} of {len(method.asked):,} questions have the same answer, {method.answers.text[:60]!r}"
                fix = "is `answer` mapped to the right field?"
                found.append(Finding("same_answers", text, count, ids[first], fix))
            count, first, _ = method.contexts.most
            if count >= max(FEWEST, MOST * len(method.asked)):
                text = f"method {name}: {count:,} of {len(method.asked):,} questions have the same contexts"
                fix = "are `contexts` mapped to what was retrieved for each question?"
                found.append(Finding("same_contexts", text, count, ids[first], fix))
            count, first = method.repeating
            if count >= max(FEWEST, MANY * len(method.asked)):
                text = f"method {name}: {count:,} outputs have a retrieved chunk twice, first {ids[first]!r}"
                fix = "drop duplicates after retrieval: a chunk that comes again only takes a place"
                found.append(Finding("repeated_chunks", text, count, ids[first], fix))
        return found


def _differing(methods: Mapping[str, _Method], ids: Sequence[str]) -> list[Finding]:
    """Methods that do not have outputs for the same questions, as one finding; none where each has all."""
    lacking = {name: method for name, method in methods.items() if len(method.asked) < len(ids)}
    if not lacking:
        return []
    name, method = next(iter(lacking.items()))
    where = next(name for number, name in enumerate(ids) if number not in method.asked)
    shared = len(set.intersection(*(m.asked for m in methods.values())))
    counts = ", ".join(f"{name} {len(method.asked):,}" for name, method in list(lacking.items())[:SHOWN])
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

    def add(self, ids: Sequence[str], questions: Sequence[str], histories: Sequence[str]) -> None:
        """Compare samples with those before them. A history is JSON."""
        for name, question, history in zip(ids, questions, histories, strict=True):
            if (first := self._ids.setdefault(hash(_plain(name)), name)) != name:
                self._alike.append((first, name))
            if (first := self._texts.setdefault(hash((_plain(question), history)), name)) != name:
                self._repeated.append((first, name))

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

    def add(self, where: Sequence[str], sizes: Iterable[float] = ()) -> None:
        self.n += len(where)
        self.first = self.first or where[0] if where else self.first
        self.most = max(self.most, *sizes, 0.0)


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
        self._contexts = 0

    def add_samples(self, rows: pa.RecordBatch) -> None:
        """Take the questions and the references of samples into account."""
        self._measure("question", rows["question"], rows["id"])
        blank = pc.list_parent_indices(rows["references"]).filter(pa.array(_blank(rows["references"].flatten())))
        self._blank_references.add(rows["id"].take(pc.unique(blank)).to_pylist())

    def add_outputs(self, rows: pa.RecordBatch, chunks: RetrievedChunks, timings: Objects, recorded: Objects) -> None:
        """Take the texts, timings and recorded verdicts of outputs into account, both by row."""
        samples, texts = rows["sample_id"], chunks.column("text")
        of_chunks = samples.take(pa.array(chunks.cases))
        self._measure("answer", rows["answer"], samples)
        self._measure("context", texts, of_chunks)
        self._blank_contexts.add(of_chunks.filter(pa.array(_blank(texts))).to_pylist())
        self._contexts += len(texts)
        for row, times in timings.items() if not self._times_known else ():
            if "total" in times and rows["answer"][row].as_py():
                totals, _ = self._totals.setdefault(rows["method"][row].as_py(), (array("d"), samples[row].as_py()))
                totals.append(times["total"])
        for name, spec in self._scales.items():
            for row, values in recorded.items():
                self._compare(name, spec, values, samples[row])

    def _measure(self, kind: str, texts: pa.Array, where: pa.Array) -> None:
        lengths = pc.utf8_length(texts)
        is_long = pc.greater(lengths, LONGEST[kind])
        if pc.any(is_long).as_py():
            self._long.setdefault(kind, _Count()).add(where.filter(is_long).to_pylist(), lengths.filter(is_long).to_pylist())

    def _compare(self, name: str, spec: RecordedScore, recorded: Mapping[str, Any], where: pa.Scalar) -> None:
        """Count the case where one of the verdicts behind a recorded score is a number outside its scale."""
        value = recorded_value(recorded, spec.source or name)
        verdicts = several(value)
        for verdict in (value,) if verdicts is None else verdicts.values():
            if isinstance(verdict, int | float) and spec.off_scale(float(verdict)):
                self._off_scale.setdefault(name, _Count()).add([where.as_py()])
                return

    def findings(self) -> list[Finding]:
        """What the values so far have that cannot be meant."""
        found = []
        for name, seen in self._off_scale.items():
            spec = self._scales[name]
            text = f"recorded score {name}: {_many(seen.n, 'case is', 'cases are')} outside its scale {spec.low:g} to {spec.high:g}, first {seen.first!r}"
            fix = f"set metrics.recorded.take.{name}.low and .high to the scale of the data"
            found.append(Finding("off_scale", text, seen.n, seen.first, fix))
        for method, (totals, first) in self._totals.items():
            if (middle := median(totals)) < SECONDS:
                text = f"method {method}: the median of timings.total is {middle:.3g} milliseconds"
                fix = "if these are seconds, map them as {path: ..., unit: s}"
                found.append(Finding("seconds", text, len(totals), first, fix))
        if count := self._blank_references.n:
            first = self._blank_references.first
            text = f"{count:,} sample{'s have' if count > 1 else ' has'} a blank reference, first {first!r}"
            found.append(Finding("blank_references", text, count, first, "it is left out: remove it, or map what is meant"))
        if (
            count := self._blank_contexts.n
        ) and count < self._contexts:  # where all lack a text they are ids alone, and no fault
            first = self._blank_contexts.first
            text = f"{count:,} of {self._contexts:,} contexts have no text, first in {first!r}"
            fix = "a judge sees nothing in them: join their texts by id, or map the field that holds them"
            found.append(Finding("blank_contexts", text, count, first, fix))
        for kind, counted in self._long.items():
            long = f"{_many(counted.n, kind, f'{kind}s')} of more than {LONGEST[kind]:,} characters"
            text = f"{long}, the longest {counted.most:,.0f}, first in {counted.first!r}"
            fix = "is a whole document mapped? Questions to the judge may be too long for its context window"
            found.append(Finding(f"long_{kind}s", text, counted.n, counted.first, fix))
        return found


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

    def add(self, values: Sequence[Any]) -> None:
        """The values of some cases: of a text its length, of a list the number of its entries, of anything else itself."""
        self.n_values += len(values)
        numbers, labels = values, values if self.kind in ("label", "number") else ()
        if not {str, bool}.isdisjoint(map(type, values)):  # a field may be a number here and a text there
            numbers = [value for value in values if not isinstance(value, str | bool)]
            labels = labels or [value for value in values if isinstance(value, str | bool)]
            labels = [label[:LABEL_LENGTH] if isinstance(label, str) else label for label in labels]
        if numbers and self.kind != "label":
            self.low, self.high = min(self.low, *numbers), max(self.high, *numbers)  # an integer stays one
            self.numbers.extend(numbers)
        for label, count in Counter(labels).items():
            if label in self.labels or len(self.labels) < DIFFERENT:
                self.labels[label] += count
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
