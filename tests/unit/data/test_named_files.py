"""Which files `dataset.path` and `dataset.files` name: on disk, in an object store and on a web server alike."""

import fsspec
import pytest

from ragpipe.core.errors import DataError
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings
from tests.support.s3_server import s3_server

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

PLACES = ["local", "memory", "http"]


@pytest.fixture
def server():
    with s3_server() as server:
        yield server


@pytest.fixture
def ids(server, tmp_path):
    """The ids that a data set of `files` has, at one of the places, below the folder `d`."""

    def read(place, names, path, **files):
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        for name in names:
            line = b'{"id": "%s", "question": "q"}\n' % name.encode()
            server.objects[f"b/d/{name}"] = line
            memory.pipe(f"/b/d/{name}", line)
            (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "d" / name).write_bytes(line)
        root = {"local": "d", "memory": "memory://b/d", "http": f"{server.endpoint}/b/d"}[place]
        settings = DatasetSettings(path=f"{root}/{path}".rstrip("/"), files=files)
        dataset = open_dataset(settings, tmp_path, tmp_path / "cache")
        return [record.sample.id for record in dataset]

    return read


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("main", "found"), [(["a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"]), ("*.jsonl", ["a.jsonl"])])
def test_main_may_name_several_files_beside_the_path_but_a_pattern_is_for_a_folder(ids, place, main, found):
    """Shapes with a pattern, such as golden_set, read one file too."""
    assert ids(place, ["a.jsonl", "b.jsonl", "c.jsonl"], "a.jsonl", main=main) == found


@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_main_leaves_out_is_refused(ids, place):
    """Neither the one nor the others may be left out without a word."""
    with pytest.raises(DataError, match=r"not in files\.main: b\.jsonl, c\.jsonl") as caught:
        ids(place, ["a.jsonl", "b.jsonl", "c.jsonl"], "a.jsonl", main=["b.jsonl", "c.jsonl"])
    assert "name the file in dataset.files.main" in caught.value.problems[0].fix


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize(("pattern", "found"), [
    ("*.jsonl", ["a.jsonl", "b.jsonl", "c.jsonl"]), (".*.jsonl", [".h.jsonl"]), ("[ab]*.jsonl", ["a.jsonl", "b.jsonl"]),
    ("[!a]*.jsonl", ["b.jsonl", "c.jsonl"]), ("**/*.jsonl", ["a.jsonl", "b.jsonl", "c.jsonl", "d/a.jsonl"]),
    (".s/*.jsonl", [".s/a.jsonl"]), ("?*/a.jsonl", ["d/a.jsonl"]),
])  # fmt: skip
def test_a_pattern_takes_hidden_files_only_where_it_names_the_dot(ids, place, pattern, found):
    names = ["a.jsonl", "b.jsonl", "c.jsonl", ".h.jsonl", "d/a.jsonl", "d/.h.jsonl", ".s/a.jsonl"]
    assert ids(place, names, "", main=pattern) == found


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("pattern", ["a**.jsonl", "d/**", "**a/*.jsonl"])
def test_what_is_no_pattern_is_said(ids, place, pattern):
    with pytest.raises(DataError, match="stands for whole folders") as caught:
        ids(place, ["a.jsonl"], "", main=pattern)
    assert pattern in caught.value.problems[0].found
