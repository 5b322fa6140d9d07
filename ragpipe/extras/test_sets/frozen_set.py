"""Frozen test sets: a folder with the cases, the hash of their file, and a card that says how they were made.

    my-set/cases.jsonl   the native form, one case a line, in the order given
    my-set/card.json     counts, how it was made, seed, sources with their sha256, and `sha256`: that of cases.jsonl
    my-set/card.md       the same for people

`dataset=jsonl dataset.path=my-set/cases.jsonl dataset.sha256=HASH` evaluates exactly these cases, and refuses any other.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.file_locator import Files
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.datasets.text_lines import DataFile
from ragpipe.extras.test_sets.card_text import card_markdown
from ragpipe.store.files.atomic import atomic_write, json_bytes, output_error, sync_folder, temporary_name

CASES, CARD, CARD_TEXT = "cases.jsonl", "card.json", "card.md"
COUNTED = ("category", "subcategory", "difficulty", "question_type")
"""Fields of a case whose values the card counts."""
NOT_LABELLED = "(none)"
"""How the card names cases without a value of a counted field."""


def write_frozen_set(folder: Path, cases: Iterable[Mapping[str, Any]], card: Mapping[str, Any]) -> str:
    """Write the three files and return the hash of `cases.jsonl`: 64 hex digits, equal for equal cases in the same order.

    `cases` are records of the native form. `card` says how they were made: `made` (one sentence), `seed`, `sources`
    (`{path, sha256}` each), and anything else that is JSON; the counts and `sha256` are added. The folder appears whole or not at all.

    Raises ConfigError where the folder exists and is not empty, DataError naming the line where a case is not of the native form
    or an id stands twice, OutputError.
    """
    folder = Path(folder)
    refuse_existing(folder)
    records = [dict(case) for case in cases]
    content = b"".join(json_bytes(record) + b"\n" for record in records)
    digest = sha256(content)
    full_card = {**case_counts(records), **card, "sha256": digest}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = temporary_name(folder.parent)
        unfinished.mkdir()
        try:
            atomic_write(unfinished / CASES, content)
            _check_readable(unfinished / CASES, folder / CASES)
            atomic_write(unfinished / CARD, json_bytes(full_card, indent=1) + b"\n")
            atomic_write(unfinished / CARD_TEXT, card_markdown(folder.name, full_card))
            if folder.is_dir():
                folder.rmdir()  # it is empty: see refuse_existing
            os.replace(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_folder(folder.parent)
    except OSError as error:
        raise output_error(folder, error) from error
    return digest


def refuse_existing(folder: Path, key: str = "folder") -> None:
    """Raises ConfigError where something stands at the place of a new set; an empty folder is no obstacle."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        fix = "choose another name: what was evaluated with a frozen set must be found again"
        problem = Problem(str(folder), key, "it exists already", "a new or empty folder", fix)
        raise ConfigError("a frozen set is never overwritten", [problem])


def case_counts(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What a set holds: cases, outputs by method, and cases by behaviour, origin and each field of `COUNTED` that any of them has.

    The values of a field come in the order of their names; cases without one are counted under `(none)`.
    """
    records = list(records)
    methods: Counter[str] = Counter()
    for record in records:
        methods.update(str(output.get("method", "default")) for output in outputs_of(record))
    counts: dict[str, Any] = {"cases": len(records), "outputs": dict(sorted(methods.items()))}
    counted = {name: [record.get(name) for record in records] for name in COUNTED}
    counted["expected.behavior"] = [(record.get("expected") or {}).get("behavior") for record in records]
    counted["origin.kind"] = [((record.get("meta") or {}).get("origin") or {}).get("kind") for record in records]
    for name, values in counted.items():
        if any(value is not None for value in values):
            tally = Counter(NOT_LABELLED if value is None else str(value) for value in values)
            counts.setdefault("counts", {})[name] = dict(sorted(tally.items()))
    return counts


def outputs_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The outputs of a record of the native form: its `outputs`, or the record itself where it holds an answer or contexts."""
    if "outputs" in record:
        return list(record["outputs"])
    return [record] if any(record.get(name) is not None for name in ("answer", "contexts", "chunks")) else []


def _check_readable(written: Path, final: Path) -> None:
    """Read the cases back as a data set. Raises DataError naming the file by the name that it will have."""
    settings = DatasetSettings(name=final.parent.name or "set", path=str(final))
    file = DataFile(written, str(final), CASES, "jsonl")
    for _ in Dataset(settings, Files(str(final), (file,), {})):
        pass
