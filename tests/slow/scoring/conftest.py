"""Shared by the tests of scoring by several processes."""

from __future__ import annotations

import subprocess

import pytest

from ragpipe.engine.workers import worker_processes


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The workers that were started so far."""
    processes = list[subprocess.Popen[bytes]]()
    new_process = worker_processes.new_process

    def new(module: str) -> subprocess.Popen[bytes]:
        processes.append(new_process(module))
        return processes[-1]

    monkeypatch.setattr(worker_processes, "new_process", new)
    return processes
