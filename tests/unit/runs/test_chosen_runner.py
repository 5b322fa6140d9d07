"""Where the cases of a run are measured, with a runner of a plugin."""

from typing import ClassVar, Literal

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.runs.iteration_judging import here_line, stays_here
from ragpipe.runs.settings import AnyRunner

pytestmark = pytest.mark.slow  # a composition per row
MODEL = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
EMBEDDER = ["embedder=minilm", "metrics=[semantic_similarity]"]


class Mine(AnyRunner):
    """Says what it was told."""

    implementation: ClassVar[str] = "mine:opens"
    kind: Literal["mine"] = "mine"

    def stays_here(self, *, computes: bool, shares_store: bool) -> str | None:
        return f"computes: {computes}, shares_store: {shares_store}"


@pytest.mark.parametrize(("words", "why"), [
    (["metrics=[retrieval]"], "computes: False, shares_store: False"),
    (EMBEDDER, "computes: True, shares_store: False"),
    ([*MODEL, "metrics=[faithfulness]"], "calls leave from one process"),
])  # fmt: skip
def test_a_runner_is_asked_unless_the_run_asks_a_server(words: list[str], why: str) -> None:
    config = compose(["+experiment=quickstart", *words])
    assert stays_here(config) is None, "the run's own process, as was chosen"
    chosen = config.model_copy(update={"runner": Mine()})
    assert stays_here(chosen) == why
    assert here_line(chosen, why) == f"runner=mine: {why}; this process measures the cases alone"
