"""Which tool wrote a file, told by its structure: the data set's option that reads it, or why none can.

Neither the file's name nor its folder counts. At most the first 1 MiB is read (`file_heads.py`); the kinds are the rows of
`known_shapes.py`, and a few that names alone do not tell: the native form, TREC, folders, archives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragpipe.core.registry import option_files
from ragpipe.datasets.csv_rows import INDEX_COLUMN
from ragpipe.datasets.file_formats import SUFFIXES, suffix_of
from ragpipe.datasets.file_heads import MAX_RECORDS, FileHead, read_head
from ragpipe.datasets.known_shapes import Shape, shapes
from ragpipe.datasets.name_synonyms import field_meant
from ragpipe.datasets.settings import OUTPUT_FIELDS, SAMPLE_FIELDS

NATIVE = "jsonl"
_NATIVE_NAMES = SAMPLE_FIELDS | OUTPUT_FIELDS | {"outputs"}
_NAMES_SHOWN = 5
_MAX_LEVELS = 4  # of objects around a list of records
_MIN_NUMBERS = 2  # columns of numbers that make a table of scores
_BEIR = {"corpus.jsonl", "queries.jsonl"}
_PHASES = {"production_sample", "labeled", "synthetic"}
_SPREADSHEET = "save it as CSV in UTF-8, or: `python -c \"import pandas; pandas.read_excel('FILE').to_csv('FILE.csv', index=False)\"`"
_YAML = "write it as JSON: `python -c \"import json, yaml; json.dump(yaml.safe_load(open('FILE')), open('FILE.json', 'w'), default=str)\"`"
_TO_PARQUET = "`python -c \"import datasets; datasets.load_from_disk('FOLDER').to_parquet('FILE.parquet')\"`"
_BEIR_PART = "it is a part of a BEIR data set: give the folder with corpus.jsonl, queries.jsonl and qrels/"
_TREC = "a run and its qrels go together: `+experiment=trec dataset.path=FOLDER dataset.files.main=QRELS dataset.files.run=RUN`"


BY_ID, BY_COLUMN = "entries(@)", "rows(@)"
"""The records of an object by id, `{key, value}` each, and those of an object of columns."""
_PLAIN_WORD = re.compile(r"[\w.=/-]*")


@dataclass(frozen=True)
class Recognised:
    """What a file was recognised as.

    Attributes:
        option: the option of the group `dataset` that reads it; empty where none can.
        description: what it is, with its article: "a ragas EvaluationDataset".
        evidence: the names that decided.
        words: further words of the command line that the option needs for this file.
        others: other options that fit as well: nothing but the user can tell.
        unusable: why no option reads it and what to do; empty where one does.
    """

    option: str
    description: str
    evidence: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unusable: str = ""

    def sentence(self, path: str) -> str:
        """On one line: what the file looks like, by which names, and the words that read it."""
        names = f" ({', '.join(self.evidence[:_NAMES_SHOWN])})" if self.evidence else ""
        if self.unusable:
            return f"this looks like {self.description}{names}: {self.unusable}"
        either = " or ".join(f"dataset={option}" for option in (self.option, *self.others))
        words = [word if _PLAIN_WORD.fullmatch(word) else _quoted(word) for word in self.words]
        return f"this looks like {self.description}{names}: {' '.join([either, f'dataset.path={path}', *words])}"


def _quoted(word: str) -> str:
    """A word as a shell and the command line take it."""
    key, _, value = word.partition("=")
    return f"""'{key}="{value}"'"""


def recognise(path: Path) -> Recognised | None:
    """What the file or folder is; None where its shape is unknown. Raises OSError where it cannot be read."""
    head = read_head(path)
    if head.form == "folder":
        return _folder(head)
    found = _by_form(head) or _by_names(head) or _native(head) or _numbers(head)
    if found is None or found.unusable:
        return found
    return replace(found, words=(*found.words, *reader_words(path, head, found.option)))


def foreign_shape(path: Path, display_path: str) -> str:
    """A line for the title of an error: what else a file looks like that was taken for the native form; empty where nothing."""
    try:
        found = recognise(path)
    except OSError:
        return ""
    is_plain = found is None or (found.option == NATIVE and not found.words)
    return "" if found is None or is_plain else f"\n  {found.sentence(display_path)}"


def record_list(head: FileHead) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """The path of the records within a JSON document, empty where they are the document, and the first of them.

    The path is that of the only list of objects among the document's own names, of the one that has questions, or of the longest of
    several; where there is none, among the names of the objects in it, and so on.
    """
    if head.records or not isinstance(head.document, dict):
        return "", head.records
    level: dict[str, Any] = {"": head.document}
    for _ in range(_MAX_LEVELS):
        for path, value in level.items():
            if records := _by_id(value):
                return BY_ID.replace("@", path or "@"), tuple(records[:MAX_RECORDS])
            if columns := _columns(value):
                rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
                chosen = "{" + ", ".join(f"{_name(name)}: {_name(name)}" for name in columns) + "}"
                inner = (path or "@") if len(columns) == len(value) else f"{path}.{chosen}" if path else chosen
                return BY_COLUMN.replace("@", inner), tuple(rows[:MAX_RECORDS])
        values = {
            f"{path}.{_name(name)}".removeprefix("."): value
            for path, parent in level.items()
            for name, value in parent.items()
        }
        lists = {path: value for path, value in values.items() if _is_list_of_objects(value)}
        if lists:
            path = max(lists, key=lambda path: (_is_asked(lists[path][0]), len(lists[path])))
            return path, tuple(item for item in lists[path] if isinstance(item, dict))
        level = {path: value for path, value in values.items() if isinstance(value, dict)}
    return "", ()


def _by_id(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of an object whose values are objects with some names in common, one of them that of a question."""
    values = list(document.values())
    if not values or not all(isinstance(value, dict) for value in values):
        return []
    common = set(values[0]).intersection(*values[1:-1])  # the last one may be cut
    if not _is_asked(dict.fromkeys(common)) or not common & values[-1].keys():
        return []
    return [{"key": key, "value": value} for key, value in document.items()]


def _columns(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The lists of an object that are as long as its list of questions: of values, or of objects whose ids agree. Empty where a
    list for another field of a case has another length."""
    lists = {name: value for name, value in document.items() if isinstance(value, list) and value}
    asked = next((column for name, column in lists.items() if _has_questions(name, column[0])), [])
    columns = {name: column for name, column in lists.items() if len(column) == len(asked)}
    if len(columns) < 2 or any(field_meant(name) for name in lists.keys() - columns.keys()):
        return {}
    ids = [[item["id"] for item in column] for column in columns.values() if all(_has_id(item) for item in column)]
    return columns if all(one == ids[0] for one in ids) else {}


def _has_questions(name: str, first: Any) -> bool:
    return _is_asked(first) if isinstance(first, dict) else field_meant(name) == "question" and isinstance(first, str)


def _has_id(item: Any) -> bool:
    return isinstance(item, dict) and "id" in item


def _is_asked(record: Mapping[str, Any]) -> bool:
    return any(field_meant(name) == "question" for name in record)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _folder(head: FileHead) -> Recognised | None:
    if set(head.names) >= _BEIR and any(name.startswith("qrels/") for name in head.names):
        return Recognised("beir", "a BEIR data set", tuple(sorted(_BEIR)))
    phases = sorted({name.split("/")[0] for name in head.names} & _PHASES)
    if phases and any(name.endswith((".json", ".jsonl")) for name in head.names):
        return Recognised("eval_set", "an evaluation set in three phases", tuple(f"{phase}/" for phase in phases))
    if "dataset_dict.json" in head.names:
        parts = sorted({name.split("/")[0] for name in head.names if name.endswith("/state.json")})
        fix = f"give the folder of one split: {', '.join(parts)}"
        return Recognised("", "data sets that Hugging Face `save_to_disk` wrote", ("dataset_dict.json",), unusable=fix)
    tables = [name for name in head.names if name.endswith(".arrow")]
    if "state.json" in head.names and tables:
        fix = (
            f"give its file: {tables[0]}"
            if len(tables) == 1
            else f"write its {len(tables)} files as one: {_TO_PARQUET}"
        )
        return Recognised("", "a data set that Hugging Face `save_to_disk` wrote", ("state.json",), unusable=fix)
    return None


def _by_form(head: FileHead) -> Recognised | None:
    """What the form of the file alone tells."""
    if head.form == "trec":
        return Recognised("", f"TREC {head.text}" if head.text == "qrels" else "a TREC run", unusable=_TREC)
    if head.form == "pickle":
        return Recognised(
            "", "a Python pickle", unusable="loading one can run code: write the data as JSON Lines or Parquet"
        )
    if head.form == "zip":
        return _archive(head.names)
    if head.form == "html":
        return Recognised(
            "",
            "a web page",
            unusable="it is for people: export the results as JSON (`promptfoo eval --output results.json`)",
        )
    if head.form == "spreadsheet":
        return Recognised("", "a spreadsheet", unusable=_SPREADSHEET)
    if head.form == "zstd":
        return Recognised(
            "", "a file that zstd packed", unusable="unpack it: `zstd -d FILE`; gzip, bzip2 and xz are read as they are"
        )
    if head.form == "yaml" and re.search(r"^evalId:", head.text, re.MULTILINE):
        fix = "YAML is not read: `promptfoo eval --output results.json` writes the same results"
        return Recognised("", "promptfoo results in YAML", ("evalId", "results"), unusable=fix)
    if head.form == "yaml":
        return Recognised("", "YAML", unusable=_YAML)
    return None


def _archive(names: Sequence[str]) -> Recognised:
    if any(name.startswith("_journal/") or name == "header.json" for name in names):
        fix = "it is packed: `inspect log dump FILE > log.json` (or `inspect log convert --to json`) writes it as JSON"
        return Recognised("", "an Inspect log", ("header.json",), unusable=fix)
    if any(name.startswith("xl/") for name in names):
        return Recognised("", "a spreadsheet", unusable=_SPREADSHEET)
    return Recognised("", "a zip archive", unusable="unpack it and give the file inside")


def _by_names(head: FileHead) -> Recognised | None:
    """The first known shape whose names are there, with the options of all others that fit."""
    record = head.merged()
    fitting = [(shape, names) for shape in shapes() if (names := _fits(shape, record, head)) is not None]
    if not fitting:
        return None
    shape, names = fitting[0]
    options = dict.fromkeys(known.option for known, _ in fitting if known.option)
    others = tuple(option for option in options if option != shape.option) if shape.option else ()
    return Recognised(shape.option, shape.description, names, shape.words, others, shape.unusable)


def _fits(shape: Shape, record: Mapping[str, Any], head: FileHead) -> tuple[str, ...] | None:
    """The names by which the shape fits; None where it does not."""
    value = record if shape.within == "record" else head.document
    if not value or (shape.forms and head.form not in shape.forms):
        return None
    if any(has_name(value, name) for name in shape.none_of) or not all(has_name(value, name) for name in shape.all_of):
        return None
    present = tuple(name for name in shape.any_of if has_name(value, name))
    return (*shape.all_of, *present) if present or not shape.any_of else None


def has_name(value: Any, name: str) -> bool:
    """Whether a name leads somewhere: through objects, into the first object of a list, `*` for any name or rest of one."""
    if isinstance(value, list):
        return bool(value) and has_name(value[0], name)
    if not isinstance(value, Mapping):
        return False
    if name in value:
        return True
    if name.endswith(".*") and any(isinstance(key, str) and key.startswith(name[:-1]) for key in value):
        return True
    first, _, rest = name.partition(".")
    if first == "*":
        return bool(value) and all(has_name(item, rest) for item in value.values())
    return bool(rest) and first in value and has_name(value[first], rest)


def _native(head: FileHead) -> Recognised | None:
    """The native form: a question, and no name that it does not have."""
    path, records = record_list(head)
    names = dict.fromkeys(name for record in records for name in record if name != INDEX_COLUMN)
    if "question" not in names or not names.keys() <= _NATIVE_NAMES or len(names) < 2:
        return None
    words = (f"dataset.records={path}",) if path else ()
    return Recognised(NATIVE, "a data set in the native form", tuple(names), words)


def _numbers(head: FileHead) -> Recognised | None:
    """Files without any text: parts of other data sets, and tables of scores."""
    record, document = head.merged(), head.document
    if {"_id", "text"} <= record.keys() or {"query-id", "corpus-id", "score"} <= record.keys():
        return Recognised("", "a file of a BEIR data set", tuple(record)[:3], unusable=_BEIR_PART)
    if len(record) >= _MIN_NUMBERS and all(isinstance(value, int | float) for value in record.values()):
        return Recognised(
            "", "a table of scores", tuple(record)[:4], unusable="it holds no questions or answers: export them with it"
        )
    if not isinstance(document, dict) or not document:
        return None
    values = list(document.values())
    if all(isinstance(value, int | float) for value in values):
        return Recognised("", "a list of scores", tuple(document)[:4], unusable="it holds no questions or answers")
    if all(
        isinstance(value, dict) and value and all(isinstance(x, int | float) for x in value.values())
        for value in values
    ):
        return Recognised(
            "", "retrieval results as scores by query and document", unusable=f"{_BEIR_PART}, or write it as a TREC run"
        )
    if (
        len(values) >= _MIN_NUMBERS
        and all(isinstance(value, str) for value in values)
        and len({len(k) for k in document}) == 1
    ):
        fix = "it holds texts without questions: as predictions for SQuAD it goes with the data set, `dataset=squad`"
        return Recognised("", "an object of texts by id", unusable=fix)
    return None


def reader_words(path: Path, head: FileHead, option: str = "") -> list[str]:
    """Words for a file whose name does not say its format, unless the option does, and for another separator than a comma."""
    words = []
    is_unusual = suffix_of(path) not in SUFFIXES or head.form in ("json_columns", "json_objects")
    if is_unusual and not _sets_format(option):
        words.append(f"dataset.format={head.form}")
    if head.form == "csv" and head.delimiter != "," and suffix_of(path) != ".tsv":
        words.append(f"dataset.delimiter={head.delimiter}")
    return words


def _sets_format(option: str) -> bool:
    """Whether a shipped option says in which format its files are, itself or by the option that it is based on."""
    path = option_files("dataset").get(option)
    text = path.read_text(encoding="utf-8") if path else ""
    if re.search(r"^format:(?! *auto\b)", text, re.MULTILINE):
        return True
    base = re.search(r"^defaults: \[(\w+), _self_\]", text, re.MULTILINE)
    return base is not None and _sets_format(base[1])
