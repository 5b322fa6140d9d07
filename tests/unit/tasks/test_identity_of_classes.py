"""A shipped class may move between modules without making another run; what a number rests on still makes one."""

import pytest

from ragpipe.engine.runs.run_identity import metric_identity, run_id, run_identity
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import class_path
from ragpipe.testing.scripted import shipped_metric, shipped_names

SHIPPED_METRICS = shipped_names()


def run_of(*metrics: Metric) -> str:
    return run_id(run_identity({}, metrics, data="a" * 64, judge={}))


@pytest.mark.parametrize("name", SHIPPED_METRICS)
def test_a_shipped_class_that_moves_changes_no_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_of(metric := shipped_metric(name))
    monkeypatch.setattr(type(metric), "__module__", "ragpipe.metrics.somewhere.else_now")
    assert run_of(metric) == before


def test_no_two_shipped_classes_have_the_same_identity() -> None:
    classes = {type(shipped_metric(name)) for name in SHIPPED_METRICS}
    assert len({class_path(metric_class) for metric_class in classes}) == len(classes) > 20


def test_another_class_under_the_same_name_is_another_run() -> None:
    metric = shipped_metric("scope_miss")
    twin = type("TwinMetric", (type(metric),), {"__module__": type(metric).__module__})
    assert run_of(twin.model_validate(metric.model_dump())) != run_of(metric)


def test_the_same_class_under_two_names_is_two_runs() -> None:
    metric = shipped_metric("scope_miss")
    assert run_of(metric.model_copy(update={"name": "another_name"})) != run_of(metric)


def test_another_version_of_a_shipped_class_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_of(metric := shipped_metric("scope_miss"))
    monkeypatch.setattr(type(metric), "version", metric.version + 1)
    assert run_of(metric) != before


def test_a_users_class_is_named_by_its_dotted_path(monkeypatch: pytest.MonkeyPatch) -> None:
    metric_class = type(shipped_metric("scope_miss"))
    users = type("OwnMetric", (metric_class,), {"__module__": "mine.metrics"})
    moved = type("OwnMetric", (metric_class,), {"__module__": "mine.moved"})
    assert [class_path(users), class_path(moved)] == ["mine.metrics.OwnMetric", "mine.moved.OwnMetric"]


def test_the_identity_of_a_shipped_metric_holds_no_module() -> None:
    for name in SHIPPED_METRICS:
        assert "ragpipe." not in str(metric_identity(shipped_metric(name))), name
