"""`metrics=[...]` on the command line against what an experiment sets for its own choice."""

from pathlib import Path

import pytest

from ragpipe.cli import compose
from ragpipe.core.errors import ConfigError


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["quickstart", "clapnq dataset.path=x", "trec dataset.path=x"])
def test_an_experiment_may_set_what_the_choice_leaves_out(experiment: str) -> None:
    config = compose([f"+experiment={experiment.split()[0]}", *experiment.split()[1:], "metrics=[faithfulness]"])
    assert list(config.metrics) == ["faithfulness"]


@pytest.mark.slow
def test_a_parameter_of_a_metric_that_was_not_chosen_is_refused_where_it_is_typed() -> None:
    with pytest.raises(ConfigError, match=r"command line \(metrics\.retrieval\.k=\[5\]\)|metrics\.retrieval\.class"):
        compose(["+experiment=quickstart", "metrics=[faithfulness]", "metrics.retrieval.k=[5]"])


@pytest.mark.slow
def test_a_misspelt_metric_of_an_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /dataset: demo\n  - override /metrics: [retrieval]\nmetrics: {retreival: {k: [5]}}\n"
    )
    with pytest.raises(ConfigError, match=r"mine\.yaml:5: metrics\.retreival\.class"):
        compose(["+experiment=mine"], config_dir=str(tmp_path))
