"""What the machine lacks is told as that, whoever stumbled over it."""

import errno

import pytest

from ragpipe.core.errors import OutputError, RagpipeError
from ragpipe.store.outside_causes import outside_cause


class TerminatedWorkerError(Exception):
    """As joblib's, by name."""


class UncompletedJobError(RuntimeError):
    """As submitit's, by name."""


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (TerminatedWorkerError("A worker process managed by the executor was unexpectedly terminated."), "worker"),
        (UncompletedJobError("Job 4_1 has not produced any output (state: TIMEOUT)"), "TIMEOUT"),
        (OSError(errno.EMFILE, "Too many open files", "f"), "open files"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ImportError("libarrow.so.2600: failed to map segment from shared object"), "memory"),
    ],
)
def test_causes(error: Exception, word: str) -> None:
    wrapped = RagpipeError("a case")
    wrapped.__cause__ = error
    for one in (error, wrapped):
        found = outside_cause(one)
        assert isinstance(found, OutputError)
        assert word in str(found)
        assert found.exit_code == 6


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("x"), ImportError("No module named x"), FileNotFoundError(2, "no", "f")]
)
def test_a_bug_stays_a_bug(error: Exception) -> None:
    assert outside_cause(error) is None


def test_a_file_counts_where_any_may(tmp_path: object) -> None:
    found = outside_cause(FileNotFoundError(2, "no", "f"), any_file=True)
    assert found is not None
    assert "f: it, or its folder, does not exist" in str(found)
