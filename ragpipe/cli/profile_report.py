"""The profile of a data set as the terminal shows it: what looks wrong, how the first case was mapped, and a row per field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from ragpipe.core.text import on_one_line
from ragpipe.data.dataset import Dataset, FieldShown
from ragpipe.data.index_manifest import IndexManifest
from ragpipe.data.record_mapping import unread_line
from ragpipe.report.charts import HistogramBin, ShareRow, axis_number, histogram, share_table
from ragpipe.report.console import Console
from ragpipe.report.diagnosis_section import index_notes
from ragpipe.report.model import Chart, Note, Prose, Report, RunVerdict, Section, Table, Verbatim
from ragpipe.report.styled_text import plural
from ragpipe.runs.data_profile import DataProfile, Distribution

_GAPS = 8  # characters between the columns of the first case


def print_profile(
    dataset: Dataset,
    remarks: Sequence[str],
    profile: DataProfile,
    index: IndexManifest | None,
    console: Console,
    *,
    is_mapped: bool,
) -> None:
    """Print what looks wrong (`remarks`: what reading the data set noticed), how the first case was mapped, and the profile."""
    title = f"data set {dataset.name}, {dataset.digest[:8]}: {plural(profile.samples, 'sample')}"
    cases, noun = sum(profile.cases.values()), "method" if len(profile.cases) == 1 else "methods"
    console.say(f"{title}, {plural(cases, 'case')}, {noun}: {', '.join(profile.cases)}" if cases else title)
    if index is not None:
        for note in index_notes(index.coverage(record.sample for record in dataset)):
            console.say(f"index: {on_one_line(note, 1000)}")
    for line in remarks:
        console.warn(on_one_line(line, 1000))
    findings = profile.findings()
    for text in [*(str(f) for f in findings if f.is_warning), *profile.pointers.warnings()]:
        console.warn(on_one_line(text, 1000))
    for text in [*(str(f) for f in findings if not f.is_warning), *profile.pointers.notes()]:
        console.say(on_one_line(text, 1000))
    if is_mapped:
        print_first_case(dataset.first(), console)
    if unread := unread_line(dataset.unread()):
        console.say(unread)
    rows = profile_rows(profile)
    further = [row for row in rows if row.is_rare or row.field.startswith(_FURTHER)] if len(rows) > _FEW else []
    console.table(("field", "in", "values"), [row[:3] for row in rows if row not in further], left=(0, 1, 2))
    if further:
        console.say(f"and {plural(len(further), 'more field')}: plan.out=plan.json writes all")


def data_report(dataset: Dataset, remarks: Sequence[str], profile: DataProfile) -> Report:
    """The page of a data set: what looks wrong, how long texts are and how many contexts a case has, what is missing, all fields."""
    findings = profile.findings()
    wrong = [*remarks, *(str(f) for f in findings if f.is_warning), *profile.pointers.warnings()]
    noted = [*(str(f) for f in findings if not f.is_warning), *profile.pointers.notes()]
    cases = sum(profile.cases.values())
    counts = f"{plural(profile.samples, 'sample')}, {plural(cases, 'case')}, {plural(len(profile.cases), 'method')}"
    said = (
        f"{plural(len(wrong), 'thing looks', 'things look')} wrong in {counts}" if wrong else f"nothing looks wrong in {counts}"
    )
    found = [Note(Prose(text), kind="warning") for text in wrong] + [Note(Prose(text)) for text in noted]
    fields = [(Verbatim(row.field), row.extent, Verbatim(row.values)) for row in profile_rows(profile)]
    missing = list(_missing_rows(profile, cases))
    sections = (
        Section("findings", "What was noticed", tuple(found)) if found else None,
        Section("lengths", "Distributions", tuple(_histograms(profile))),
        Section("missing", "What is missing", (Chart("", share_table(missing, "records without a field")),))
        if missing
        else None,
        Section("fields", "Fields", (Table.of(("field", "in", "values"), fields, texts=3),)),
    )
    about = (("methods: ", Verbatim(", ".join(profile.cases))), ("digest ", dataset.digest[:8]))
    verdict = RunVerdict("warn" if wrong else "good", "", said, about)
    return Report(f"Data: {dataset.name}", "", "", verdict, (), tuple(filter(None, sections)))


def _histograms(profile: DataProfile) -> Iterator[Chart]:
    """How long texts are, and how many entries lists have, where that differs."""
    for name, found in {**profile.sample_fields(), **profile.output_fields()}.items():
        if name in _DRAWN and found.low < found.high:
            counts, edges = np.histogram(np.array(found.numbers), bins=_bins_of(found))
            ends = list(pairwise(edges))
            bins = [
                HistogramBin(int(n), f"{low:.0f} to {high:.0f}: {n:,}", "") for n, (low, high) in zip(counts, ends, strict=True)
            ]
            unit = "entries" if found.kind == "list" else "characters"
            at = 0.0 if edges[0] == found.low else 50 / len(bins)  # a bar of a whole number stands around it
            ticks = ((at, axis_number(found.low)), (100 - at, axis_number(found.high)))
            yield Chart("", histogram([(None, "", bins)], f"{name}, {unit}", ticks), narrow=True)


def _bins_of(found: Distribution) -> Sequence[float] | int:
    """A bar for each whole number of a short list, else twelve."""
    low, high = int(found.low), int(found.high)
    return [low - 0.5 + step for step in range(high - low + 2)] if found.kind == "list" and high - low < _BINS else _BINS


def _missing_rows(profile: DataProfile, cases: int) -> Iterator[ShareRow]:
    """The fields that most records have and some have not."""
    for fields, of in ((profile.sample_fields(), profile.samples), (profile.output_fields(), cases)):
        for name, found in fields.items():
            if "[]" not in name and of / 2 <= found.present < of:
                share = 1 - found.present / of
                words = f"first: {on_one_line(found.first_absent)}" if found.first_absent else ""
                yield ShareRow(name, "", f"{of - found.present:,} of {of:,}", f"{share:.1%}", share, words, "")


_DRAWN = ("question", "references", "references[]", "answer", "contexts", "contexts[].text", "citations")
"""Fields that have a histogram."""
_BINS = 12


def print_first_case(first: Sequence[FieldShown], console: Console) -> None:
    """Print the first case as it was mapped, a line per field; with where each comes from, unless the names are ours."""
    sources = {field.field: "" if field.source == field.field else field.source for field in first}
    is_mapped = any(sources.values())
    left = console.width - max(map(len, sources)) - _GAPS
    width = left // 2 if is_mapped else left
    rows: list[tuple[str, ...]] = []
    for field in first:
        value, source = _short(field.value, width), on_one_line(sources[field.field], width)
        rows.append((field.field, source, value) if is_mapped else (field.field, value))
    heads = ("field", "from", "value") if is_mapped else ("field", "value")
    console.table(heads, rows, title="its first case as it was mapped", left=(0, 1, 2))


def _short(value: Any, width: int) -> str:
    if isinstance(value, list) and value:
        count = f"{len(value)} x "
        return count + _short(value[0], width - len(count))
    text = value.model_dump_json(exclude_defaults=True) if isinstance(value, BaseModel) else str(value)
    return on_one_line(text, width)


_FURTHER = ("meta.", "expected.", "usage.", "tags", "subcategory", "contexts[].score", "contexts[].doc_type")
"""Fields that a table of many leaves for `plan.out`, beside rare ones; their names are below it."""
_FEW = 20  # fields up to which the table has them all
_FEW_LABELS = 4  # different labels up to which they are listed, however seldom each is
_LABELS_WIDTH = 32  # characters of labels that a line shows, and the one that goes over
_APART = 0.1  # by how much shares of methods must differ for the range over methods to be shown
_RARE = 0.1


class FieldRow(NamedTuple):
    """A line of the table: in how many samples or cases the field is (`all`, or a number of all), and its values. `is_rare`: it is
    in less than a tenth of them."""

    field: str
    extent: str
    values: str
    is_rare: bool = False


def profile_rows(profile: DataProfile) -> list[FieldRow]:
    """A row for each field of the samples, then of the outputs, with the range over methods where these differ."""
    of_samples, of_outputs = profile.sample_fields(), profile.output_fields()
    rows = []
    for name, found in of_samples.items():
        if not name.endswith("[]"):
            values = _values(name, found, of_samples.get(f"{name}[]"))
            rows.append(_row(name, found.present, profile.samples, values))
    cases = sum(profile.cases.values())
    for name, found in of_outputs.items():
        values = _values(name, found)
        if "[]." in name:
            rows.append(FieldRow(name, "", values))
        else:
            shares = [found.by_method[method] / of for method, of in profile.cases.items()]
            if max(shares) - min(shares) > _APART:
                values += f"; in {min(shares):.0%} to {max(shares):.0%} by method"
            rows.append(_row(name, found.present, cases, values))
    return rows


def _row(name: str, present: int, of: int, values: str) -> FieldRow:
    extent = "all" if present == of else f"{present:,} of {of:,}"
    return FieldRow(name, extent, values, is_rare=present < _RARE * of and name != "error")


def _values(name: str, whole: Distribution, each: Distribution | None = None) -> str:
    """The values of a field; of a list of texts or labels those too."""
    pieces = []
    if whole.numbers:
        unit = {"text": " characters", "list": " entries", "number": ""}.get(whole.kind, "")
        pieces.append(_span(whole, " ms" if name.startswith("timings.") else unit))
    if whole.labels and whole.kind != "number":
        pieces.append(_labels(whole))
    if whole.blank:
        pieces.append(f"{whole.blank:,} empty")
    if each is not None and each.n_values:
        pieces.append(_values(name, each))
    return "; ".join(pieces)


def _span(whole: Distribution, unit: str) -> str:
    if whole.low == whole.high:
        return f"{_number(whole.low)}{' entry' if whole.low == 1 and unit == ' entries' else unit}"
    return f"{_number(whole.low)} to {_number(whole.high)}{unit}, median {_number(whole.median or 0)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"


def _labels(found: Distribution) -> str:
    """The most frequent labels with their counts; how many there are where nearly all are different."""
    if found.has_more_labels or len(found.labels) > max(_FEW_LABELS, found.n_values / 2):
        count = f"over {len(found.labels):,}" if found.has_more_labels else f"{len(found.labels):,}"
        return f"{count} different, such as {_label(next(iter(found.labels)))}"
    shown, room = [], _LABELS_WIDTH
    for label, n in found.labels.most_common():
        shown.append(f"{_label(label)} {n:,}")
        room -= len(shown[-1]) + 2
        if room < 0:
            break
    more = len(found.labels) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")


def _label(label: object) -> str:
    return str(label).lower() if isinstance(label, bool) else on_one_line(str(label), _LABELS_WIDTH)
