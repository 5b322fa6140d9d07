"""The place of a store by its settings: a file or a database, and never a password."""

import sys
from pathlib import Path

import pytest

from ragpipe.config.settings import StoreSettings
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import NoOrigins, validated
from ragpipe.store.calls.call_store import CallStore
from ragpipe.store.calls.store_place import PostgresPlace, store_place_of, url_fault


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u@h:5432/db", PostgresPlace("postgresql://u@h:5432/db", "ragpipe")),
        ("postgres://h/db?schema=mine", PostgresPlace("postgres://h/db", "mine")),
        ("postgresql:///db?sslmode=require&schema=s_1", PostgresPlace("postgresql:///db?sslmode=require", "s_1")),
        ("postgresql://?service=replies", PostgresPlace("postgresql://?service=replies", "ragpipe")),
        ("postgresql:///db?search_path=x", PostgresPlace("postgresql:///db?search_path=x", "ragpipe")),
    ],
)
def test_the_schema_is_taken_out_of_the_url(url: str, place: PostgresPlace) -> None:
    assert url_fault(url) is None
    assert store_place_of(url, None, "out") == place


def test_without_a_url_it_is_a_file() -> None:
    assert store_place_of(None, None, "out") == Path("out/.store/calls.sqlite")
    assert store_place_of(None, "mine", "out") == Path("mine/calls.sqlite")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hunter2@h/db", "without a password"),
        ("postgresql://u@h/db?password=hunter2", "without a password"),
        ("postgresql://u@h/db?sslpassword=hunter2", "without a password"),
        ("mysql://u@h/db", "an address such as postgresql://"),
        ("postgresql://u@h:port/db", "an address such as postgresql://"),
        ("postgresql://u@h", "names a database"),
        ("postgresql://u@h/db?schema=a;drop", "lower-case letters"),
        ("postgresql://u@h/db?schema=a;drop&schema=mine", "one schema=NAME"),
        ("postgresql://u@h/db?schema=Mine", "lower-case letters"),
        ("postgresql://u@h/db?schem=hunter2", "schema=NAME, in exactly these letters: an option of this URL is nearly"),
        ("postgresql://u@h/db?sslmode=require&Schema=hunter2", "schema=NAME, in exactly these letters"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str, words: str) -> None:
    fault = url_fault(url)
    assert fault is not None
    assert words in fault
    assert "hunter2" not in fault


def test_path_and_url_exclude_each_other() -> None:
    problems: list[Problem] = []
    section = {"path": "here", "url": "postgresql://u@h/db"}
    assert validated(StoreSettings, section, "store", NoOrigins(), problems) is None
    assert [problem.key for problem in problems] == ["store.url"]
    assert "one place" in problems[0].expected


def test_a_missing_driver_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install (?s:.*)'psycopg\[binary\]>=3\.2'"):
        CallStore(PostgresPlace("postgresql://u@h/db"), run_id="r")
