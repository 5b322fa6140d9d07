"""A finished run that many tests read: made once, copied by whoever changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rejudged import travelled


@pytest.fixture(scope="session")
def travelled_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run by a language model, far from its data set, its call store and its judge."""
    return travelled(tmp_path_factory.mktemp("travelled"))
