"""Evaluate RAG systems from config files.

    import ragpipe
    run = ragpipe.run({"experiment": "quickstart"})   # what `python -m ragpipe +experiment=quickstart` does
    run = ragpipe.load("outputs/quickstart/latest")   # a run that is there already

What a metric of your own needs is here too: `from ragpipe import Metric, Computed, Prompt, Answer, Score, ScoreSpec`.
Helpers for its tests are in `ragpipe.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragpipe.core.version import __version__

if TYPE_CHECKING:
    from ragpipe.cli.api import compare, load, plan, rejudge, rescore, run, stop, verify
    from ragpipe.core import errors
    from ragpipe.core.sample import Case
    from ragpipe.core.score import Score, ScoreSpec
    from ragpipe.judge.answer_type import Answer
    from ragpipe.judge.prompt import Prompt
    from ragpipe.judge.question import Judge
    from ragpipe.metrics.base import Computed, Metric
    from ragpipe.report.run_data import Run
    from ragpipe.runs.verification import Verification

__all__ = [
    "Answer",
    "Case",
    "Computed",
    "Judge",
    "Metric",
    "Prompt",
    "Run",
    "Score",
    "ScoreSpec",
    "Verification",
    "__version__",
    "compare",
    "errors",
    "load",
    "plan",
    "rejudge",
    "rescore",
    "run",
    "stop",
    "verify",
]

_HOME = {
    **dict.fromkeys(["compare", "load", "plan", "rejudge", "rescore", "run", "stop", "verify"], "ragpipe.cli.api"),
    **dict.fromkeys(["Computed", "Metric"], "ragpipe.metrics.base"),
    **dict.fromkeys(["Score", "ScoreSpec"], "ragpipe.core.score"),
    "Answer": "ragpipe.judge.answer_type",
    "Case": "ragpipe.core.sample",
    "Judge": "ragpipe.judge.question",
    "Prompt": "ragpipe.judge.prompt_library",
    "Run": "ragpipe.report.run_data",
    "Verification": "ragpipe.runs.verification",
}
"""The module of each public name. They are imported when first used: `import ragpipe` itself takes no time."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("ragpipe.core.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'ragpipe' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
