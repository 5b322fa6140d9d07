"""The names that `ragpipe` exports, and what they are."""

import importlib
import pkgutil
import types
from collections.abc import Mapping

import pytest

import ragpipe
import ragpipe.testing
from ragpipe.cli.api import override_words
from ragpipe.core.errors import ConfigError

FUNCTIONS = ("compare", "load", "plan", "rejudge", "rescore", "run", "stop", "verify")
CLASSES = (
    "Answer", "Case", "Computed", "Judge", "Metric", "Prompt", "Run", "Score", "ScoreSpec", "Verification",
)  # fmt: skip


def test_the_exported_names() -> None:
    assert ragpipe.__all__ == sorted([*FUNCTIONS, *CLASSES, "__version__", "errors"])
    assert dir(ragpipe) == sorted(ragpipe.__all__)
    assert all(isinstance(getattr(ragpipe, name), type) for name in CLASSES)
    assert ragpipe.errors.ConfigError is ConfigError
    with pytest.raises(AttributeError, match="nothing"):
        ragpipe.nothing  # noqa: B018
    assert sorted(ragpipe.testing.__all__) == ragpipe.testing.__all__
    assert all(hasattr(ragpipe.testing, name) for name in ragpipe.testing.__all__)


def test_functions_stay_functions_whatever_is_imported() -> None:
    """A module `ragpipe/run` would take the place of the function once it was imported."""
    for module in pkgutil.walk_packages(ragpipe.__path__, "ragpipe."):
        if module.name != "ragpipe.__main__":
            importlib.import_module(module.name)
    assert all(isinstance(getattr(ragpipe, name), types.FunctionType) for name in FUNCTIONS)


@pytest.mark.parametrize(("config", "words"), [
    ({"experiment": "x", "judge": "llm"}, ["+experiment=x", "judge=llm"]),
    ({"dataset": {"limit": 10, "path": "a b.jsonl"}}, ["dataset.limit=10", 'dataset.path="a b.jsonl"']),
    ({"metrics": ["a", "b"], "keep_messages": False}, ["metrics=[a,b]", "keep_messages=false"]),
    ({"scoring.weights.a": 0.5, "name": None}, ["scoring.weights.a=0.5", "name=null"]),
    ({"name": "null", "x": "007", "y": 'say "so"'}, ['name="null"', 'x="007"', 'y="say \\"so\\""']),
    ({"+metrics.tact": {"class": "m.Tact", "shows": ["answer"]}}, ["+metrics.tact={class:m.Tact,shows:[answer]}"]),
    ({"judge": {}}, ["judge={}"]),
    (["a=1", {"b": 2}], ["a=1", "b=2"]),
    ([], []),
])  # fmt: skip
def test_a_mapping_as_words(config: Mapping[str, object], words: list[str]) -> None:
    assert override_words(config) == words


@pytest.mark.parametrize("config", ["+experiment=x", [3], {"a": object()}, {3: "a"}, {"a": {"": 1}}])
def test_what_is_no_configuration_is_refused(config: object) -> None:
    with pytest.raises(ConfigError):
        override_words(config)  # type: ignore[arg-type]
