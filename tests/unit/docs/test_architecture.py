"""The architecture page: its drawing is that of the imports, and every function that it names exists."""

import re
from importlib import import_module
from typing import Any

import pytest

from tests.support.docs_site import docs_script
from tests.support.pages import DOCS
from tests.unit.test_layers import MODULES, ROOMS

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(
    set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.partition("## Where things are added")[2])) - {"records.parquet", "metrics.json"}
)


def resolve(name: str) -> Any:
    parts = f"ragpipe.{name}".split(".")
    length = max(n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in MODULES)
    value: Any = import_module(".".join(parts[:length]))
    for part in parts[length:]:
        value = getattr(value, part)
    return value


def test_the_drawing_is_that_of_the_imports_and_shows_the_rooms_of_the_layers() -> None:
    script = docs_script("rooms.py")
    assert script.main(check=True) == 0, "run `python docs/rooms.py`"
    assert [room for room in ROOMS if room != "__main__"] == list(script.ROOMS)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith((".parquet", ".md", ".py"))])
def test_what_the_page_names_exists(name: str) -> None:
    assert resolve(name) is not None
