"""The section `metrics` of a configuration: each metric is read, and their scores have names of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.errors import ConfigError, Problem, PromptError
from ragpipe.core.registry import option_files
from ragpipe.core.sample import ReferenceRule
from ragpipe.core.settings import ConfigOrigins, show_value
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.shared.multi_reference import with_rule

_METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}\Z")
_NAME_RULE = "letters, digits, '_', '-', at most 64, beginning with a letter"


def read_metrics(
    sections: Any,
    prompts: PromptLibrary,
    plugins: Sequence[str],
    references: ReferenceRule | None,
    origins: ConfigOrigins,
    problems: list[Problem],
) -> dict[str, Metric] | None:
    """All metrics of the section; None when one is wrong, with every fault added to `problems`. `references` is the data set's
    rule for several references, of metrics that leave it to the data set; None leaves them."""
    if not isinstance(sections, Mapping):
        problems.append(Problem(origins.location("metrics"), "metrics", show_value(sections), "a mapping of metrics"))
        return None
    if not sections:
        fix = "pass metrics=[NAME,...]"
        problems.append(Problem(origins.location("metrics"), "metrics", "none", "at least one metric", fix))
        return None
    metrics: dict[str, Metric] = {}
    faults: list[Problem] = []
    for name, section in sections.items():
        if fault := _shape_fault(name, section):
            faults.append(fault)
        elif not _is_not_chosen(name, section, origins):
            try:
                metrics[name] = _read_metric(name, section, prompts, plugins, origins)
            except (ConfigError, PromptError) as error:
                faults += error.problems
    problems += [placed(fault, origins) for fault in faults]
    if faults:
        return None
    return metrics if references is None else with_rule(metrics, references)


def score_name_problems(metrics: Mapping[str, Metric], origins: ConfigOrigins) -> list[Problem]:
    """Scores named like another metric's score or a column of the records: the tables could not tell them apart."""
    from ragpipe.score.records import records_schema

    owners = dict.fromkeys(records_schema(()).names, "a column of records.parquet")
    problems = []
    for name, metric in metrics.items():
        key = f"metrics.{name}"
        names = [spec.name for spec in metric.scores()]
        if not names:
            parameters = [field for field in type(metric).model_fields if field != "name"]
            fix = f"name them under {key}.{parameters[0]}" if parameters else ""
            problems.append(Problem(origins.location(f"{key}.class"), key, "no score", "a metric with scores", fix))
        if taken := [score for score in names if score in owners]:
            problems.append(_taken_scores(key, metric, taken, owners[taken[0]], origins))
        owners |= dict.fromkeys(names, key)
    return problems


def encoder_problems(metrics: Mapping[str, Metric], origins: ConfigOrigins) -> list[Problem]:
    """Metrics that compare tokens by a model that is not installed."""
    problems = []
    for name, metric in metrics.items():
        encoder = metric.encoder_settings
        if encoder and (fix := encoder.missing()):
            key = f"metrics.{name}.encoder.kind"
            state = f"{encoder.kind}, without its files or its package"
            problems.append(Problem(origins.location(key), key, state, "an encoder that is installed", fix))
    return problems


def placed(problem: Problem, origins: ConfigOrigins) -> Problem:
    """The fault with the place that set its key, unless it names a file already (a prompt's)."""
    if "/" in problem.where or re.search(r":\d+$", problem.where):
        return problem
    return Problem(origins.location(problem.key), problem.key, problem.found, problem.expected, problem.fix)


def _shape_fault(name: object, section: object) -> Problem | None:
    if not (isinstance(name, str) and _METRIC_NAME.match(name)):
        return Problem("metrics", "metrics", f"the name {name!r}"[:200], _NAME_RULE)
    if not isinstance(section, Mapping):
        return Problem(f"metrics.{name}", f"metrics.{name}", show_value(section), "a mapping with `class`")
    return None


def _is_not_chosen(name: str, section: Mapping[str, Any], origins: ConfigOrigins) -> bool:
    """Whether this is what an experiment sets for a shipped metric that `metrics=[...]` did not choose."""
    if "class" in section or name not in option_files("metrics"):
        return False
    return not any(origins.location(f"metrics.{name}.{key}").startswith("command line") for key in section)


def _read_metric(
    name: str, section: Mapping[str, Any], prompts: PromptLibrary, plugins: Sequence[str], origins: ConfigOrigins
) -> Metric:
    """One metric. Where it expects a text and the command line gave a number by its looks, the typed text is taken."""
    try:
        return load_metric(name, section, prompts, plugins)
    except ConfigError as error:
        typed = {
            problem.key.removeprefix(f"metrics.{name}."): origins.typed_text(problem.key)
            for problem in error.problems
            if "string" in problem.expected
        }
        texts = {key: raw for key, raw in typed.items() if raw is not None and not isinstance(section.get(key), str)}
        if not texts:
            raise
    return load_metric(name, {**section, **texts}, prompts, plugins)


def _taken_scores(key: str, metric: Metric, taken: Sequence[str], owner: str, origins: ConfigOrigins) -> Problem:
    more = f" and {len(taken) - 3} more" if len(taken) > 3 else ""
    expected = f"names that are free; {taken[0]} is that of {owner}"
    fix = f"{key}.prefix=..." if "prefix" in type(metric).model_fields else "give the metric another name"
    return Problem(origins.location(f"{key}.class"), key, f"the scores {', '.join(taken[:3])}{more}", expected, fix)
