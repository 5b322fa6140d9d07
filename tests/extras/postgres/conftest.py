"""One PostgreSQL server for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.extras.postgres.postgres_server import PostgresServer, postgres_server


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running
