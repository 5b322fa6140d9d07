"""A server with buckets."""

from tests.support.buckets import server

__all__ = ["server"]
