"""Addresses name a state, and read back as they were written."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.safe_text import printable
from ragpipe.pages.page_address import case_name, page_address


@pytest.mark.parametrize(("state", "fragment"), [
    ({}, "#v=1"),
    ({"q": "", "method": None}, "#v=1"),
    ({"slice": "category:policy", "case": "dao-01/rerank/1"}, "#v=1&slice=category:policy&case=dao-01/rerank/1"),
    ({"q": "a&b=c #1 100%"}, "#v=1&q=a%26b%3Dc%20%231%20100%25"),
    ({"q": "Größe"}, "#v=1&q=Gr%C3%B6%C3%9Fe"),
])  # fmt: skip
def test_the_fragment_of_a_state(state: dict[str, str | None], fragment: str) -> None:
    assert page_address(**state) == fragment


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["q", "method", "slice", "case", "sort"]), st.text(min_size=1), max_size=5))
def test_a_state_comes_back(state: dict[str, str]) -> None:
    read = parse_qsl(page_address(**state).removeprefix("#"), keep_blank_values=True)
    assert read == [("v", "1"), *((key, printable(value)) for key, value in state.items())]


def test_cases_are_named_not_numbered() -> None:
    assert case_name("dao-01", "rerank", 1) == "dao-01/rerank/1"
    assert case_name("dao-01", None, 2) == "dao-01/2"
