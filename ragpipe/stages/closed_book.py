"""Marks the outputs of methods that retrieve nothing, as `system.retrieves` says, before they are frozen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ragpipe.datasets.dataset import Record
from ragpipe.datasets.fault_list import Faults, named_fields
from ragpipe.systems.settings import SystemSettings

FIX = "leave the method out of system.retrieves, or its chunks out of the data"


def mark_closed_book(records: Iterable[Record], system: SystemSettings) -> Iterator[Record]:
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


def unknown_methods(system: SystemSettings, methods: Iterable[str]) -> str | None:
    """A warning about names under `system.retrieves` that no output has; None when there are none."""
    known = list(methods)
    unknown = sorted(system.named_methods - set(known))
    if not unknown:
        return None
    return (
        f"system.retrieves: no output has the method {' or '.join(map(repr, unknown))}; "
        f"there are {', '.join(map(repr, known))}"
    )
