"""A finished run that many tests read: made once, copied by whoever changes it; and the key of local judges."""

import shutil
from pathlib import Path

import pytest

from tests.support.finished_runs import FinishedRuns
from tests.support.rejudged import travelled


@pytest.fixture(scope="session")
def travelled_run(finished_runs: FinishedRuns) -> Path:
    """The folder of a finished run by a language model, far from its data set, its call store and its judge."""
    return finished_runs.made("travelled", travelled) / "elsewhere" / "run"


@pytest.fixture
def run(travelled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `travelled_run` in the current folder: ten cases, whose judge is gone."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(travelled_run, tmp_path / "run"))


@pytest.fixture(autouse=True)
def _key(monkeypatch) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
