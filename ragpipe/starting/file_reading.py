"""One reading of a data set: how many cases, which labels, on which scales the recorded verdicts are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.file_formats import SUFFIXES, data_file, read_rows, suffix_of
from ragpipe.datasets.file_heads import FileHead
from ragpipe.datasets.text_lines import text_lines
from ragpipe.profiling.label_fields import DataFacts
from ragpipe.profiling.seen_verdicts import SeenVerdicts
from ragpipe.schema.sample import Case, Output, several

PROBE_CASES = 50


@dataclass
class FileReading:
    """What a data set holds.

    Attributes:
        samples, cases: how many questions and how many answers.
        unanswered: how many records have neither an answer nor an error of the system.
        methods: the methods of the answers, in their order.
        facts: which fields some case has.
        verdicts: the recorded verdicts by name.
        probe: the first 50 cases with an answer, to try on them what a metric can tell.
    """

    samples: int = 0
    cases: int = 0
    unanswered: int = 0
    methods: dict[str, None] = field(default_factory=dict)
    facts: DataFacts = field(default_factory=DataFacts)
    verdicts: dict[str, SeenVerdicts] = field(default_factory=dict)
    probe: list[Case] = field(default_factory=list)


def read_whole(dataset: Dataset) -> FileReading:
    """Read every record. A question without an answer counts with its labels. Raises DataError for a file that a run would
    refuse."""
    reading = FileReading()
    ids = set()
    for record in dataset:
        ids.add(record.sample.id)
        output = record.output
        case = Case(record.sample, output or Output(sample_id=record.sample.id))
        reading.facts.add(case)
        reading.unanswered += case.output.answer is None and case.output.error is None
        if output is None:
            continue
        reading.cases += 1
        if len(reading.probe) < PROBE_CASES:
            reading.probe.append(case)
        reading.methods[output.method] = None
        for name, verdict in _verdicts(output.recorded):
            reading.verdicts.setdefault(name, SeenVerdicts()).add(verdict)
    reading.samples = len(ids)
    return reading


def check_readable(source: Path, head: FileHead) -> None:
    """Read a file in whose beginning there are no records by the reader of its suffix. Raises DataError with what that reader
    finds wrong; a file that it reads, a folder and a file of no known suffix pass."""
    if suffix_of(source) not in SUFFIXES or head.form == "folder":
        return
    faults = Faults("this file cannot be evaluated; nothing was written")
    file = data_file(source, str(source), "main", "auto", head.delimiter, faults)
    if (
        file is not None and file.format == "csv"
    ):  # other signs than UTF-8 come before the header, which they made unreadable
        for _ in text_lines(file, faults):
            if faults:
                break
    if file is not None and not faults:
        for _ in read_rows(file, faults):
            if faults:
                break
    faults.raise_all()


def _verdicts(recorded: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in recorded.items():
        parts = several(value)
        for verdict in [value] if parts is None else parts.values():
            yield name, verdict
