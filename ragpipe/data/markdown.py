"""Markdown documents read from a folder: front matter, title, and one section per heading.

Front matter is YAML between two lines `---` at the start of a file:

    ---
    title: Kestrel leak sensor
    date: 2026-03-02                    # ISO: the day from which the note holds
    policy: quote_only                  # summarize (may be told in other words), quote_only, no_use
    doc_type: product
    replaces: products/kestrel-2025.md  # the older note that this one takes the place of
    ---

All keys are optional, and others are kept as they are. Headings are those of CommonMark, in both of its forms; a `#` inside a code block, a
quotation or a list is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, get_args

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Policy
from ragpipe.core.yaml_files import FastLoader, check_text, yaml_problem

POLICIES: tuple[str, ...] = get_args(Policy)
_SUFFIXES = frozenset({".md", ".markdown"})
_TITLE = "the documents cannot be used"


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A heading and what stands under it, without what belongs to its sub-headings.

    `heading_path` is the heading below those that it belongs to (`Kestrel > Prices`), empty for text before the first
    heading; `level` is 1 to 6, 0 for such text. `text` may be empty. `line` (from 1) is that of the heading in the file.
    """

    heading_path: str
    level: int
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file: `rel_path` below the folder with `/`; `title` of the front matter, else of the first heading of level 1, else the
    file's name. Dates in `front_matter` are ISO texts."""

    rel_path: str
    title: str
    front_matter: dict[str, Any] = field(default_factory=dict)
    sections: tuple[DocumentSection, ...] = ()

    @property
    def policy(self) -> Policy:
        """How the document may be used; `summarize` where it does not say."""
        return self.front_matter.get("policy", "summarize")  # type: ignore[no-any-return]  # checked when it was read


def read_documents(folder: Path) -> list[Document]:
    """All Markdown files (`.md`, `.markdown`) below `folder`, sorted by path; hidden files and folders are passed over.

    Raises one DataError, with file and line of every fault, for text that is not UTF-8, for front matter that is no YAML
    mapping or has a wrong value, and for a folder that is absent or has no Markdown file.
    """
    if not folder.is_dir():
        raise DataError(_TITLE, [Problem(str(folder), "folder", "no folder", "a folder with Markdown files (*.md)")])
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES and path.is_file() and "/." not in f"/{path.relative_to(folder).as_posix()}"
    }
    if not paths:
        raise DataError(_TITLE, [Problem(str(folder), "folder", "no Markdown file", "files *.md, also in sub-folders")])
    problems: list[Problem] = []
    documents = []
    for rel_path in sorted(paths):
        try:
            documents.append(parse_document(paths[rel_path].read_bytes(), rel_path))
        except DataError as error:
            problems += error.problems
    for document in documents:
        replaced = document.front_matter.get("replaces")
        if replaced is not None and (replaced not in paths or replaced == document.rel_path):
            expected = "the path of another document, from the top of the folder"
            problems.append(Problem(document.rel_path, "replaces", repr(replaced), expected))
    if problems:
        raise DataError(_TITLE, problems)
    return documents


def parse_document(raw: bytes, rel_path: str) -> Document:
    """One file as a document. Raises DataError as `read_documents` does."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(f"{rel_path}:{line}", "text", f"the byte 0x{raw[error.start]:02x}", "UTF-8", "save the file as UTF-8")
        raise DataError(_TITLE, [problem]) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    end = _front_matter_end(lines, rel_path)
    front_matter = _front_matter(lines[1 : end - 1], rel_path) if end else {}
    sections = _sections(lines, end)
    first = next((section.heading_path for section in sections if section.level == 1), "")
    title = front_matter.get("title") or first or Path(rel_path).stem
    return Document(rel_path, title, front_matter, sections)


def _front_matter_end(lines: list[str], rel_path: str) -> int:
    if lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() in ("---", "..."):
            return number
    actual, fix = "no second line ---", "close it, or begin the file with another line"
    raise DataError(_TITLE, [Problem(f"{rel_path}:1", "front matter", actual, "a line --- at its end", fix)])


def _front_matter(lines: list[str], rel_path: str) -> dict[str, Any]:
    text = "\n".join(lines)
    if problems := check_text(text, rel_path, lines_before=1):
        raise DataError(_TITLE, problems)
    try:
        values = yaml.load(text, Loader=FastLoader) or {}
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-02-31
        problem = Problem(f"{rel_path}:1", "front matter", str(error), "valid YAML")
        if isinstance(error, yaml.YAMLError):
            problem = yaml_problem(error, rel_path, text, 1)
        raise DataError(_TITLE, [problem]) from None
    front_matter = {str(key): _plain(value) for key, value in values.items()}
    if problems := list(_wrong_values(front_matter, lines, rel_path)):
        raise DataError(_TITLE, problems)
    return {key: value for key, value in front_matter.items() if value is not None}


def _plain(value: Any) -> Any:
    """A value as JSON has it: dates are ISO texts."""
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _wrong_values(front_matter: Mapping[str, Any], lines: list[str], rel_path: str) -> list[Problem]:
    """The faults of the keys that have a meaning."""
    expected = {
        "title": "a text",
        "doc_type": "a text",
        "replaces": "the path of another document, from the top of the folder",
        "date": "a date as YYYY-MM-DD",
        "policy": f"one of {', '.join(POLICIES)}",
    }
    problems = []
    for key, form in expected.items():
        value = front_matter.get(key)
        if value is None or _fits(key, value):
            continue
        line = next((n for n, text in enumerate(lines, 2) if text.lstrip("\"'").startswith(key)), 1)
        fix = "put it in quotes" if key in ("title", "doc_type") and not isinstance(value, list | dict) else ""
        problems.append(Problem(f"{rel_path}:{line}", key, repr(value), form, fix))
    return problems


def _fits(key: str, value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    if key == "policy":
        return value in POLICIES
    if key == "date":
        try:
            return date.fromisoformat(value[:10]).isoformat() == value[:10]
        except ValueError:
            return False
    return True


def _sections(lines: list[str], start: int) -> tuple[DocumentSection, ...]:
    """The sections of the lines after the front matter, which has `start` lines."""
    body = lines[start:]
    tokens = MarkdownIt("commonmark").parse("\n".join(body))
    headings = [
        (int(token.tag[1:]), _heading_text(tokens[place + 1]), token.map[0], token.map[1])
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    ends = [first for _, _, first, _ in headings[1:]] + [len(body)]
    before = body[: headings[0][2]] if headings else body
    first_line = next((number for number, line in enumerate(before) if line.strip()), None)
    sections = [] if first_line is None else [DocumentSection("", 0, _block(before), start + first_line + 1)]
    above: list[tuple[int, str]] = []
    for (level, text, first, after), end in zip(headings, ends, strict=False):
        above = [(upper, name) for upper, name in above if upper < level] + [(level, text)]
        heading_path = " > ".join(name for _, name in above)
        sections.append(DocumentSection(heading_path, level, _block(body[after:end]), start + first + 1))
    return tuple(sections)


def _block(lines: list[str]) -> str:
    """Lines as one text, without blank lines at its ends; the indent of its first line stays."""
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[numbers[0] : numbers[-1] + 1]).rstrip() if numbers else ""


def _heading_text(inline: Token) -> str:
    """A heading without its Markdown marks, on one line."""
    parts = (" " if child.type.endswith("break") else child.content for child in inline.children or ())
    return " ".join("".join(parts).split())
