"""The base URL of an OpenAI-compatible server: what it must be, and how the server is named after it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ragpipe.judging.redaction import HIDDEN


def checked_api_base(value: str) -> str:
    """The URL without a slash at its end. Raises ValueError for what is no base URL, and for one that holds a key."""
    if value == HIDDEN:
        raise ValueError("a URL must not hold a user or password: put the key into an environment variable")
    if odd := re.search(r"[\x00-\x20\x7f-\xa0\u2028\u2029\\]", value):  # `urlsplit` drops some of them without a word
        raise ValueError(f"a URL without blanks and control characters, found {odd[0]!r}")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a base URL such as http://127.0.0.1:8000/v1")
    if parts.query or parts.fragment:
        raise ValueError("expected a base URL without a query or fragment: keys belong in an environment variable")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("the port must be a number from 0 to 65535") from error
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise ValueError("leave `/chat/completions` out: ragpipe adds it to the base URL")
    return value.rstrip("/")


def place_of(api_base: str) -> str:
    """host:port/path of a base URL."""
    parts = urlsplit(api_base)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}{parts.path}"
