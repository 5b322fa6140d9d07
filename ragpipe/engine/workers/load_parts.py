"""A part of a data set, read by itself: its cases with the digests by which the driver compares them with those of other parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.datasets.dataset import Record
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.seen_cases import case_digest, content_digest
from ragpipe.datasets.text_lines import DataFile
from ragpipe.engine.workers.load_messages import LoadedPart, dataset_of, loaded_message, part_of
from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.stages.case_batches import case_batch


def open_loading(start: dict[str, Any]) -> Callable[[Any], bytes]:
    """What answers each part of a data set with its cases, or with nothing where something is not as it should be."""
    return partial(_answer, start)


def _answer(start: dict[str, Any], values: Any) -> bytes:
    loaded = load_part(start, part_of(values))
    return packed_message({}) if loaded is None else loaded_message(loaded)


def load_part(start: dict[str, Any], part: DataFile) -> LoadedPart | None:
    """What came of a part; None where it has no case, or is not as the data should be: then the driver reads the data set by itself,
    and says what is wrong with it.

    Args:
        start: what the worker was told first (`load_start`).
        part: the part.
    """
    dataset = dataset_of(start, part)
    faults = Faults("")
    contents: dict[str, bytes] = {}
    keys: list[bytes] = []

    def noted(record: Record) -> Record:
        keys.append(case_digest(record.sample, record.output))
        if record.sample.id not in contents:
            contents[record.sample.id] = content_digest(record.sample)
        return record

    try:
        batch = case_batch(map(noted, dataset.checked_records(faults)))
    except DataError:
        return None
    if faults or batch is None:
        return None
    return LoadedPart(batch, keys, list(contents.values()), dataset.found_parts)
