"""The drawing of the rooms in docs/architecture.md, made from the imports of the package.

python docs/rooms.py            write it
python docs/rooms.py --check    exit 1 where it is stale, or where an import points to a room above
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "ragpipe"
PAGE = Path(__file__).resolve().parent / "architecture.md"
ROOMS = (
    "core", "stats", "store", "judge", "data", "metrics", "score", "comparison", "calibration", "report", "runs", "cli", "testing",
    "example_rag", "extras",
)  # fmt: skip
"""From the bottom to the top: a room imports from rooms that stand before it, and from itself."""


def imported_rooms(room: str) -> set[str]:
    """The other rooms that any module of a room imports, in functions too."""
    return {name for path in (PACKAGE / room).rglob("*.py") for name in _rooms_in(path)} - {room}


def _rooms_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "ragpipe":
            names = [f"ragpipe.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("ragpipe."))


def sentence(room: str) -> str:
    """The first sentence of the room's `__init__`."""
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.])\s", text.partition("\n\n")[0].replace("\n", " "), maxsplit=1)[0].rstrip(".")


def drawing() -> str:
    """A line per room, the top one first, with what it imports below it."""
    width = max(map(len, ROOMS))
    lines = []
    for room in reversed(ROOMS):
        below = [name for name in ROOMS if name in imported_rooms(room)]
        lines += [f"{room:<{width}}  {sentence(room)}", f"{'':<{width}}  -> {' '.join(below) or 'nothing of ours'}"]
    return "\n".join(lines)


def arrows_back() -> list[str]:
    """Imports of a room that stands above: there are none."""
    place = {room: floor for floor, room in enumerate(ROOMS)}
    found = [(room, other) for room in ROOMS for other in imported_rooms(room)]
    return [f"{room} imports {other}" for room, other in sorted(found) if place.get(other, -1) > place[room]]


def main(check: bool) -> int:
    page = PAGE.read_text(encoding="utf-8")
    made = re.sub(
        r"(<!-- generated: rooms -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}```text\n{drawing()}\n```\n{match[2]}",
        page,
        count=1,
        flags=re.S,
    )
    back = arrows_back()
    for arrow in back:
        print(f"an arrow back: {arrow}")
    if check:
        if made != page:
            print("docs/architecture.md is stale: run `python docs/rooms.py`")
        return int(made != page or bool(back))
    PAGE.write_text(made, encoding="utf-8")
    return int(bool(back))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
