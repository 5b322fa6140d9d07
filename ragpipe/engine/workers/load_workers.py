"""Reading a data set by several processes: each reads parts of its files, this one puts them together in order.

Whatever is wrong with the data or with a worker, this process reads all of it again by itself: so errors, too, are those of one
process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ragpipe.core.digest_table import DIGEST, DigestTable
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.file_parts import UnevenLines
from ragpipe.datasets.text_lines import DataFile
from ragpipe.engine.workers.load_messages import LoadedPart, load_start, loaded_of, part_message
from ragpipe.engine.workers.worker_processes import WorkerLost, WorkerPool, in_order
from ragpipe.stages.case_batches import CaseBatch
from ragpipe.stages.load_dataset import DatasetCounts, load_batches

PART = 2 << 20
"""Bytes of a part: some thousand small records."""
FEWEST_PARTS = 16
"""Parts from which on workers are worth their start."""
_PARTS_EACH = 4
"""Parts per worker from which on one more is worth its start."""
_AHEAD = 2  # parts per worker that are read before their turn


class _ReadAlone(Exception):
    """The data set is to be read by one process after all."""


def load_by_workers(
    dataset: Dataset,
    workers: WorkerPool,
    *,
    width: int,
    samples: Path,
    outputs: Path,
    say: Callable[[str], None],
    part_size: int = PART,
) -> DatasetCounts | None:
    """Write both tables of a data set that records its outputs. None where nothing was written, and one process is to read it:
    it is small, its records depend on each other, or something in it is wrong.

    Args:
        dataset: the data set.
        workers: the processes that read it.
        width: the number of workers.
        samples: the table of samples.
        outputs: the table of outputs.
        say: prints what the user should know.
        part_size: bytes of a part.
    """
    parts = dataset.parts(part_size)
    if parts is None or width < 2 or dataset.size < FEWEST_PARTS * part_size:
        return None
    width = max(2, min(width, dataset.size // (_PARTS_EACH * part_size)))
    try:
        with workers.answering("load", load_start(dataset), width) as ask:

            def answer(part: DataFile) -> LoadedPart | None:
                return loaded_of(*ask(part_message(part)))

            loaded = in_order(answer, parts, width, ahead=_AHEAD)
            return load_batches(_whole(dataset, loaded), samples=samples, outputs=outputs)
    except WorkerLost as error:
        say(f"a worker that read the data died ({error}); this process reads it alone")
    except (UnevenLines, _ReadAlone, OSError):  # one process says what is wrong with the data, or with the disk
        pass
    return None


def _whole(dataset: Dataset, parts: Iterable[LoadedPart | None]) -> Iterator[CaseBatch]:
    """The cases of all parts. Raises _ReadAlone where a part, or all of them together, are not as the data should be."""
    cases, contents = DigestTable(), DigestTable(DIGEST)
    for part in parts:
        if part is None:
            raise _ReadAlone
        if any(cases.setdefault(key) is not None for key in part.keys):
            raise _ReadAlone
        for name, content in zip(part.cases.names, part.contents, strict=True):
            if contents.setdefault(name, content) not in (None, content):
                raise _ReadAlone
        dataset.note_mapping(part.mapping)
        yield part.cases
    faults = Faults("")
    dataset.check_whole_reading(faults)
    if faults or not len(cases):
        raise _ReadAlone
