"""How many processes share the work of a run."""

from __future__ import annotations

import os

import pytest

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.engine.workers import worker_count as module
from ragpipe.engine.workers.worker_count import worker_count


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    module.idle_cores.cache_clear()


@pytest.mark.parametrize(
    ("load", "settings", "much", "expected"),
    [
        (0.2, {"kind": "auto"}, True, 4),
        (0.2, {"kind": "auto"}, False, 0),
        (1.6, {"kind": "auto"}, True, 2),
        (2.6, {"kind": "auto"}, True, 0),  # one core alone is idle
        (9.0, {"kind": "auto"}, True, 0),
        (0.2, {"kind": "auto", "workers": 3}, True, 3),
        (1.6, {"kind": "auto", "workers": 3}, True, 2),
        (9.0, {"kind": "processes"}, False, 4),
        (9.0, {"kind": "processes", "workers": 7}, True, 7),
        (0.2, {"kind": "local", "workers": 7}, True, 0),
        (0.2, {"kind": "ray", "workers": 100}, True, 4),  # those of the cluster
    ],
)
def test_the_number(
    monkeypatch: pytest.MonkeyPatch, load: float, settings: dict[str, object], much: bool, expected: int
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert worker_count(RunnerSettings.model_validate(settings), is_much=much) == expected


def test_the_load_is_that_of_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later the workers of the run itself are part of it."""
    loads = iter([0.0, 4.0])
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 0.0, 0.0))
    auto = RunnerSettings.model_validate({"kind": "auto"})
    assert [worker_count(auto, is_much=True) for _ in range(2)] == [4, 4]


def test_a_system_without_a_load_average_has_all_cores_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", absent)
    assert worker_count(RunnerSettings.model_validate({"kind": "auto"}), is_much=True) == 4
