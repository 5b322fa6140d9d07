"""Template files: their text, the YAML front matter, the blocks, and the hash that ignores comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ragpipe.core.digest import sha256
from ragpipe.core.errors import Problem, PromptError
from ragpipe.core.named_files import named_bytes
from ragpipe.core.yaml_files import FastLoader, check_text

MAX_BYTES = 64_000  # of one template file; the largest shipped one has 2,500
_FRONT_MATTER = re.compile(r"(?:\{#.*?#\}\s*)?---\n(.*?)\n---\n", re.S)
_BLOCK = re.compile(r"^\[\[(system|user)\]\][ \t]*\n", re.M)
_FRONT_KEYS = {"roles", "optional", "answer_type", "fences"}
_HEADING = re.compile(r"^[ \t]*\[\[[^\[\]\n]*\]\][ \t]*$", re.M)
_LINE_END = re.compile(r"[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One message of a template: its role, its source, and how many lines of the file come before it."""

    role: str
    source: str
    lines_before: int


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A template file taken apart; nothing in its blocks is checked yet. `fences`: false prints values without tags."""

    path: Path
    text: str
    roles: Mapping[str, str]
    optional: Mapping[str, Any]
    answer_type: str
    blocks: tuple[Block, ...]
    fences: bool = True


def read_template_file(path: Path) -> TemplateFile:
    """Read a file with front matter and blocks. Raises PromptError with the line of what is wrong."""
    text = read_text(path)
    match = _FRONT_MATTER.match(text)
    if not match:
        raise template_error(path, 1, repr(text[:40]), "YAML front matter between two --- lines")
    front = _front_matter(path, match[1], lines_before=text.count("\n", 0, match.start(1)))
    body = text[match.end() :]
    parts = _BLOCK.split(body)
    if len(parts) < 3 or parts[0].strip():
        line = match[0].count("\n") + 1
        expected = "blocks that open with [[system]] or [[user]]"
        raise template_error(path, line, "no [[system]] or [[user]] block", expected)
    if heading := next((found for part in parts[2::2] if (found := _HEADING.search(part))), None):
        line = line_of(text, re.escape(heading[0]))
        raise template_error(path, line, f"the block {heading[0].strip()}", "[[system]] or [[user]]")
    blocks = tuple(_blocks(parts, text, match.end(), body))
    return TemplateFile(path, text, front["roles"], front["optional"], front["answer_type"], blocks, front["fences"])


def line_of(text: str, pattern: str) -> int:
    """The number of the line in which a regular expression first matches, from 1; 1 where it matches nowhere."""
    match = re.search(pattern, text)
    return 1 + text.count("\n", 0, match.start() if match else 0)


def used_in_template(variable: str) -> str:
    """A regular expression for the place where a template uses a variable."""
    return rf"\{{[{{%][^}}]*\b{re.escape(variable)}\b"


def read_text(path: Path) -> str:
    """A template's text. Raises PromptError for one that is too large or not UTF-8."""
    try:
        content = named_bytes(path, MAX_BYTES)
    except OSError as error:
        raise template_error(path, 1, str(error.strerror), f"a file of at most {MAX_BYTES:,} bytes") from error
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise template_error(path, line, f"byte 0x{content[error.start]:02x}", "UTF-8") from error


def template_hash(text: str, includes: Mapping[str, str]) -> str:
    """The sha256 of a template's text and of what it includes (text by name), without comments."""
    texts = (text, *(includes[name] for name in sorted(includes)))
    return sha256("".join(map(without_comments, texts)))


def template_error(path: Path, line: int, value: str, expected: str) -> PromptError:
    """A template that is wrong at this line."""
    return PromptError("a prompt template is wrong", [Problem(f"{path}:{line}", path.name, value, expected)])


def _front_matter(path: Path, source: str, *, lines_before: int) -> dict[str, Any]:
    if problems := check_text(source, str(path), lines_before=lines_before):
        raise PromptError("a prompt template is wrong", problems)
    front = yaml.load(source, Loader=FastLoader) or {}
    front = {"roles": {}, "optional": {}, "answer_type": "", "fences": True, **front} if isinstance(front, dict) else {}
    mappings: list[Any] = [front.get("roles"), front.get("optional")]
    is_read = all(isinstance(part, dict) for part in mappings) and isinstance(front.get("fences"), bool)
    if set(front) != _FRONT_KEYS or not is_read:
        expected = (
            "the mappings `roles` and, if needed, `optional`, the name `answer_type` where the step has several, and "
            "`fences: false` in a template that an audit compares with"
        )
        raise template_error(path, 2, f"front matter {sorted(map(str, front))}", expected)
    names = [front["answer_type"] or "_", *(name for part in mappings for name in part)]
    if invalid := [name for name in names if not (isinstance(name, str) and name.isidentifier())]:
        raise template_error(path, 2, f"the name {invalid[0]!r}", "names of variables, and of an answer type")
    return front


def _blocks(parts: list[str], text: str, body_start: int, body: str) -> Iterator[Block]:
    for role, source in zip(parts[1::2], parts[2::2], strict=True):
        yield Block(role, source, text.count("\n", 0, body_start + body.index(source)))


def without_comments(text: str) -> str:
    """The text without `{# ... #}`, the blanks before them, and a line end that follows. Takes linear time."""
    kept, start = [], 0
    while (opening := text.find("{#", start)) >= 0 and (closing := text.find("#}", opening + 2)) >= 0:
        kept.append(text[start:opening].rstrip(" \t"))
        line_end = _LINE_END.match(text, closing + 2)
        start = line_end.end() if line_end else closing + 2
    return "".join(kept) + text[start:]
