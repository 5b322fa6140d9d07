"""Where the cases of a run with `runner=ray` are measured."""

from __future__ import annotations

import pytest

from ragpipe.cli import compose
from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.engine.runners.chosen_runner import stays_here

pytestmark = pytest.mark.slow  # a composition per row

MODEL = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
EMBEDDER = ["embedder=minilm", "metrics=[semantic_similarity]"]
GPU, CLUSTER = "runner.num_gpus=1", "runner.address=head:6379"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["metrics=[faithfulness]"], None),
        (["metrics=[retrieval]", CLUSTER], None),
        ([*MODEL, "metrics=[faithfulness]", GPU], "calls leave from one process"),
        (EMBEDDER, "a model that computes here"),
        ([*EMBEDDER, GPU], None),
        ([*EMBEDDER, GPU, CLUSTER], "set store.url"),
        ([*EMBEDDER, GPU, CLUSTER, "store.url=postgresql://me@host/db"], None),
    ],
)
def test_only_what_asks_no_server_goes_to_ray(
    words: list[str], why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        RunnerSettings, "missing", lambda _: iter(())
    )  # the choice is the same where Ray is not installed
    found = stays_here(compose(["+experiment=quickstart", "runner=ray", *words]))
    assert found is None if why is None else found is not None and why in found
