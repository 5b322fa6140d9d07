"""A file in parts has the records of the whole file, with the same places and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragpipe.datasets.dataset import Dataset, open_dataset
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.file_locator import Files
from ragpipe.datasets.file_parts import UnevenLines
from ragpipe.datasets.settings import DatasetSettings

MAPPED = {"question": "q", "answer": "a", "id": "join('-', ['i', to_string(_index), to_string(_line), _file])"}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


def read(dataset: Dataset) -> list[tuple[Any, ...]]:
    faults = Faults("")
    records = [(record.where, record.sample, record.output) for record in dataset.checked_records(faults)]
    return [*records, *((problem.where, problem.key, problem.found) for problem in faults.problems)]


def in_parts(dataset: Dataset, config: DatasetSettings, size: int) -> list[tuple[Any, ...]]:
    parts = dataset.parts(size)
    assert parts is not None
    return [row for part in parts for row in read(Dataset(config, Files(dataset.display_path, (part,), {})))]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), min_size=1, max_size=3),
    st.integers(1, 120), st.booleans(), st.sampled_from(["\n", "\r\n"]), st.booleans(),
)  # fmt: skip
def test_parts_are_the_whole(
    tmp_path: Path, files: list[list[tuple[str, str]]], size: int, ends: bool, newline: str, mark: bool
) -> None:
    """Whatever the size of a part: several files, with a byte order mark or without, with a last line end or without."""
    for number, rows in enumerate(files):
        lines = [json.dumps({"q": f"Q{q}", "a": a}, ensure_ascii=number > 0) for q, a in rows]
        text = newline.join(lines) + (newline if ends else "")
        (tmp_path / f"{number}.jsonl").write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.encode())
    names = [f"{number}.jsonl" for number in range(len(files))]
    config = DatasetSettings.model_validate({"path": str(tmp_path), "files": {"main": names}, "fields": MAPPED})
    dataset = open_dataset(config, tmp_path)
    assert in_parts(dataset, config, size) == read(dataset)


@pytest.mark.parametrize("line", ["", "  ", ' {"question": "b"}', "[1]", "nonsense"])
def test_a_line_that_is_no_object_cannot_be_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / "d.jsonl").write_text('{"question": "a"}\n' + line + "\n" + '{"question": "c"}\n')
    parts = open_dataset(DatasetSettings(path="d.jsonl"), tmp_path).parts(10)
    assert parts is not None
    with pytest.raises(UnevenLines):
        list(parts)


@pytest.mark.parametrize(
    "options",
    [{"limit": 3}, {"sample": {"n": 2, "seed": 1}}, {"records": "rows"}, {"format": "json"}],
)
def test_records_that_depend_on_each_other_are_not_parted(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "d.jsonl").write_text('{"question": "a"}\n')
    config = DatasetSettings.model_validate({"path": "d.jsonl", **options})
    assert open_dataset(config, tmp_path).parts(10) is None
