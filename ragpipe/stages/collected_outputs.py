"""What a collection gave: the outputs in its journal, and what the frozen outputs of a run say of the system."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import Output
from ragpipe.store.run.journal import Journal
from ragpipe.store.run.run_tables import batches, read_columns

_BATCH = 65_536  # rows read at once

JOURNAL_FIELDS = {"sample_id": str, "repeat": int, "failed": bool, "output": str}
"""The fields of every line of the outputs' journal; `output` is an Output as JSON."""


def collected_outputs(journal: Path) -> dict[str, list[Output]]:
    """The outputs of a finished collection by sample id, in the order of their repeats; the last line on each counts.
    Raises DataError."""
    opened = Journal.open(journal, form=JOURNAL_FIELDS)
    try:
        outputs = last_outputs(opened)
    finally:
        opened.close()
    by_sample: dict[str, list[Output]] = {}
    for (sample_id, _), output in sorted(outputs.items()):
        by_sample.setdefault(sample_id, []).append(output)
    return by_sample


def last_outputs(journal: Journal) -> dict[tuple[str, int], Output]:
    """The last output of each (sample id, repeat). Raises DataError for a line that holds no output."""
    outputs: dict[tuple[str, int], Output] = {}
    for entry in journal.entries:
        try:
            outputs[entry["sample_id"], entry["repeat"]] = Output.model_validate_json(entry["output"])
        except ValueError as error:
            problem = Problem(
                f"sample {entry['sample_id']!r}, repeat {entry['repeat']}",
                "output",
                str(error)[:200],
                "an output as JSON",
                "remove the line: this sample is asked again",
            )
            raise DataError(f"the journal {journal.path} cannot be continued", [problem]) from error
    return outputs


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
    """The failures of the system in a run's `outputs.parquet`."""
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
