"""The local OpenAI-compatible server, the key that is sent to it, and calls that are tried again soon."""

import pytest

from tests.support.asking import SENTINEL, VARIABLE
from tests.support.serving import serve

__all__ = ["serve"]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SENTINEL)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragpipe.judge.attempts.backoff", lambda attempt, **_: 0.02 * attempt)
