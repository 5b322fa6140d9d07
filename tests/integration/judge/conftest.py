"""The local OpenAI-compatible server."""

from tests.support.serving import serve

__all__ = ["serve"]
