"""The address of a store in PostgreSQL: a schema, and never a password; and what is installed for it."""

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.extras.postgres.connection import INSTALL
from ragpipe.extras.postgres.database import PostgresDatabase
from ragpipe.store.call_database import store_place_of
from ragpipe.store.call_store import CallStore


@pytest.mark.parametrize(("url", "place"), [
    ("postgresql://u@h:5432/db", PostgresDatabase("postgresql://u@h:5432/db", "ragpipe")),
    ("postgres://h/db?schema=mine", PostgresDatabase("postgres://h/db", "mine")),
    ("postgresql:///db?sslmode=require&schema=s_1", PostgresDatabase("postgresql:///db?sslmode=require", "s_1")),
    ("postgresql://?service=replies", PostgresDatabase("postgresql://?service=replies", "ragpipe")),
    ("postgresql:///db?search_path=x", PostgresDatabase("postgresql:///db?search_path=x", "ragpipe")),
])  # fmt: skip
def test_the_schema_is_taken_out_of_the_url(url: str, place: PostgresDatabase) -> None:
    assert store_place_of(url, None, "out") == place


@pytest.mark.parametrize(("url", "words"), [
    ("postgresql://u:hunter2@h/db", "without a password"),
    ("postgresql://u@h/db?password=hunter2", "without a password"),
    ("postgresql://u@h/db?sslpassword=hunter2", "without a password"),
    ("postgresql://u@h:port/db", "an address such as postgresql://"),
    ("postgresql://u@h", "names a database"),
    ("postgresql://u@h/db?schema=a;drop", "lower-case letters"),
    ("postgresql://u@h/db?schema=a;drop&schema=mine", "one schema=NAME"),
    ("postgresql://u@h/db?schema=Mine", "lower-case letters"),
    ("postgresql://u@h/db?schem=hunter2", "schema=NAME, in exactly these letters: an option of this URL is nearly"),
    ("postgresql://u@h/db?sslmode=require&Schema=hunter2", "schema=NAME, in exactly these letters"),
])  # fmt: skip
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        store_place_of(url, None, "out")
    assert "hunter2" not in str(refused.value)


def test_a_missing_driver_names_the_package_and_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install (?s:.*)'psycopg\[binary\]>=3\.2'"):
        CallStore(PostgresDatabase("postgresql://u@h/db"), run_id="r")
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(INSTALL) == ["pip", "install", *project["optional-dependencies"]["postgres"]]
