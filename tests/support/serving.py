"""The local OpenAI-compatible server as a fixture."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ragpipe.testing.openai_server import OpenAIServer, serving


@pytest.fixture
def serve() -> Iterator[Callable[..., OpenAIServer]]:
    """`serve("429:first=2", latency_ms=5)` starts a server with these faults; all end with the test."""
    with ExitStack() as stack:

        def start(*faults: str, **options: Any) -> OpenAIServer:
            return stack.enter_context(serving(faults=faults, **options))

        yield start
