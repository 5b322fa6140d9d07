"""A data set as the rest of ragpipe sees it: an iterable of records, and the hash of what it was read from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError, Problem
from ragpipe.datasets import csv_cells, file_formats, native_form
from ragpipe.datasets.csv_rows import INDEX_COLUMN
from ragpipe.datasets.fault_list import Faults, named_fields
from ragpipe.datasets.file_locator import Files, locate
from ragpipe.datasets.joined_passages import PRINTED, JoinedPassages
from ragpipe.datasets.joins import Index, records
from ragpipe.datasets.mapping_settings import FieldMap
from ragpipe.datasets.path_expressions import BadExpression, Expression
from ragpipe.datasets.record_mapping import RecordMapping
from ragpipe.datasets.row_groups import rows_by_key
from ragpipe.datasets.sample_draw import drawn_ids
from ragpipe.datasets.seen_cases import SeenCases, is_hashed
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.datasets.text_lines import DataFile
from ragpipe.datasets.unread_names import unread_names
from ragpipe.schema.sample import Output, Sample
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


@dataclass(frozen=True, slots=True)
class First:
    """The first record field by field, as `task=plan` shows it."""

    where: str
    fields: tuple[FieldShown, ...]


def open_dataset(settings: DatasetSettings, base: Path, cache: Path = DEFAULT_CACHE) -> Dataset:
    """Find and check the data set's files; relative paths start at `base`, and files of object stores are copied below `cache`.
    Raises DataError; no record is read yet.

    Where the settings name the hash of the content, the files are hashed, and any other content is refused.
    """
    dataset = Dataset(settings, locate(settings, base, cache))
    if settings.sha256 is not None and settings.sha256 not in dataset.hashes:
        problem = Problem(
            settings.path,
            "dataset.sha256",
            f"content with the hash {dataset.hashes[0]}",
            settings.sha256,
            "use the file that was frozen, or take its new hash over if it was meant to change",
        )
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
        files = (*self._files.main, *(file for joined in self._files.joined.values() for file in joined))
        hashes = {file.display_path: sha256_file(file.path) for file in files}
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
            actual = f"no record that `{self._settings.filter}` lets through" if self._filter else "no records"
            faults.add(
                self._files.display_path,
                "records",
                actual,
                "at least one record",
                f"no records in {self._files.display_path}",
            )
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
            path = next(
                (_source(spec) for name in ("contexts", "chunks") if (spec := self._settings.fields.get(name))), ""
            )
            text = path or "contexts[0]"
            split = (
                f"split: {{passages: {{text: {text}, pattern: '{sign.pattern}'}}}} and fields: {{contexts: passages}}"
            )
            cure = f"fields: {{contexts: parse({text})}}" if sign.label == PRINTED else split
            what = sign.label if sign.label == PRINTED else f"`{sign.label}`"
            lines.append(
                f"{what} stands in {sign.count:,} of {sign.texts:,} contexts, each the only one of its case: where it separates "
                f"passages, they are read as one; in the mapping of the data set {cure} reads each"
            )
        return lines

    def unread(self) -> list[str]:
        """The names in the first records that the mapping does not read. The native form has no others than those it reads, but for a
        column without a name."""
        rows = records(
            self._files.main, Expression(self._settings.records) if self._settings.records else None, Faults("")
        )
        first = [record for _, _, record in islice(rows, _FIRST)]
        if self._mapping is None:
            return [name for name in dict.fromkeys(name for record in first for name in record) if name == INDEX_COLUMN]
        if self._settings.group is not None or self._settings.format == "spans":
            return []  # the names are made by the reader
        return unread_names(first, RecordMapping(self._settings, self._indexes))

    def first(self) -> First:
        """The first record as it was mapped, field by field. Raises DataError when the data set cannot be used."""
        record = next(iter(self))
        sources = self._mapping.sources if self._mapping else {}
        rows = []
        for noun in (record.sample, record.output):
            if noun is None:
                continue
            for name in type(noun).model_fields:
                short = {"references": "reference", "chunks": "contexts"}.get(name, name)
                is_given = name in noun.model_fields_set and name != "sample_id"
                if is_given:
                    source = sources.get(name) or sources.get(short) or name
                    if name == "id" and is_hashed(record.sample):
                        source = "hash of the content"
                    rows += _apart(name, source, getattr(noun, name), sources)
        return First(record.where, tuple(rows))

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
        chosen = drawn_ids(
            selection, ((record.sample, record.where) for record in self.checked_records(faults)), faults
        )
        faults.raise_all()
        return chosen

    def _foreign_shape(self) -> str:
        """Which option would read the file of a data set in the native form, where it looks like another tool's."""
        from ragpipe.datasets.recognition import foreign_shape

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
            where, fields, outputs = record.where, record.fields, record.outputs
            if not outputs:
                if not self.passes(fields, where, faults):
                    continue
                if (sample := native_form.sample_of(fields, where, faults)) and seen.fits(sample, None, where):
                    yield Record(sample, None, where)
                continue
            sample = None
            for flat in outputs:
                if self._filter is not None and not self.passes({**fields, **flat}, where, faults):
                    continue
                if sample is None and (sample := native_form.sample_of(fields, where, faults)) is None:
                    break
                output = native_form.output_of(flat, sample.id, self._settings.chunk_text, where, faults)
                if output is not None and seen.fits(sample, output, where):
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
                plain = csv_cells.parse_cell(record, where, faults) if file.format == "csv" else record
                if plain is not None and (parts := native_form.split_record(plain, where, faults)):
                    yield FlatRecord(index, where, *parts)
                continue
            for fields, answered, bad in mapping.cases(record, file.name, position, index):
                for fault in bad:
                    faults.add(named_fields(where, fields), fault.key, fault.actual, fault.expected, fault.fix)
                if not bad and (parts := native_form.split_record(fields, where, faults)):
                    yield FlatRecord(index, where, parts[0], parts[1] if answered else [])

    def _without_words(
        self, rows: Iterator[tuple[DataFile, int, dict[str, Any]]]
    ) -> Iterator[tuple[DataFile, int, dict[str, Any]]]:
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
    return next(iter(sorted(Expression(path).roots)), path) if path else ""


def _apart(name: str, source: str, value: Any, sources: Mapping[str, str]) -> list[FieldShown]:
    """A field as it is shown: `recorded` value by value, where the mapping says where each comes from."""
    parts = {part: sources.get(f"{name}.{part}") for part in value} if name == "recorded" else {}
    apart = [FieldShown(f"{name}.{part}", path, value[part]) for part, path in parts.items() if path is not None]
    return apart or [FieldShown(name, source, value)]
