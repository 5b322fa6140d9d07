"""Buckets for tests: a server of `s3_server.py`, with credentials in the environment that must appear in no file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragpipe.store.objects import object_requests
from ragpipe.store.objects.settings import Storage, StorageSettings
from tests.support.s3_server import S3Server, s3_server

KEY_ID, SECRET = "AKIASENTINELQQ012345", "sentinel/secret+0123456789abcdefghijklmn"


@contextmanager
def bucket_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An empty server, its credentials in the environment, and no wait between tries."""
    monkeypatch.setattr(object_requests, "FIRST_WAIT_S", 0.0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with s3_server() as server:
        yield server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An empty server for one test."""
    with bucket_server(monkeypatch) as server:
        yield server


def storage_at(server: S3Server, cache: Path, tries: int = 3) -> Storage:
    """The storage of this server, with copies in `cache`."""
    return Storage(StorageSettings(endpoint=server.endpoint, region="us-east-1", tries=tries), cache)


def storage_words(server: S3Server) -> list[str]:
    """The words of a command line for this server."""
    return [f"storage.endpoint={server.endpoint}", "storage.region=us-east-1", "storage.tries=3"]
