"""Stores for tests: the memory of this process, and a server of `s3_server.py` with credentials that must appear in no file."""

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from tests.support.s3_server import S3Server, s3_server

KEY_ID, SECRET = "AKIASENTINELQQ012345", "sentinel/secret+0123456789abcdefghijklmn"


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An empty server, named by the environment with its credentials."""
    with s3_server() as server:
        names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "EC2_METADATA_DISABLED", "ENDPOINT_URL", "DEFAULT_REGION")
        for name, value in zip(names, (KEY_ID, SECRET, "true", server.endpoint, "us-east-1"), strict=True):
            monkeypatch.setenv(f"AWS_{name}", value)
        yield server
