"""Pages as tests: the files, commands, Python blocks and expected outputs that a Markdown page shows, in their order.

A fence after a line that ends in `` `path`: `` is a file. A `bash` fence is a list of commands; a `text` fence after it is
what they print (lines in this order; runs of blanks count as one; `...` stands for anything). A `json` fence after a line
that ends in "the same as:" is the native form of the data set above it; one after "is sent:" or "and answers:" is what an HTTP
system gets and gives; any other holds native records. A `python` fence is run.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"(?:^(?P<before>[^\n]+)\n\n?)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
_FILE = re.compile(r"`([\w./\-]+)`[^`]*:$")
Kind = Literal["file", "commands", "shows", "same", "request", "response", "data", "python", "other"]
_BEFORE: dict[str, Kind] = {"the same as:": "same", "is sent:": "request", "and answers:": "response"}


@dataclass(frozen=True)
class Step:
    kind: Kind
    text: str
    path: str = ""


@dataclass(frozen=True)
class Section:
    """A `## ` section of a page: its examples share a folder."""

    page: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page} {self.title}"

    @property
    def steps(self) -> list[Step]:
        return [_step(found) for found in _FENCE.finditer(self.text)]


IN_ONE = ("tutorial.md",)
"""Pages that are followed from the first section to the last: all their examples share one folder."""


def sections(page: str) -> list[Section]:
    """The sections of a page below `docs/` (or `README.md`) that hold any fence; a page of `IN_ONE` as one."""
    path = ROOT / page if page == "README.md" else DOCS / page
    if page in IN_ONE:
        return [Section(page, "from the first step to the last", path.read_text(encoding="utf-8"))]
    parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.M)
    found = [Section(page, *_titled(part, first=index == 0)) for index, part in enumerate(parts)]
    return [section for section in found if section.steps]


def _titled(part: str, *, first: bool) -> tuple[str, str]:
    title, _, text = part.partition("\n")
    return title.removeprefix("# "), text if first else f"## {title}\n{text}"


def _step(found: re.Match[str]) -> Step:
    before, kind, text = (found["before"] or "").strip(), found["kind"], found["text"]
    if file := _FILE.search(before):
        return Step("file", text, file[1])
    for ending, meant in _BEFORE.items():
        if before.endswith(ending):
            return Step(meant, text)
    return Step({"bash": "commands", "text": "shows", "python": "python", "json": "data"}.get(kind, "other"), text)  # type: ignore[arg-type]


def commands(text: str) -> list[str]:
    """The lines of a `bash` fence without comments; a line that ends in a backslash goes on."""
    return [line for line, _ in commands_with_codes(text)]


def commands_with_codes(text: str) -> list[tuple[str, int]]:
    """The same, each with its exit code: what a comment behind it says (`# exit code 3`), else 0, or 2 for a `broken` file."""
    found = []
    for raw in text.replace("\\\n", " ").split("\n"):
        if line := re.sub(r"(?:^|\s{2,})# .*$", "", raw).strip():
            said = re.search(r"# .*?exit code (\d+)", raw)
            found.append((line, int(said[1]) if said else 2 if "broken" in line else 0))
    return found


def missing(shown: str, printed: str) -> str | None:
    """The first line of `shown` that `printed` does not hold after the one before it; None when all are there."""
    rest = plain(printed)
    for line in shown.strip().split("\n"):
        found = re.search(r".*?".join(re.escape(plain(piece)) for piece in line.split("...") if plain(piece)), rest)
        if not found:
            return line
        rest = rest[found.end() :]
    return None


def plain(text: str) -> str:
    return " ".join(text.replace("─", " ").split())
