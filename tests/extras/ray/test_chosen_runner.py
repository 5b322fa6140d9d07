"""Where the cases of a run with `runner=ray` are measured."""

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core import registry
from ragpipe.core.registry import find
from ragpipe.extras.ray.settings import RaySettings
from ragpipe.runs.workers import stays_here

pytestmark = pytest.mark.slow  # a composition per row

MODEL = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
EMBEDDER = ["embedder=minilm", "metrics=[semantic_similarity]"]
GPU, CLUSTER = "runner.num_gpus=1", "runner.address=head:6379"


@pytest.mark.parametrize(("words", "why"), [
    (["metrics=[faithfulness]"], None),
    (["metrics=[retrieval]", CLUSTER], None),
    ([*MODEL, "metrics=[faithfulness]", GPU], "calls leave from one process"),
    (EMBEDDER, "a model that computes here"),
    ([*EMBEDDER, GPU], None),
    ([*EMBEDDER, GPU, CLUSTER], "set store.url"),
    ([*EMBEDDER, GPU, CLUSTER, "store.url=mine://host/db"], None),
])  # fmt: skip
def test_only_what_asks_no_server_goes_to_ray(words, why, monkeypatch):
    monkeypatch.setattr(RaySettings, "missing", lambda _: iter(()))  # the choice is the same where Ray is not installed
    monkeypatch.setattr(registry, "find", lambda kind, name: (lambda *_: None) if kind == "store" else find(kind, name))
    found = stays_here(compose(["+experiment=quickstart", "runner=ray", *words]))
    assert found is None if why is None else found is not None and why in found


def test_the_runner_is_in_no_identity(monkeypatch):
    monkeypatch.setattr(RaySettings, "missing", lambda _: iter(()))
    words = ["runner=ray", "runner.slice=7", "runner.num_gpus=1", "runner.env_vars=[HF_HOME]"]
    local, by_ray = (compose(["+experiment=quickstart", *more]) for more in (["runner=local"], words))
    assert local.identity() == by_ray.identity()
