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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.text import code_span, escape_markdown, markdown_table
from ragpipe.data.dataset import Dataset
from ragpipe.data.file_locator import Files
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.text_lines import DataFile
from ragpipe.store.files import atomic_write, json_bytes, output_error, sync_folder, temporary_name

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
    methods = Counter(str(output.get("method", "default")) for record in records for output in outputs_of(record))
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


_OPENING = ("cases", "outputs", "made", "seed", "sha256")
"""Keys of a card that stand in its first lines; the others are sections, in the order of the card."""
_CELL = 300


def card_markdown(name: str, card: Mapping[str, Any]) -> str:
    """The page. `name` is the folder's name; texts of the card are data, never markup."""
    lines = [f"# {escape_markdown(name)}", ""]
    if made := card.get("made"):
        lines += [escape_markdown(str(made), 2000), ""]
    lines += [f"- **cases:** {card['cases']:,}"]
    shares = ", ".join(f"{code_span(method)} {count:,}" for method, count in (card.get("outputs") or {}).items())
    lines.append(f"- **outputs:** {shares or 'none (questions for a live system)'}")
    if card.get("seed") is not None:
        lines.append(f"- **seed:** {card['seed']}")
    lines += [f"- **sha256 of cases.jsonl:** {code_span(card['sha256'])}", ""]
    command = f"python -m ragpipe dataset=jsonl dataset.path=FOLDER/cases.jsonl dataset.sha256={card['sha256']}"
    lines += ["```bash", command, "```", ""]
    for key, value in card.items():
        if key not in _OPENING and value not in (None, [], {}):
            lines += [f"## {escape_markdown(key.replace('_', ' ').capitalize())}", "", *_section(value), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(value: Any) -> list[str]:
    """A value of the card: a list of objects and a mapping as tables, other lists as bullets."""
    if isinstance(value, Mapping):
        if all(isinstance(item, Mapping) for item in value.values()):
            triples = [(_cell(key), _cell(inner), _cell(item)) for key, pairs in value.items() for inner, item in pairs.items()]
            return markdown_table(("", "", ""), triples, left=(0, 1))
        return markdown_table(("", ""), [(_cell(key), _cell(item)) for key, item in value.items()], left=(0, 1))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(item, Mapping) for item in value):
            heads = list(dict.fromkeys(key for item in value for key in item))
            rows = [[_cell(item.get(head)) for head in heads] for item in value]
            return markdown_table([escape_markdown(head) for head in heads], rows, left=range(len(heads)))
        return [f"- {_cell(item)}" for item in value]
    return [_cell(value)]


def _cell(value: Any) -> str:
    """A value on one line: what is no plain words (a file, a hash, a name with signs) as code."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, str):
        return code_span(canonical_json(value), _CELL)
    return escape_markdown(value, _CELL) if " " in value or value.isalpha() else code_span(value, _CELL)
