"""`metrics/judged` and `metrics/computed`: one metric per file, named after it, in the room that says what it costs."""

import importlib
import inspect
from pathlib import Path

import pytest
import yaml

from ragpipe.core.resources import conf_dir
from ragpipe.metrics.base import Metric
from ragpipe.metrics.shared.judge_metric import JudgeMetric
from tests.support import metric_index
from tests.support.new_metric import class_name_of

FILES = [(room, path) for room in metric_index.HEADS for path in metric_index.metric_files(room)]


def module_metrics(room: str, path: Path) -> dict[str, type[Metric]]:
    """The classes that a file defines under a name of a metric."""
    module = importlib.import_module(f"ragpipe.metrics.{room}.{path.stem}")
    classes = inspect.getmembers(module, lambda member: inspect.isclass(member) and issubclass(member, Metric))
    return {name: cls for name, cls in classes if cls.__module__ == module.__name__ and name.endswith("Metric")}


@pytest.mark.parametrize(("room", "path"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_a_file_holds_one_metric_named_after_it(room: str, path: Path) -> None:
    assert list(module_metrics(room, path)) == [class_name_of(path.stem)]


@pytest.mark.parametrize(("room", "path"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_a_metric_is_in_the_room_that_says_whether_it_asks_a_judge(room: str, path: Path) -> None:
    (metric,) = module_metrics(room, path).values()
    asks = issubclass(metric, JudgeMetric) and bool(metric.step_names())
    assert asks == (room == "judged"), f"{path.name} belongs in metrics/{'judged' if asks else 'computed'}"


@pytest.mark.parametrize(("room", "path"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_every_metric_has_a_yaml_of_its_name(room: str, path: Path) -> None:
    text = (conf_dir() / "metrics" / f"{path.stem}.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)[path.stem]["class"] == class_name_of(path.stem)


def test_the_lists_of_metrics_are_those_of_the_files() -> None:
    assert metric_index.stale_rooms() == [], f"run `{metric_index.COMMAND}`"
