"""What a collection gave: the outputs in its journal, and what the frozen outputs of a run say of the system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Output
from ragpipe.data.dataset import Record
from ragpipe.data.faults import Faults, named_fields
from ragpipe.data.system_settings import AnySystem
from ragpipe.store.journal import Journal
from ragpipe.store.run_tables import batches, read_columns

_BATCH = 65_536  # rows read at once

JOURNAL_FIELDS = {"sample_id": str, "method": str, "repeat": int, "failed": bool, "output": str}
"""The fields of every line of the outputs' journal; `output` is an Output as JSON."""


class OutputKey(NamedTuple):
    """What names one output of a collection."""

    sample_id: str
    method: str
    repeat: int


def collected_outputs(journal: Path, methods: Sequence[str] | None = None) -> dict[str, list[Output]]:
    """The outputs of a finished collection by sample id, in the order of `methods` (by name where there is none) and of their
    repeats; the last line on each counts. Raises DataError."""
    opened = Journal.open(journal, form=JOURNAL_FIELDS)
    try:
        outputs = last_outputs(opened)
    finally:
        opened.close()
    places = {method: place for place, method in enumerate(methods or ())}
    by_sample: dict[str, list[Output]] = {}
    for key in sorted(outputs, key=lambda key: (key.sample_id, places.get(key.method, 0), key.method, key.repeat)):
        if methods is None or key.method in places:
            by_sample.setdefault(key.sample_id, []).append(outputs[key])
    return by_sample


def last_outputs(journal: Journal) -> dict[OutputKey, Output]:
    """The last output of each sample, method and repeat. Raises DataError for a line that holds no output."""
    outputs: dict[OutputKey, Output] = {}
    for entry in journal.entries:
        key = OutputKey(entry["sample_id"], entry["method"], entry["repeat"])
        try:
            outputs[key] = Output.model_validate_json(entry["output"])
        except ValueError as error:
            problem = Problem(
                f"sample {key.sample_id!r}, method {key.method!r}, repeat {key.repeat}",
                "output",
                str(error)[:200],
                "an output as JSON",
                "remove the line: this sample is asked again",
            )
            raise DataError(f"the journal {journal.path} cannot be continued", [problem]) from error
    return outputs


def append_output(journal: Journal, output: Output) -> None:
    """Write one output as a line of the journal."""
    failed, text = output.error is not None, output.model_dump_json()
    key = OutputKey(output.sample_id, output.method, output.repeat)
    journal.append({**key._asdict(), "failed": failed, "output": text})


def take_over_outputs(earlier: Path, journal: Path, methods: Sequence[str]) -> Counter[str]:
    """Write the answers of these methods in an earlier journal into this one, where it has none of its own. Returns their
    number by method. Failures are not taken over: they are asked again. Raises DataError for an unreadable line."""
    counts: Counter[str] = Counter()
    with Journal.open(earlier, form=JOURNAL_FIELDS) as source, Journal.open(journal, form=JOURNAL_FIELDS) as target:
        known = last_outputs(target)
        for key, output in last_outputs(source).items():
            if key.method in methods and key not in known and output.error is None:
                append_output(target, output)
                counts[key.method] += 1
    return counts


def has_failures(journal: Path) -> bool:
    """Whether the system failed on some sample in the end. False where nothing was collected."""
    if not journal.exists():
        return False
    return any(output.error for outputs in collected_outputs(journal).values() for output in outputs)


class SystemFailures(NamedTuple):
    """How many of the frozen outputs (`cases`) are failures of the system, and the first of them in words."""

    failed: int
    cases: int
    first: str = ""


def system_failures(outputs: Path) -> SystemFailures:
    table = read_columns(outputs, ["sample_id", "error"])
    failures = table.filter(pc.is_valid(table["error"]))
    first = failures.slice(0, 1).to_pylist()
    text = " ".join(f"{first[0]['sample_id']}: {first[0]['error']}".split())[:200] if first else ""
    return SystemFailures(len(failures), len(table), text)


def output_versions(outputs: Path) -> dict[str, list[str]]:
    """The versions that a run's frozen outputs name, by method, each in the order of their first appearance."""
    versions: dict[str, dict[str, None]] = {}
    for batch in batches(outputs, ["method", "version"], size=_BATCH):
        pairs = pa.Table.from_batches([batch]).group_by(["method", "version"], use_threads=False).aggregate([])
        for row in pairs.to_pylist():
            if row["version"] is not None:
                versions.setdefault(row["method"], {})[row["version"]] = None
    return {method: list(names) for method, names in versions.items()}


FIX = "leave the method out of system.retrieves, or its chunks out of the data"


def mark_closed_book(records: Iterable[Record], system: AnySystem) -> Iterator[Record]:
    """The records, with `retrieves: false` in the outputs of the methods that retrieve nothing by the system's settings.

    Raises one DataError, at the end, that names every case which has chunks all the same.
    """
    faults = Faults("system.retrieves does not fit the data")
    for record in records:
        output = record.output
        if output is None or system.says_it_retrieves(output.method):
            yield record
        elif output.chunks:
            where = f"{named_fields(record.where, {'id': record.sample.id})}, method {output.method!r}"
            faults.add(where, "system.retrieves", f"false, and {len(output.chunks)} chunks", "no chunks", FIX)
        else:
            yield replace(record, output=output.model_copy(update={"retrieves": False}))
    faults.raise_all()


def unknown_methods(system: AnySystem, methods: Iterable[str]) -> str | None:
    """A warning about names under `system.retrieves` that no output has; None when there are none."""
    known = list(methods)
    unknown = [] if isinstance(system.retrieves, bool) else sorted(system.retrieves.keys() - set(known))
    if not unknown:
        return None
    return (
        f"system.retrieves: no output has the method {' or '.join(map(repr, unknown))}; there are {', '.join(map(repr, known))}"
    )
