"""`metrics/judged` and `metrics/computed`: one metric per file, named after it, in the room that says what it costs."""

from tests.support import metric_index


def test_the_lists_of_metrics_are_those_of_the_files() -> None:
    assert metric_index.stale_rooms() == [], f"run `{metric_index.COMMAND}`"
