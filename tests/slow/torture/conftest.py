"""A run at the local server, with what can go wrong."""

from tests.integration.torture.conftest import bench, server

__all__ = ["bench", "server"]
