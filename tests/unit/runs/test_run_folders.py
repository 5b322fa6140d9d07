"""Run folders below an output folder, where this user may not read everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.runs.run_list import all_runs, list_runs, run_folders, run_list_folders
from tests.support.listed_runs import listed_run
from tests.support.ordinary_user import folder_for_all, ordinary_user

GOOD, CLOSED = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


@pytest.fixture
def outputs() -> Iterator[Path]:
    """A readable run, one that this user may not enter, a closed folder with a run's name or without, and one without runs."""
    with folder_for_all() as root:
        listed_run(root / "good", GOOD, 0.5)
        listed_run(root / "good", CLOSED, 0.5)
        listed_run(root / "closed", GOOD, 0.5)
        (root / "good" / "notes").mkdir()
        for path in (root / "good" / CLOSED, root / "closed", root / "good" / "notes"):
            path.chmod(0)
        yield root


@pytest.mark.slow
def test_folders_without_permission(outputs: Path) -> None:
    with ordinary_user():
        assert list(run_list_folders(outputs)) == [outputs / "good"]
        assert sorted(run_folders(outputs / "good")) == [outputs / "good" / GOOD, outputs / "good" / CLOSED]
        assert [run.root.name for run in all_runs(outputs)] == [GOOD, CLOSED]
        assert list(run_folders(outputs / "closed")) == []
        assert list(run_folders(outputs / "absent")) == []
    with ordinary_user():
        lines, older = list_runs(outputs / "good")
    assert older == 0
    (broken,) = [line for line in lines if line.run_id == CLOSED]
    assert "Permission denied" in broken.broken
