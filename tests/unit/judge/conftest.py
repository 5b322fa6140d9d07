"""The local OpenAI-compatible server, and the key that is sent to it."""

import pytest

from tests.support.asking import SENTINEL, VARIABLE
from tests.support.serving import serve

__all__ = ["serve"]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SENTINEL)
