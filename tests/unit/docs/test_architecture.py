"""The architecture page: its rooms are those of the layers test, in order, and every function that it names exists."""

import re
from importlib import import_module
from typing import Any

import pytest

from tests.support.pages import DOCS
from tests.unit.test_layers import MODULES, ROOMS

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.partition("## The way of a case")[2])) - {"records.parquet"})


def resolve(name: str) -> Any:
    """The object behind a dotted name below `ragpipe`."""
    parts = f"ragpipe.{name}".split(".")
    length = max(n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in MODULES)
    value: Any = import_module(".".join(parts[:length]))
    for part in parts[length:]:
        value = getattr(value, part)
    return value


def test_the_drawing_shows_the_rooms_in_their_order() -> None:
    drawing = PAGE.split("```text\n")[1].partition("```")[0]
    rooms = [line.split()[0] for line in drawing.splitlines()]
    assert rooms == list(reversed(ROOMS)), "docs/architecture.md draws other rooms than ROOMS in tests/unit/test_layers.py"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith((".parquet", ".md", ".py"))])
def test_what_the_page_names_exists(name: str) -> None:
    assert resolve(name) is not None
