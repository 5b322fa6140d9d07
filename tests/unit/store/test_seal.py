"""Which seals are believed: a seal may come from a stranger, and its names are joined to a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.store.run.seals import closed_seal, open_seal

WHOLE: dict[str, Any] = {
    "manifest": {},
    "files": {"final/metrics.json": "0" * 64},
    "tables": {},
    "spent": {},
    "prices": {},
}


def written(folder: Path, text: str) -> Path:
    path = folder / "seal.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_seal_is_read_back(tmp_path: Path) -> None:
    found = open_seal(written(tmp_path, json.dumps(closed_seal(WHOLE))))
    assert found is not None
    assert {key: found[key] for key in WHOLE} == WHOLE


@pytest.mark.parametrize("part", ["files", "tables"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../other/samples.parquet", "iteration-1/../../x", "a\0b"])
def test_a_seal_that_names_a_file_elsewhere_is_refused(tmp_path: Path, part: str, name: str) -> None:
    """Its digest fits: whoever writes a seal can compute it."""
    path = written(tmp_path, json.dumps(closed_seal({**WHOLE, part: {name: "0" * 64}})))
    with pytest.raises(ValueError, match=f"`{part}` names more than files of this folder"):
        open_seal(path)


@pytest.mark.parametrize("part", ["files", "tables"])
def test_a_seal_whose_parts_are_no_mappings_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(ValueError, match=f"`{part}` names"):
        open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, part: ["final/metrics.json"]}))))


def test_names_that_only_look_like_going_up_are_files_of_the_folder(tmp_path: Path) -> None:
    names = {"prompts/a..b.jinja": "0" * 64, "..x/y": "0" * 64}
    found = open_seal(written(tmp_path, json.dumps(closed_seal({**WHOLE, "files": names}))))
    assert found is not None
    assert found["files"] == names


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 200_000, '{"files": {}, "tables": {}, "digest": "0"}'])
def test_a_damaged_seal_is_a_value_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"digest|no readable JSON|a JSON list"):
        open_seal(written(tmp_path, text))
