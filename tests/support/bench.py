"""A run at the local server as fixtures, with what can go wrong."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.checks import Bench
from tests.support.harness import environment


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # its complaints about clients that left
    with serving() as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", environment()["RAGPIPE_TEST_KEY"])
    monkeypatch.chdir(tmp_path)

    def make(**options: Any) -> Bench:
        return Bench(tmp_path, server, **options)

    return make
