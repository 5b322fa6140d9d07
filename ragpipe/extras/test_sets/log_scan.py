"""The first reading of a log: 26 bytes per case, no texts. What is drawn is read again."""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.text_forms import is_blank
from ragpipe.data.dataset import Dataset, FlatRecord
from ragpipe.data.expressions import BadExpression, Expression
from ragpipe.data.faults import Faults, named_fields, shown_value
from ragpipe.data.native_form import flat_id
from ragpipe.data.settings import key_text

MAX_STRATA = 200
NO_VALUE = "(none)"
"""The stratum of the cases whose field has no value."""


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
    """A row per case that passes the filter: its position, the hashes of its id and of what is asked, its stratum. `records` are all that
    were read, `filtered` the cases that the filter kept out."""

    positions: array[int] = field(default_factory=lambda: array("Q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    strata: array[int] = field(default_factory=lambda: array("H"))
    stratum_names: list[str] = field(default_factory=list)
    records: int = 0
    filtered: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def scan_log(dataset: Dataset, faults: Faults, by: str | None) -> LogScan:
    """Read the whole data set once. A record whose id, question or history cannot be used is a fault and has no row.

    Args:
        dataset: the log, with its mapping and filter.
        faults: where faults are added.
        by: the path of the field whose values are the strata; None: there is one.

    Raises DataError where the field has more than 200 values, and for what only a whole reading shows.
    """
    scan, codes = LogScan(), _StratumCodes(by)
    for record, outputs in askable_cases(dataset, faults, scan):
        scan.positions.append(record.position)
        scan.ids.append(hash64(flat_id(record.fields)))
        scan.keys.append(hash64(question_text(record.fields)))
        scan.strata.append(codes.of(record.fields, outputs, record.where, faults))
    whole = Faults(faults.title)
    dataset.check_whole_reading(whole)
    whole.raise_all()
    faults.raise_all()
    scan.stratum_names = codes.names
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


class _StratumCodes:
    """Numbers for the values of the field of the strata."""

    def __init__(self, by: str | None):
        self._path = Expression(by) if by is not None else None
        self._codes: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._codes)

    def of(self, fields: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]], where: str, faults: Faults) -> int:
        """The number of a case's stratum, by its fields and those of its first output. Raises DataError for too many strata."""
        if self._path is None:
            return self._codes.setdefault("", 0)
        try:
            value = self._path({**fields, **outputs[0]} if outputs else fields)
        except BadExpression as error:
            faults.add(where, f"build.by ({self._path.text})", str(error), "a field of the mapped case")
            value = None
        name = NO_VALUE if value is None else key_text(value)
        code = self._codes.setdefault(name, len(self._codes))
        if code >= MAX_STRATA:
            fix = "take a field with few values, such as category"
            found = f"more than {MAX_STRATA} values"
            problem = Problem(where, f"build.by ({self._path.text})", found, "at most that", fix)
            raise DataError("the log cannot be divided into strata", [problem])
        return code


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
    question = normalised_text(fields["question"])
    history = fields.get("history")
    if not history:
        return question
    turns = [f"{turn['role']}: {normalised_text(turn['text'])}" for turn in history]
    return "\n".join([*turns, question])


def hash64(text: str) -> int:
    """The first 64 bits of BLAKE2b of a text: among a million texts, two have the same with a chance of 3 in 100 million."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
