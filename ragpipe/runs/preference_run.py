"""The preference run of a comparison: pairs of answers of two sides are the cases, and one metric asks which is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow.compute as pc
import yaml

from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import option_files
from ragpipe.core.settings import ConfigOrigins
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.report.console import Console
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import open_run, read_config, unnamed_judge
from ragpipe.runs.pair_source import METRIC, PairSource
from ragpipe.runs.run_list import Methods
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_columns

_TITLE = "nobody can be asked for a preference; nothing was started"
_CHANGEABLE = ("judge", "jury", "metrics.preference", "metrics", "scoring", "iterations", "report")
_OWN = ("compare", "base", "candidate")


@dataclass(frozen=True)
class _Origins:
    """The places of settings as the user's, and further keys that count as chosen."""

    origins: ConfigOrigins
    chosen: tuple[str, ...]

    def location(self, key: str) -> str:
        return self.origins.location(key)

    def typed_text(self, key: str) -> str | None:
        return self.origins.typed_text(key)


def open_preference(
    plain: Mapping[str, Any], origins: ConfigOrigins, base: RunFolder, candidate: RunFolder, settings: CompareSettings
) -> RunSpec:
    """The preference run of two runs, or of the methods of one, by the user's judge: its configuration is the candidate's with the
    metric `preference` alone. Raises ConfigError and DataError."""
    shipped = yaml.safe_load(option_files("metrics")[METRIC].read_text(encoding="utf-8"))[METRIC]
    given = plain.get("metrics") or {}
    section = {**shipped, **(given.get(METRIC) or {} if isinstance(given, Mapping) else {})}
    slices = (read_config(candidate).get("scoring") or {}).get("slices", [])
    composed = {
        **plain,
        "run": str(candidate.root.absolute()),
        "metrics": {METRIC: section},
        "scoring": {**(plain.get("scoring") or {}), "slices": slices, "gates": {}},
    }
    chosen = (*getattr(origins, "chosen", ()), "metrics", "scoring", "iterations")
    finished = open_run(composed, _Origins(origins, chosen), changeable=_CHANGEABLE, task="compare", task_keys=_OWN)
    is_named = any(key.partition(".")[0] == "jury" for key in finished.overrides)
    problem = None if is_named else unnamed_judge(finished, origins, without_a_call="transport=stored")
    if isinstance(finished.config.judge, RulesSettings):
        found, expected = "the rules judge, which cannot say which of two answers is better", "a judge that reads them"
        problem = Problem(origins.location("judge"), "judge", found, expected, "judge=llm judge.model=...")
    if problem is not None:
        raise ConfigError(_TITLE, [problem])
    return RunSpec.of_changed_cases(finished, PairSource(base, candidate, _paired_methods(candidate, settings)))


def _paired_methods(folder: RunFolder, settings: CompareSettings) -> list[Methods]:
    """Which methods are paired: base and candidates, or every two methods of the run in `folder`."""
    if settings.kind == "runs":
        return [(settings.base_method, None)]
    methods = pc.unique(read_columns(folder.outputs, ["method"])["method"]).to_pylist()
    base = settings.base_method or methods[0]
    others = [name for name in methods if name != base]
    return list(combinations((base, *others), 2))


def ask_for_preference(spec: RunSpec, console: Console) -> int:
    """Judge the pairs as a run of their own. Returns and raises what an evaluation does."""
    console.say(f"preference: {spec.source.name}, asked in both orders")
    return Evaluation(spec, EvaluatePolicy(), console).run()
