"""Which files `dataset.path` and `dataset.files` name: on disk, in a bucket and on a web server alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.core.errors import DataError
from ragpipe.datasets.dataset import open_dataset
from ragpipe.datasets.settings import DatasetSettings
from tests.support.buckets import server, storage_at
from tests.support.s3_server import S3Server

__all__ = ["server"]
Ids = Callable[..., list[str]]
PLACES = ["local", "s3", "http"]


@pytest.fixture
def ids(server: S3Server, tmp_path: Path) -> Ids:
    """The ids that a data set of `files` has, at one of the places, below the folder `d`."""

    def read(place: str, names: list[str], path: str, **files: str | list[str]) -> list[str]:
        for name in names:
            line = b'{"id": "%s", "question": "q"}\n' % name.encode()
            server.objects[f"b/d/{name}"] = line
            (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "d" / name).write_bytes(line)
        root = {"local": "d", "s3": "s3://b/d", "http": f"{server.endpoint}/b/d"}[place]
        settings = DatasetSettings(path=f"{root}/{path}".rstrip("/"), files=files)
        dataset = open_dataset(settings, tmp_path, storage_at(server, tmp_path / "cache"))
        return [record.sample.id for record in dataset]

    return read


@pytest.mark.parametrize("place", PLACES)
def test_main_may_name_several_files_beside_the_path(ids: Ids, place: str) -> None:
    found = ids(place, ["a.jsonl", "b.jsonl", "c.jsonl"], "a.jsonl", main=["a.jsonl", "b.jsonl"])
    assert found == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_main_leaves_out_is_refused(ids: Ids, place: str) -> None:
    """Neither the one nor the others may be left out without a word."""
    with pytest.raises(DataError, match=r"not in files\.main: b\.jsonl, c\.jsonl") as caught:
        ids(place, ["a.jsonl", "b.jsonl", "c.jsonl"], "a.jsonl", main=["b.jsonl", "c.jsonl"])
    assert "name the file in dataset.files.main" in caught.value.problems[0].fix


@pytest.mark.parametrize("place", PLACES)
def test_a_pattern_is_for_a_folder(ids: Ids, place: str) -> None:
    """Shapes with a pattern, such as golden_set, read one file too."""
    assert ids(place, ["a.jsonl", "b.jsonl"], "a.jsonl", main="*.jsonl") == ["a.jsonl"]
