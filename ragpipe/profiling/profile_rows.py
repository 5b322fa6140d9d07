"""A profile as the rows of a table: one line for each field, with what differs between methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ragpipe.core.safe_text import on_one_line
from ragpipe.profiling.data_profile import DataProfile
from ragpipe.profiling.distribution import Distribution, median_of, merged

HEADS = ("field", "in", "values")
FEW_LABELS = 4
"""Different labels up to which they are listed, however seldom each is."""
LABELS_WIDTH = 32
"""Characters of labels that a line shows, and the one that goes over."""
APART = 0.1
"""By how much shares of methods must differ, or their medians (of the largest), for the range over methods to be shown."""
RARE = 0.1


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
            values = _values(name, [found], of_samples.get(f"{name}[]"))
            rows.append(_row(name, found.present, profile.samples, values))
    cases = sum(profile.cases.values())
    for name, by_method in of_outputs.items():
        values = _values(name, list(by_method.values()))
        if "[]." in name:
            rows.append(FieldRow(name, "", values))
        else:
            present = sum(found.present for found in by_method.values())
            rows.append(_row(name, present, cases, f"{values}{_by_method(by_method, profile.cases)}"))
    return rows


def _row(name: str, present: int, of: int, values: str) -> FieldRow:
    extent = "all" if present == of else f"{present:,} of {of:,}"
    return FieldRow(name, extent, values, is_rare=present < RARE * of and name != "error")


def _values(name: str, parts: list[Distribution], each: Distribution | None = None) -> str:
    """The values of a field; of a list of texts or labels those too."""
    whole = merged(parts)
    pieces = []
    if whole.n_numbers:
        unit = {"text": " characters", "list": " entries", "number": ""}.get(whole.kind, "")
        pieces.append(_span(whole, median_of(parts), " ms" if name.startswith("timings.") else unit))
    if whole.labels and whole.kind != "number":
        pieces.append(_labels(whole))
    if whole.blank:
        pieces.append(f"{whole.blank:,} empty")
    if each is not None and each.n_values:
        pieces.append(_values(name, [each]))
    return "; ".join(pieces)


def _span(whole: Distribution, middle: float | None, unit: str) -> str:
    if whole.low == whole.high:
        return f"{_number(whole.low)}{' entry' if whole.low == 1 and unit == ' entries' else unit}"
    return f"{_number(whole.low)} to {_number(whole.high)}{unit}" + (
        "" if middle is None else f", median {_number(middle)}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"


def _labels(found: Distribution) -> str:
    """The most frequent labels with their counts; how many there are where nearly all are different."""
    if found.has_more_labels or len(found.labels) > max(FEW_LABELS, found.n_values / 2):
        count = f"over {len(found.labels):,}" if found.has_more_labels else f"{len(found.labels):,}"
        return f"{count} different, such as {_label(next(iter(found.labels)))}"
    shown, room = [], LABELS_WIDTH
    for label, n in found.labels.most_common():
        shown.append(f"{_label(label)} {n:,}")
        room -= len(shown[-1]) + 2
        if room < 0:
            break
    more = len(found.labels) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")


def _label(label: object) -> str:
    return str(label).lower() if isinstance(label, bool) else on_one_line(str(label), LABELS_WIDTH)


def _by_method(by_method: Mapping[str, Distribution], cases: Mapping[str, int]) -> str:
    """The range over methods, where these differ: of the share of cases that have the field, or of its median."""
    if len(cases) < 2:
        return ""
    shares = [by_method[method].present / of if method in by_method else 0.0 for method, of in cases.items()]
    if max(shares) - min(shares) > APART:
        return f"; in {min(shares):.0%} to {max(shares):.0%} by method"
    medians = [middle for found in by_method.values() if (middle := median_of([found])) is not None]
    if len(medians) > 1 and max(medians) - min(medians) > APART * max(map(abs, medians)):
        return f"; by method {_number(min(medians))} to {_number(max(medians))}"
    return ""
