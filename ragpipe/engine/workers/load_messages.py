"""Messages between a driver and the processes that read a data set for it, part by part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragpipe.core.digest_table import DIGEST
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.file_locator import Files
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.datasets.text_lines import DataFile, FilePart
from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.stages.case_batches import CaseBatch


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """What came of a part of the data.

    Attributes:
        cases: its cases.
        keys: the digest of what names each case.
        contents: the digest of the content of each sample.
        mapping: which mapped parts of an output it has (`Dataset.found_parts`).
    """

    cases: CaseBatch
    keys: list[bytes]
    contents: list[bytes]
    mapping: dict[str, bool]


def load_start(dataset: Dataset) -> dict[str, Any]:
    """What a worker is told first: what to read, and how."""
    settings = dataset.settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"settings": settings, "display_path": dataset.display_path}


def dataset_of(start: dict[str, Any], part: DataFile) -> Dataset:
    """The data set that has one part alone."""
    settings = DatasetSettings.model_validate(start["settings"], strict=False)
    return Dataset(settings, Files(start["display_path"], (part,), {}))


def part_message(part: DataFile) -> bytes:
    """A part to read."""
    return packed_message({**vars(part), "path": str(part.path.absolute())})


def part_of(values: dict[str, Any]) -> DataFile:
    """The part that a message tells of."""
    file = DataFile(**{**values, "path": Path(values["path"])})
    return replace(file, part=FilePart(*values["part"]))


def loaded_message(loaded: LoadedPart) -> bytes:
    """What came of a part."""
    pieces = list[bytes | memoryview]()
    for table in (loaded.cases.samples, loaded.cases.outputs):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        pieces.append(memoryview(sink.getvalue()))
    pieces += [b"".join(digests) for digests in (loaded.cases.names, loaded.keys, loaded.contents)]
    sizes = [len(piece) for piece in pieces]
    return packed_message({"sizes": sizes, "mapping": loaded.mapping}, *pieces)


def loaded_of(values: dict[str, Any], content: bytes) -> LoadedPart | None:
    """The part that a message tells of; None where it is empty, or is not as the data should be."""
    if "sizes" not in values:
        return None
    pieces, start = [], 0
    for size in values["sizes"]:
        pieces.append(content[start : start + size])
        start += size
    samples, outputs = (pa.ipc.open_stream(piece).read_all() for piece in pieces[:2])
    names, keys, contents = ([piece[i : i + DIGEST] for i in range(0, len(piece), DIGEST)] for piece in pieces[2:])
    return LoadedPart(CaseBatch(samples, names, outputs), keys, contents, values["mapping"])
