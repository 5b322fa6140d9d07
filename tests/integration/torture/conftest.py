"""A run at the local server, with what can go wrong."""

import pytest

from tests.support.bench import bench, server

__all__ = ["bench", "server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is only said while objects are thrown away, a user sees too: it fails the test."""
    for item in items:
        if item.path.parent.name == "torture":
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"))
