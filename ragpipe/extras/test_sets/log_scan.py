"""The first reading of a log, 24 bytes per case, no texts, and which of its questions are drawn: these are read again."""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.text_forms import is_blank
from ragpipe.data.dataset import Dataset, FlatRecord
from ragpipe.data.faults import Faults, named_fields, shown_value
from ragpipe.data.native_form import flat_id


class SkippedFaults(Faults):
    """Counts faults by field and never raises: the records that they belong to are left out."""

    def __init__(self, title: str):
        super().__init__(title)
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def add(self, where: str, key: str, actual: str, expected: str, fix: str = "") -> None:
        """Count a fault; the place of the first of each field is kept."""
        self.counts[key] += 1
        self.first.setdefault(key, where)


@dataclass
class LogScan:
    """A row per case that passes the filter: its position, the hashes of its id and of what is asked. `records` are all that
    were read, `filtered` the cases that the filter kept out."""

    positions: array[int] = field(default_factory=lambda: array("Q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    records: int = 0
    filtered: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def scan_log(dataset: Dataset, faults: Faults) -> LogScan:
    """Read the whole data set, with its mapping and filter, once. A record whose id, question or history cannot be used is a fault and has
    no row. Raises DataError for what only a whole reading shows."""
    scan = LogScan()
    for record, _ in askable_cases(dataset, faults, scan):
        scan.positions.append(record.position)
        scan.ids.append(hash64(flat_id(record.fields)))
        scan.keys.append(hash64(question_text(record.fields)))
    whole = Faults(faults.title)
    dataset.check_whole_reading(whole)
    whole.raise_all()
    faults.raise_all()
    return scan


def askable_cases(
    dataset: Dataset, faults: Faults, counts: LogScan, positions: set[int] | None = None
) -> Iterator[tuple[FlatRecord, list[dict[str, Any]]]]:
    """The records, of these positions alone where some are given, that pass the filter with their outputs that do, and can be compared.
    `counts` gets how many were read and filtered."""
    for record in dataset.flat_records(faults, positions):
        counts.records += 1
        outputs = [output for output in record.outputs if dataset.passes({**record.fields, **output}, record.where, faults)]
        if not outputs and (record.outputs or not dataset.passes(record.fields, record.where, faults)):
            counts.filtered += 1
        elif _is_askable(record.fields, record.where, faults):
            yield record, outputs


def _is_askable(fields: Mapping[str, Any], where: str, faults: Faults) -> bool:
    """Whether id, question and history are of a kind that can be compared; a fault for the first that is not."""
    question, history, sample_id = fields.get("question"), fields.get("history"), fields.get("id")
    if not isinstance(question, str) or is_blank(question):
        actual = shown_value(question) if "question" in fields else "it is absent"
        faults.add(named_fields(where, fields), "question", actual, "a text")
    elif sample_id is not None and not isinstance(sample_id, str):
        faults.add(where, "id", shown_value(sample_id), "a text", "in a mapping: to_string(...)")
    elif history is not None and not _are_turns(history):
        faults.add(named_fields(where, fields), "history", shown_value(history), "a list of turns with role and text")
    else:
        return True
    return False


def _are_turns(history: Any) -> bool:
    return isinstance(history, Sequence) and all(
        isinstance(turn, Mapping) and isinstance(turn.get("text"), str) and isinstance(turn.get("role"), str)
        for turn in history
    )


_ENDS = " \t.,;:!?…。！？、·-–—*\"'“”„‘’«»()[]¿¡"
"""Signs that are taken off both ends of a text."""


def normalised_text(text: str) -> str:
    """The text in Unicode form NFKC, without case, with single blanks, and without signs and quotation marks at its ends.

    A text of such signs alone stays as it is, without case and with single blanks.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    line = " ".join(text.casefold().split())
    return line.strip(_ENDS) or line


def question_text(fields: Mapping[str, Any]) -> str:
    """What is asked, normalised: the turns of the history and the question, one line each.

    `fields` are those of a sample: `question` a text, `history` a list of turns or absent.
    """
    turns = [f"{turn['role']}: {normalised_text(turn['text'])}" for turn in fields.get("history") or ()]
    return "\n".join([*turns, normalised_text(fields["question"])])


def hash64(text: str) -> int:
    """The first 64 bits of BLAKE2b of a text: among a million texts, two have the same with a chance of 3 in 100 million."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
POOL = 10
"""So many times the wanted cases are drawn first, to refill from."""


@dataclass(frozen=True)
class Samples:
    """A row per sample of the log: rows with the same id and the same question are one (several methods, or a line written twice). `rows`
    are the rows of the scan by sample, from `starts` on."""

    keys: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    def rows_of(self, sample: int) -> NDArray[np.int64]:
        """The rows of the scan that belong to a sample."""
        end = self.starts[sample + 1] if sample + 1 < len(self.starts) else len(self.rows)
        return self.rows[self.starts[sample] : end]


def samples_of(scan: LogScan) -> Samples:
    """The samples of a scanned log."""
    keys, ids = np.frombuffer(scan.keys, np.uint64), np.frombuffer(scan.ids, np.uint64)
    order = np.lexsort((ids, keys))
    sorted_keys, sorted_ids = keys[order], ids[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_ids[1:] != sorted_ids[:-1])
    starts = np.flatnonzero(is_first)
    return Samples(sorted_keys[starts], sorted_ids[starts], order, starts)


def drawn_samples(samples: Samples, n: int | None, seed: int) -> tuple[NDArray[np.int64], int]:
    """The samples to take, first to last, ten times as many as are wanted (all for None), and how many distinct questions there are.

    By hashes of seed and content: the order of the lines is nothing. Samples with the same question are duplicates: one of them stands
    for all, that with the smallest hash of its id. Questions come in the order of a number made of seed and question.
    """
    ranked = np.lexsort((samples.ids, samples.keys))
    is_first = np.ones(len(ranked), bool)
    is_first[1:] = samples.keys[ranked][1:] != samples.keys[ranked][:-1]
    questions = ranked[is_first]
    places = _mixed(samples.keys[questions] ^ _mixed(np.array([np.uint64(((seed + 1) * _STEP) % 2**64)]))[0])
    questions = questions[np.argsort(places, kind="stable")]
    return (questions if n is None else questions[: n * POOL]), len(questions)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random, each of its own number alone (the finaliser of splitmix64)."""
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * factor
    return numbers ^ (numbers >> np.uint64(31))
