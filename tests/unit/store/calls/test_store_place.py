"""The place of a store by its settings: a file, or what something registered opens by the scheme of an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragpipe.config.settings import StoreSettings
from ragpipe.core import registry
from ragpipe.core.errors import Problem
from ragpipe.core.validation import NoOrigins, validated
from ragpipe.store.calls.call_database import StorePlace, call_database, store_place_of


def test_without_a_url_it_is_a_file() -> None:
    assert store_place_of(None, None, "out") == Path("out/.store/calls.sqlite")
    assert store_place_of(None, "mine", "out") == Path("mine/calls.sqlite")


def problems_of(section: dict[str, object]) -> list[Problem]:
    problems: list[Problem] = []
    validated(StoreSettings, section, "store", NoOrigins(), problems)
    return problems


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "hunter2", "//hunter2"])
def test_an_address_that_nothing_opens_is_refused_by_those_that_something_opens(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "names", lambda kind: ["mine", "other"])
    (problem,) = problems_of({"url": url})
    assert (problem.key, problem.expected) == ("store.url", "an address that begins with mine:// or other://")
    assert "hunter2" not in problem.expected


class Mine:
    """A database of an extra, as far as settings ask it."""

    def __init__(self, url: str, outage_s: float):
        self.given = url, outage_s


def test_what_is_registered_for_the_scheme_opens_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", lambda kind, name: Mine if (kind, name) == ("store", "mine") else None)
    place: StorePlace = store_place_of("mine://h/db", None, "out", 5.0)
    assert isinstance(place, Mine)
    assert place.given == ("mine://h/db", 5.0)
    assert call_database(place) is place
    (problem,) = problems_of({"path": "here", "url": "mine://h/db"})
    assert problem.key == "store.url"
    assert "one place" in problem.expected
