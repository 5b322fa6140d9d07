"""A data set as the rest of ragpipe sees it: an iterable of records, and the hash of what it was read from.

And `dataset.sample`: every sample has a place between 0 and 1 by the hash of seed and id. `n` takes the n lowest places, `rate` those
below it, `per_day` of each day at most so many, the lowest first. So a line more or less changes nothing for most of the others.
"""

from __future__ import annotations

import datetime
import heapq
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ragpipe.core.digest import DIGEST_BYTES, canonical_json, name_digest, sha256, sha256_file
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Output, Sample
from ragpipe.data import csv_rows, file_formats, native_form
from ragpipe.data.csv_rows import INDEX_COLUMN
from ragpipe.data.expressions import WHOLE, BadExpression, Expression
from ragpipe.data.faults import Faults, named_fields, shown_value
from ragpipe.data.file_locator import Files, locate
from ragpipe.data.recognition import PRINTED, JoinedPassages, foreign_shape
from ragpipe.data.record_mapping import Index, RecordMapping, Row, records, unread_names
from ragpipe.data.settings import MAX_GROUPED, DatasetSettings, FieldMap, Group, SampleOf
from ragpipe.store.places import DEFAULT_CACHE

NO_VALUE = frozenset(
    ["NaN", "nan", "-nan", "-NaN", "None", "null", "NULL", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaT"]
)
"""What pandas, Excel and databases write for no value; a cell of CSV that holds nothing else is missing."""
_FIRST = 50  # records, to see which names are not read


@dataclass(frozen=True, slots=True)
class Record:
    """One sample with one output (None in a data set of questions). `where` is its file and line or row."""

    sample: Sample
    output: Output | None
    where: str


class FlatRecord(NamedTuple):
    """A record as it was mapped, not yet checked: its position among all records, its place as messages name it, the fields of the
    sample, and those of each output."""

    position: int
    where: str
    fields: dict[str, Any]
    outputs: list[dict[str, Any]]


class FieldShown(NamedTuple):
    """A field of the first record: what it is, the expression it comes from, its value."""

    field: str
    source: str
    value: Any


def open_dataset(settings: DatasetSettings, base: Path, cache: Path = DEFAULT_CACHE) -> Dataset:
    """Find and check the data set's files; relative paths start at `base`, and files of object stores are copied below `cache`.
    Raises DataError; no record is read yet.

    Where the settings name the hash of the content, the files are hashed, and any other content is refused.
    """
    dataset = Dataset(settings, locate(settings, base, cache))
    if settings.sha256 is not None and settings.sha256 not in dataset.hashes:
        found = f"content with the hash {dataset.hashes[0]}"
        fix = "use the file that was frozen, or take its new hash over if it was meant to change"
        problem = Problem(settings.path, "dataset.sha256", found, settings.sha256, fix)
        raise DataError(f"data set {settings.name!r} is not the one that the configuration names", [problem])
    return dataset


class Dataset:
    """Records in data order, streaming, as often as wanted; ids are kept in memory, texts are not (joined files are).

    Iterating raises one DataError with all faults of the files, after the last good record before the first fault has
    been given: whoever must not act on half a data set reads it to the end first.
    """

    def __init__(self, settings: DatasetSettings, files: Files):
        self.name = settings.name
        self._settings = settings
        self._files = files
        self._filter = Expression(settings.filter) if settings.filter else None
        self._state = files.state()
        self._missing: Counter[str] = Counter()
        self._passages = JoinedPassages()
        self._lacks: Counter[str] = Counter()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """The hashes by which the content may be named: the sha256 of its file where it is one, and `digest`."""
        is_one_file = len(self._files.main) == 1 and not self._files.joined
        return (*([sha256_file(self._files.main[0].path)] if is_one_file else []), self.digest)

    def sources(self) -> list[dict[str, str]]:
        """Every file that is read, by the name that the user gave, with its sha256. Joined files come last."""
        hashes = {file.display_path: sha256_file(file.path) for file in self._files.all()}
        return [{"path": path, "sha256": digest} for path, digest in hashes.items()]

    @cached_property
    def digest(self) -> str:
        """sha256 over the contents of every file that is read, not over their places. One pass over the bytes."""
        named = len(self._files.main) > 1 or "_file" in str(self._settings.identity())
        parts = [("main", file.name if named else "", sha256_file(file.path)) for file in self._files.main]
        for join, files in self._files.joined.items():
            parts += [(join, file.name if len(files) > 1 else "", sha256_file(file.path)) for file in files]
        self._unchanged()
        return sha256([list(part) for part in parts])

    def __iter__(self) -> Iterator[Record]:
        faults = Faults(f"data set {self.name!r}: {self._files.display_path} cannot be used", self._foreign_shape)
        chosen, kept, yielded = self._chosen, dict[str, None](), 0
        passages, lacks = JoinedPassages(), Counter[str]()
        for record in self.checked_records(faults):
            sample_id = record.sample.id
            if faults or (chosen is not None and sample_id not in chosen):
                continue
            if self._settings.limit is not None and sample_id not in kept:
                if len(kept) >= self._settings.limit:
                    continue
                kept[sample_id] = None
            yielded += 1
            if isinstance(lack := record.sample.meta.get("lacks"), str):
                lacks[lack] += 1
            passages.add_case([chunk.text for chunk in (record.output.chunks if record.output else None) or ()])
            yield record
        self.check_whole_reading(faults)
        self._passages, self._lacks = passages, lacks
        if not faults and not yielded:
            path = self._files.display_path
            actual = f"no record that `{self._settings.filter}` lets through" if self._filter else "no records"
            faults.add(path, "records", actual, "at least one record", f"no records in {path}")
        faults.raise_all()

    def check_whole_reading(self, faults: Faults) -> None:
        """After the last record: faults that only a whole reading shows, such as a join that matched nothing.

        Raises DataError where a file changed meanwhile.
        """
        self._unchanged()
        for index in self._indexes.values():
            index.check(faults)
        if not faults and self._mapping:
            self._mapping.check(self._files.display_path, faults)

    def remarks(self) -> list[str]:
        """What the last whole reading took for no value, what traces lack, and contexts that look like several in one text: a sentence
        for each."""
        lines = []
        if self._missing:
            names = ", ".join(f"{name} ({count:,})" for name, count in self._missing.items())
            lines = [f"cells that hold only a word for no value (NaN, None, null, N/A) are read as missing: {names}"]
        lines += [f"in {count:,} trace{'s' * (count > 1)} {lack}" for lack, count in self._lacks.most_common(3)]
        sign = self._passages.separator()
        if sign is not None:
            spec = self._settings.fields.get("contexts") or self._settings.fields.get("chunks")
            text = (_source(spec) if spec else "") or "contexts[0]"
            what, cure = sign.label, f"fields: {{contexts: parse({text})}}"
            if sign.label != PRINTED:
                what, split = f"`{sign.label}`", f"{{text: {text}, pattern: '{sign.pattern}'}}"
                cure = f"split: {{passages: {split}}} and fields: {{contexts: passages}}"
            lines.append(
                f"{what} stands in {sign.count:,} of {sign.texts:,} contexts, each the only one of its case: where it separates "
                f"passages, they are read as one; in the mapping of the data set {cure} reads each"
            )
        return lines

    def unread(self) -> list[str]:
        """The names in the first records that the mapping does not read. The native form has no others than those it reads, but for a
        column without a name."""
        inside = Expression(self._settings.records) if self._settings.records else None
        first = [record for _, _, record in islice(records(self._files.main, inside, Faults("")), _FIRST)]
        if self._mapping is None:
            return [name for name in dict.fromkeys(name for record in first for name in record) if name == INDEX_COLUMN]
        if self._settings.group is not None or self._settings.format == "spans":
            return []  # the names are made by the reader
        return unread_names(first, self._settings)

    def first(self) -> tuple[FieldShown, ...]:
        """The first record as it was mapped, field by field. Raises DataError when the data set cannot be used."""
        record = next(iter(self))
        sources = self._mapping.sources if self._mapping else {}
        rows = []
        for noun in filter(None, (record.sample, record.output)):
            for name in type(noun).model_fields:
                if name in noun.model_fields_set and name != "sample_id":
                    short = {"references": "reference", "chunks": "contexts"}.get(name, name)
                    source = sources.get(name) or sources.get(short) or name
                    if name == "id" and is_hashed(record.sample):
                        source = "hash of the content"
                    rows += _apart(name, source, getattr(noun, name), sources)
        return tuple(rows)

    @cached_property
    def _indexes(self) -> dict[str, Index]:
        faults = Faults(f"data set {self.name!r}: a joined file cannot be used")
        joins = self._settings.join
        indexes = {name: Index(name, join, self._files.joined[name], faults) for name, join in joins.items()}
        faults.raise_all()
        return indexes

    @cached_property
    def _mapping(self) -> RecordMapping | None:
        return RecordMapping(self._settings, self._indexes) if self._settings.fields else None

    @cached_property
    def _chosen(self) -> frozenset[str] | None:
        """Ids of the seeded sample; it does not depend on the order of the records."""
        selection = self._settings.sample
        if selection is None:
            return None
        faults = Faults(f"data set {self.name!r}: {self._files.display_path} cannot be used", self._foreign_shape)
        samples = ((record.sample, record.where) for record in self.checked_records(faults))
        chosen = drawn_ids(selection, samples, faults)
        faults.raise_all()
        return chosen

    def _foreign_shape(self) -> str:
        """Which option would read the file of a data set in the native form, where it looks like another tool's."""
        main = self._files.main
        return foreign_shape(main[0].path, self._files.display_path) if main and self._mapping is None else ""

    def _unchanged(self) -> None:
        if path := self.touched():
            raise DataError(f"data set {self.name!r}: {path} changed while it was being used; start again")

    def touched(self) -> str | None:
        """The first file that was written, replaced or deleted since this was opened; None where none was."""
        now = self._files.state()
        return next((path for path, state in self._state.items() if now[path] != state), None)

    def checked_records(self, faults: Faults) -> Iterator[Record]:
        """Every record that the filter lets through, before a choice is made. What is wrong with others is added to the faults."""
        seen = SeenCases(faults)
        for record in self.flat_records(faults):
            where, fields, sample = record.where, record.fields, None
            flat: dict[str, Any] | None
            for flat in record.outputs or (None,):  # None: a question alone
                if not self.passes({**fields, **(flat or {})}, where, faults):
                    continue
                if sample is None and (sample := native_form.sample_of(fields, where, faults)) is None:
                    break
                order = self._settings.chunk_text
                output = None if flat is None else native_form.output_of(flat, sample.id, order, where, faults)
                if (output or flat is None) and seen.fits(sample, output, where):
                    yield Record(sample, output, where)

    def passes(self, fields: dict[str, Any], where: str, faults: Faults) -> bool:
        """Whether the filter lets the fields of a case through. One that it cannot be applied to is a fault, and does not pass."""
        if self._filter is None:
            return True
        try:
            return bool(self._filter(native_form.as_filtered(fields, self._settings.chunk_text)))
        except BadExpression as error:
            faults.add(where, f"filter ({self._filter.text})", str(error), "a predicate on the mapped record")
            return False

    def flat_records(self, faults: Faults, wanted: Container[int] | None = None) -> Iterator[FlatRecord]:
        """Every record as it was mapped, before its fields are checked, the filter applied or a choice made.

        With `wanted`, only the records at these positions (from 1, among all records of the data set): the others are read and
        not mapped. Raises DataError where a file changed since the data set was opened.
        """
        self._unchanged()
        inside = Expression(self._settings.records) if self._settings.records else None
        mapping = self._mapping
        rows = self._without_words(records(self._files.main, inside, faults))
        if self._settings.group is not None:
            rows = rows_by_key(rows, self._settings.group, faults)
        for index, (file, position, record) in enumerate(rows, 1):
            if wanted is not None and index not in wanted:
                continue
            where = file_formats.place(file, position)
            if mapping is None:
                plain = csv_rows.parse_cell(record, where, faults) if file.format == "csv" else record
                if plain is not None and (parts := native_form.split_record(plain, where, faults)):
                    yield FlatRecord(index, where, *parts)
                continue
            for fields, answered, bad in mapping.cases(record, file.name, position, index):
                for fault in bad:
                    faults.add(named_fields(where, fields), fault.key, fault.actual, fault.expected, fault.fix)
                if not bad and (parts := native_form.split_record(fields, where, faults)):
                    yield FlatRecord(index, where, parts[0], parts[1] if answered else [])

    def _without_words(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows with null for each cell of CSV that holds nothing but a word for no value. A system does answer `None` and `N/A`."""
        spec = self._settings.fields.get("answer")
        answers = Expression(spec.path).roots if spec and spec.path else {"answer"}
        missing: Counter[str] = Counter()
        for file, position, record in rows:
            if file.format == "csv":
                for name, cell in record.items():
                    if cell in NO_VALUE and not (name in answers and cell in ("None", "N/A")):
                        record[name] = None
                        missing[name] += 1
            yield file, position, record
        self._missing = missing


def _source(spec: FieldMap) -> str:
    """The name of the record that a mapped text comes from."""
    path = spec.path or spec.each or ""
    return next(iter(sorted(Expression(path).roots - {WHOLE})), path) if path else ""


def _apart(name: str, source: str, value: Any, sources: Mapping[str, str]) -> list[FieldShown]:
    """A field as it is shown: `recorded` value by value, where the mapping says where each comes from."""
    parts = {part: sources.get(f"{name}.{part}") for part in value} if name == "recorded" else {}
    apart = [FieldShown(f"{name}.{part}", path, value[part]) for part, path in parts.items() if path is not None]
    return apart or [FieldShown(name, source, value)]


def rows_by_key(rows: Iterator[Row], group: Group, faults: Faults) -> Iterator[Row]:
    """One record per key, at the place of its first row, in the order of the first rows.

    A row without a key and more than MAX_GROUPED rows are faults.
    """
    groups: dict[str, list[Row]] = {}
    for count, (key, row) in enumerate(_keyed(rows, group, faults), 1):
        if count > MAX_GROUPED:
            fix = "divide the file, or give its rows to an evaluation as records of their own"
            faults.add(file_formats.place(row[0], row[1]), "group", f"row {count}", f"at most {MAX_GROUPED} rows", fix)
            return
        groups.setdefault(key, []).append(row)
    for of_key in groups.values():
        file, position, first = of_key[0]
        yield file, position, {**first, group.into: [record for _, _, record in of_key]}


def _keyed(rows: Iterator[Row], group: Group, faults: Faults) -> Iterator[tuple[str, Row]]:
    paths = [Expression(path) for path in group.by]
    for file, position, record in rows:
        where = file_formats.place(file, position)
        key = []
        for path in paths:
            try:
                value = path(record)
            except BadExpression as error:
                faults.add(where, f"group.by ({path.text})", str(error), "a value")
                break
            if value is None:
                faults.add(where, f"group.by ({path.text})", "null", "a value; rows without one belong to no record")
                break
            key.append(value)
        else:
            if group.into in record:
                fix = "choose another name by group.as"
                faults.add(where, "group.as", f"a name of the row: {group.into!r}", "a name that no row has", fix)
            yield canonical_json(key), (file, position, record)


class SeenCases:
    """The cases and samples so far: digests of their names and contents, and where they stand. Most samples have one case, so what is
    known of that stands with the sample, in one piece of memory."""

    def __init__(self, faults: Faults):
        self._faults = faults
        self._samples: dict[bytes, bytes] = {}  # by the name: content, name of the first case, its place
        self._others: dict[bytes, str] = {}  # further cases of these samples: their places
        self._last: Sample | None = None

    def fits(self, sample: Sample, output: Output | None, where: str) -> bool:
        """False (and a fault) for a second case of the same name, or a sample id with another content."""
        name = name_digest(sample.id)
        case = name_digest(sample.id, output.method, str(output.repeat)) if output else name
        known = self._samples.get(name)
        if known is None:
            self._last = sample
            self._samples[name] = content_digest(sample) + case + where.encode("utf-8", "surrogatepass")
            return True
        content, first = known[:DIGEST_BYTES], known[DIGEST_BYTES : 2 * DIGEST_BYTES]
        place = known[2 * DIGEST_BYTES :].decode("utf-8", "surrogatepass")
        stands_at = place if case == first else self._others.get(case)
        if stands_at is not None:  # it may be the same place: one record with two outputs of a method
            text, fix = f"id {sample.id!r}", "give each question its own id"
            if output:
                text += f", method {output.method!r}" + (f", repeat {output.repeat}" if output.repeat != 1 else "")
                repeat = "give each output its own method, or number those of one method by `repeat: 1, 2, ...`"
                fix = repeat if content == content_digest(sample) else f"{fix}: these two ask different things"
            self._faults.add(where, "id", f"{text} a second time", f"once; it stands at {stands_at}", fix + _or_an_id(sample))
            return False
        self._others[case] = where
        if sample is self._last:
            return True
        self._last = sample
        if content != content_digest(sample):
            fix = "give the sample another id, or the same question, references and labels everywhere"
            what = f"id {sample.id!r} with another sample content"
            self._faults.add(where, "id", what, f"the one of {place}", fix + _or_an_id(sample))
            return False
        return True


def content_digest(sample: Sample) -> bytes:
    """The digest of all fields of a sample. The order of names in `gains` and `meta` does not count."""
    if sample.gains or sample.meta:
        content = canonical_json(sample.model_dump(mode="json", exclude_defaults=True))
    else:  # no object with names of the user's: the fields have one order
        content = sample.model_dump_json(exclude_defaults=True)
    return blake2b(content.encode(), digest_size=DIGEST_BYTES).digest()


def is_hashed(sample: Sample) -> bool:
    """Whether the id of a sample is the hash of its content."""
    return sample.id == native_form.content_id(sample.model_dump(include={"question", "history", "references"}))


def _or_an_id(sample: Sample) -> str:
    return "; or give the records an id: without one it is the hash of what they ask" if is_hashed(sample) else ""


_EPOCH_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
"""(limit, ticks per second): a number below the first limit that fits counts seconds since 1970 (to the year 5138), then ms, µs, ns."""


def place_by_hash(seed: int | None, name: str) -> float:
    """The place of a name, from 0 to below 1: the first 53 bits of the sha256 of seed and name."""
    return int(sha256(f"{seed}:{name}")[:14], 16) // 8 / 2**53


def drawn_ids(selection: SampleOf, samples: Iterable[tuple[Sample, str]], faults: Faults) -> frozenset[str]:
    """The ids of the samples that are taken, from the samples with their places in the data; each comes with all its outputs.

    With `per_day` a sample without a time, or with one that cannot be read, is a fault: it belongs to no day.
    """
    if selection.n is not None:
        ids = {sample.id for sample, _ in samples}
        return frozenset(heapq.nsmallest(selection.n, ids, key=lambda name: sha256(f"{selection.seed}:{name}")))
    rate = 1.0 if selection.rate is None else selection.rate
    time = Expression(selection.time) if selection.time is not None else None
    days: dict[datetime.date | None, dict[str, float]] = defaultdict(dict)
    for sample, where in samples:
        day = _day_of(sample, where, time, faults) if time is not None else None
        if (place := place_by_hash(selection.seed, sample.id)) < rate:
            days[day][sample.id] = place
    drawn: set[str] = set()
    for places in days.values():
        budget = len(places) if selection.per_day is None else selection.per_day
        drawn.update(heapq.nsmallest(budget, places, key=lambda name: (places[name], name)))
    return frozenset(drawn)


def calendar_day(value: Any) -> datetime.date:
    """The day of a time: an ISO 8601 text, or a number of seconds, ms, µs or ns since 1970 (told apart by its size).

    A time with an offset, and a number, counts by the day in UTC; a time without one by the day that is written.
    Raises ValueError for anything else.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.isdigit() and len(text) > 8:  # eight digits are an ISO date
            return calendar_day(int(text))
        moment = datetime.datetime.fromisoformat(text)
        return (moment.astimezone(datetime.UTC) if moment.tzinfo else moment).date()
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        for limit, per_second in _EPOCH_UNITS:
            if value < limit:
                return datetime.datetime.fromtimestamp(value / per_second, datetime.UTC).date()
    raise ValueError("no time")


def _day_of(sample: Sample, where: str, time: Expression, faults: Faults) -> datetime.date | None:
    """The day of a sample; None, and a fault, without one."""
    expected = "an ISO 8601 time, or seconds, ms, µs or ns since 1970"
    place, key = named_fields(where, {"id": sample.id}), f"sample.time ({time.text})"
    try:
        value = time(sample.model_dump(mode="json"))
    except BadExpression as error:
        faults.add(place, key, str(error), expected)
        return None
    try:
        return calendar_day(value)
    except (ValueError, OverflowError, OSError):
        fix = (
            "name where it stands (dataset.sample.time=meta.asked_at), take all of the file (dataset.sample=null), or leave such "
            f'records out (dataset.filter="{time.text}")'
        )
        faults.add(place, key, shown_value(value), expected, fix if value is None else "")
        return None
