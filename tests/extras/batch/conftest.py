"""The test server with a Batch API, in the place of the one without."""

from contextlib import ExitStack

import pytest

from ragpipe.extras.batch import transport
from ragpipe.testing.openai_server import running
from tests.extras.batch.batch_server import BatchServer
from tests.support.asking import SENTINEL, VARIABLE


@pytest.fixture
def serve():
    """`serve()` starts a server; all end with the test."""
    with ExitStack() as stack:

        def start(**options):
            return stack.enter_context(running(BatchServer(**options)))

        yield start


@pytest.fixture(autouse=True)
def batches_soon(monkeypatch):
    """The key is set; a round is sent soon after its last question, and looked after often."""
    monkeypatch.setenv(VARIABLE, SENTINEL)
    monkeypatch.setattr(transport, "QUIET_S", 0.02)
    monkeypatch.setattr(transport, "POLL_S", 0.01)
