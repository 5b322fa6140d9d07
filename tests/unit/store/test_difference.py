"""The words for the first difference of two files: what differs is shown, however long the texts are."""

import json
from pathlib import Path

import pytest

from ragpipe.store.run.file_difference import first_difference

LONG = "a" * 300


@pytest.mark.parametrize(("name", "found", "expected", "said"), [
    ("x.json", json.dumps({"k": 1}), json.dumps({"k": 2}), "k: 1, expected 2"),
    ("x.json", json.dumps({"k": LONG + "1z"}), json.dumps({"k": LONG + "2z"}), f"k: ...{'a' * 20}1z', expected ...{'a' * 20}2z'"),
    ("x.json", json.dumps({"k": "1" + LONG}), json.dumps({"k": "2" + LONG}), f"k: '1{'a' * 75}..., expected '2{'a' * 75}..."),
    ("x.md", f"same\n{LONG}1", f"same\n{LONG}2", f"line 2: ...{'a' * 20}1', expected ...{'a' * 20}2'"),
    ("x.md", f"{LONG}", f"{LONG}", None),
])  # fmt: skip
def test_what_differs_is_shown(tmp_path: Path, name: str, found: str, expected: str, said: str | None) -> None:
    (tmp_path / "found").mkdir()
    (tmp_path / "expected").mkdir()
    (tmp_path / "found" / name).write_text(found)
    (tmp_path / "expected" / name).write_text(expected)
    assert first_difference(tmp_path / "found" / name, tmp_path / "expected" / name) == said
