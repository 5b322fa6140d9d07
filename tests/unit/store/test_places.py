"""What an address may be: it is written into messages and files, so it holds no key. And which store a setting means."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from ragpipe.core import registry
from ragpipe.core.errors import Problem
from ragpipe.core.settings import NoOrigins, validated
from ragpipe.data.settings import DatasetSettings
from ragpipe.runs.settings import StoreSettings
from ragpipe.store.call_database import StorePlace, call_database, store_place_of
from ragpipe.store.places import address_below, address_fault, is_remote, name_fault, name_of, parent_of, publishing_fault


@pytest.mark.parametrize("address", [
    "s3://bucket/a/b.jsonl", "gs://bucket", "abfss://container@account.dfs.core.windows.net/a.jsonl", "hdfs:///data/a.jsonl",
    "s3://bucket/folder/", "https://host/a//b.jsonl", "https://host:8080/a.jsonl?download=1", "memory://a/b",
    "hf://datasets/org/name/a.jsonl",
])  # fmt: skip
def test_good_addresses(address: str) -> None:
    assert is_remote(address)
    assert address_fault(address) is None


@pytest.mark.parametrize(("address", "expected"), [
    ("s3://AKIA:secret@bucket/a", "without a user or a key"), ("https://user@host/a", "without a user or a key"),
    ("abfss://container:key@account/a", "without a user or a key"), ("s3://bucket/a?endpoint_override=x", "settings of fsspec"),
    ("https://host/a?X-Amz-Signature=00&X-Amz-Date=1", "without a key or a signature"),
    ("https://host/a?sv=1&sig=00", "without a key or a signature"),
    ("https://host/a?X-Goog-Credential=00", "without a key or a signature"),
    ("https://host/a?access_token=00", "without a key or a signature"), ("s3:///a", "with a bucket"),
    ("s3://bucket/a/../b", "without `..`"), ("s3://bucket//a", "without an empty part"), ("gs://bucket/a//b", "without an empty part"),
    ("file:///tmp/a", "the path itself"),
])  # fmt: skip
def test_bad_addresses(address: str, expected: str) -> None:
    fault = address_fault(address)
    assert fault is not None
    assert expected in fault


@pytest.mark.parametrize(("folder", "name"), [
    ("https://host/a/0.jsonl", "b/c.jsonl?download=1"), ("s3://bucket/a", "*.jsonl"), ("s3://bucket/a", "part-?/**/*.jsonl"),
    ("s3://bucket/a", "what?.jsonl"), ("data", "../other/x.jsonl"), ("data/a.jsonl", "/elsewhere/x.jsonl"),
])  # fmt: skip
def test_good_names_below_a_folder(folder: str, name: str) -> None:
    assert name_fault(folder, name) is None


@pytest.mark.parametrize(("folder", "name", "expected"), [
    ("http://host/b/0.jsonl", "c.jsonl?X-Amz-Signature=00&X-Amz-Credential=k", "without a key or a signature"),
    ("s3://bucket/a", "*.jsonl?X-Amz-Signature=00", "without a key or a signature"), ("s3://bucket/g", "../x", "without `..`"),
    ("s3://bucket/g", "h/../../*.jsonl", "without `..`"), ("s3://bucket/g", "https://user:secret@host/x", "not an address of its own"),
    ("data", "https://host/x?sig=00", "not an address of its own"), ("s3://bucket/g", "/1.jsonl", "without an empty part"),
])  # fmt: skip
def test_bad_names_below_a_folder(folder: str, name: str, expected: str) -> None:
    """A name is written where addresses are, and is read below its folder alone."""
    fault = name_fault(folder, name)
    assert fault is not None
    assert expected in fault
    with pytest.raises(ValidationError, match=re.escape(expected)):
        DatasetSettings(path=folder, files={"main": "a.jsonl", "gold": ["b.jsonl", name]})


def test_addresses_of_places() -> None:
    assert publishing_fault("s3://bucket/runs") is None
    assert "without an empty part" in str(publishing_fault("s3://bucket//runs"))
    assert "only read" in str(publishing_fault("https://host/runs"))
    assert "such as s3://" in str(publishing_fault("runs"))
    assert address_below("s3://b/a/", "x.json") == "s3://b/a/x.json"
    assert parent_of("s3://b/a/x.json") == "s3://b/a"
    assert parent_of("https://h/a/x.json?next=/y/z") == "https://h/a"
    assert (name_of("s3://b/a/x#1.json"), name_of("https://h/a/x.json?y=1")) == ("x#1.json", "x.json")


@pytest.mark.parametrize("path", ["data.jsonl", "/a/b.jsonl", "package:demo.jsonl", "here:a.jsonl", r"C:\a.jsonl", "a:b"])
def test_paths_are_no_addresses(path: str) -> None:
    assert not is_remote(path)


class Mine:
    """A database of an extra, as far as settings ask it."""

    def __init__(self, url: str):
        self.given = url


def problems_of(section: dict[str, object]) -> list[Problem]:
    problems: list[Problem] = []
    validated(StoreSettings, section, "store", NoOrigins(), problems)
    return problems


def test_a_store_is_a_file_or_what_is_registered_for_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_place_of(None, None, "out") == Path("out/.store/calls.sqlite")
    assert store_place_of(None, "mine", "out") == Path("mine/calls.sqlite")
    monkeypatch.setattr(registry, "find", lambda kind, name: Mine if (kind, name) == ("store", "mine") else None)
    place: StorePlace = store_place_of("mine://h/db", None, "out")
    assert isinstance(place, Mine)
    assert (place.given, call_database(place)) == ("mine://h/db", place)
    (problem,) = problems_of({"path": "here", "url": "mine://h/db"})
    assert problem.key == "store.url"
    assert "one place" in problem.expected


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "hunter2", "//hunter2"])
def test_an_address_that_nothing_opens_is_refused_by_those_that_something_opens(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", lambda kind: ["mine", "other"])
    (problem,) = problems_of({"url": url})
    assert (problem.key, problem.expected) == ("store.url", "an address that begins with mine:// or other://")
    assert "hunter2" not in problem.expected
