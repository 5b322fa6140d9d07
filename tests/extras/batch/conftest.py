"""The test server with a Batch API, in the place of the one without."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ragpipe.extras.batch import transport
from ragpipe.testing.openai_server import running
from tests.extras.batch.batch_server import BatchServer


@pytest.fixture
def serve() -> Iterator[Callable[..., BatchServer]]:
    """`serve()` starts a server; all end with the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> BatchServer:
            return stack.enter_context(running(BatchServer(**options)))

        yield start


@pytest.fixture(autouse=True)
def soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is sent soon after its last question, and looked after often."""
    monkeypatch.setattr(transport, "QUIET_S", 0.02)
    monkeypatch.setattr(transport, "POLL_S", 0.01)
