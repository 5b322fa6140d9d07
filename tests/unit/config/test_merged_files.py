"""The files that a composition merged are remembered: the same as Hydra finds when it is asked again."""

from __future__ import annotations

import pytest
from hydra.types import RunMode

from ragpipe.composition.composer import PRIMARY, Composer, hydra_origins
from ragpipe.composition.config_sources import composed_words

STARTS = [
    ["+experiment=quickstart"],
    ["+experiment=quickstart", "judge=llm", "scoring/diagnosis=none", "~metrics.groundedness", "judge.rpm=5"],
    ["dataset=demo", "metrics=[retrieval]", "hydra/launcher=joblib", "hydra.sweep.subdir=x"],
    ["hydra.sweep.subdir=x", "task=runs", "hydra/sweeper=basic"],
]


@pytest.mark.slow
@pytest.mark.parametrize("typed", STARTS)
def test_they_are_those_that_hydra_finds(typed: list[str]) -> None:
    with Composer() as composer:
        overrides = composer.words(typed, sweep=False).overrides
        config = composer.loader.load_configuration(PRIMARY, overrides, RunMode.RUN)
        words = composed_words(config.hydra)
        assert sorted(words) == sorted(overrides)
        found = composer.loader.compute_defaults_list(PRIMARY, overrides, RunMode.RUN).defaults
        assert composer.loader.merged_files(PRIMARY, words) == found


@pytest.mark.slow
def test_another_composition_does_not_answer_for_this_one() -> None:
    with Composer() as composer:
        overrides = composer.words(["judge=llm"], sweep=False).overrides
        with composer.composed(overrides):
            before = hydra_origins(composer.loader, {}).location("judge.model")
            composer.loader.load_configuration(PRIMARY, ["task=runs"], RunMode.RUN)
            assert hydra_origins(composer.loader, {}).location("judge.model") == before
    assert "conf/judge/llm.yaml:" in before
