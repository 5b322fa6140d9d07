from __future__ import annotations

import re

import pytest

from tests.support.growth import assert_linear


@pytest.mark.slow
def test_what_is_linear_passes_and_what_is_quadratic_does_not() -> None:
    assert_linear(lambda size: re.search("x+y", "y" * size), 200_000)
    with pytest.raises(AssertionError, match="s at 16000"):
        assert_linear(lambda size: re.search("x+y", "x" * size), 16_000)
