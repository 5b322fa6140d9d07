"""From the YAML of a metric to a checked metric. Nothing is instantiated by name except a subclass of Metric."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ragpipe.core.errors import ConfigError, Problem, PromptError
from ragpipe.metrics.base import Computed, Metric
from ragpipe.prompting.library import PromptLibrary
from ragpipe.prompting.prompt import Prompt

WHERE = "metrics"


def load_metric(name: str, section: Mapping[str, Any], library: PromptLibrary, plugins: Sequence[str] = ()) -> Metric:
    """The metric that `metrics.<name>` describes: `class`, `prompts.<step>: <version>`, and the class's parameters.

    The class must stand below `ragpipe.` or below a package of `plugins`. Raises ConfigError with all faults of the
    section at once; their keys are `metrics.<name>.<param>`.
    """
    cls = metric_class(name, section.get("class"), plugins)
    given = {key: value for key, value in section.items() if key not in ("class", "prompts")}
    unused = cls.unused_steps(given)
    prompts, problems = _prompts(name, cls, section.get("prompts"), library, unused)
    for key in sorted(set(given) & {"name", *cls.step_names()}):
        problems.append(_problem(name, key, repr(given.pop(key)), "no such parameter", _where_to(key)))
    try:
        metric = cls.model_validate({**given, **prompts, "name": name})
    except ValidationError as error:
        steps = set(cls.step_names())
        problems += [_fault(name, cls, e) for e in error.errors() if not (e["loc"] and e["loc"][0] in steps)]
    if problems:
        raise ConfigError(f"the metric {name} is wrong", problems)
    return metric


def metric_class(name: str, path: Any, plugins: Sequence[str] = ()) -> type[Metric]:
    """The class that `metrics.<name>.class` names. Raises ConfigError for what is no metric or may not be named."""
    allowed = ["ragpipe", *plugins]
    expected = f"the dotted path of a Metric class below {' or '.join(allowed)}"
    module, _, attribute = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if not module or not any(module == root or module.startswith(f"{root}.") for root in allowed):
        found = repr(path) if path is not None else "nothing"
        fix = "list your own package under plugins:" if module else ""
        raise ConfigError(f"the metric {name} has no usable class", [_problem(name, "class", found, expected, fix)])
    try:
        cls = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # a plugin may fail at import in any way; the user needs to see which and why
        text = f"{path!r}, whose import fails: {type(error).__name__}: {error}"
        raise ConfigError(
            f"the metric {name} has no usable class", [_problem(name, "class", text, expected)]
        ) from error
    if not (inspect.isclass(cls) and issubclass(cls, Metric)):
        found = f"{path!r}, which is {'not there' if cls is None else 'no Metric'}"
        raise ConfigError(f"the metric {name} has no usable class", [_problem(name, "class", found, expected)])
    if cls.measure is Metric.measure and not (issubclass(cls, Computed) and cls.compute is not Computed.compute):
        found = f"{path!r}, which is only a base of metrics"
        raise ConfigError(f"the metric {name} has no usable class", [_problem(name, "class", found, expected)])
    return cls


def _prompts(
    name: str, cls: type[Metric], versions: Any, library: PromptLibrary, unused: frozenset[str]
) -> tuple[dict[str, Prompt], list[Problem]]:
    """The prompts of the steps in use; a version given for an unused step is left alone."""
    steps = cls.step_names()
    if versions is None:
        versions = {}
    if not isinstance(versions, Mapping):
        return {}, [_problem(name, "prompts", repr(versions), f"a mapping of the steps {list(steps)} to versions")]
    found: dict[str, Prompt] = {}
    problems: list[Problem] = []
    for step in [*steps, *(step for step in versions if step not in steps)]:
        if step in unused:
            continue
        version, folder = versions.get(step), cls.prompt_folder(step)
        there = ", ".join(library.versions(folder, step)) or "none"
        key = f"prompts.{step}"
        if step not in steps:
            problems.append(
                _problem(name, key, f"the step {step!r}", f"one of the steps {list(steps)}", _near(step, steps))
            )
        elif not isinstance(version, str):
            shown = "nothing" if version is None else repr(version)
            problems.append(_problem(name, key, shown, f"a version of {folder}/{step}; there are: {there}"))
        else:
            try:
                found[step] = library.load(folder, step, version)
            except PromptError as error:
                problems += [
                    Problem(p.where, f"{WHERE}.{name}.{key}", p.found, p.expected, p.fix) for p in error.problems
                ]
    return found, problems


def _fault(name: str, cls: type[Metric], error: Any) -> Problem:
    key = ".".join(str(part) for part in error["loc"]) or "(the whole section)"
    if error["type"] == "extra_forbidden":
        known = [f for f in cls.model_fields if f != "name" and f not in cls.step_names()]
        return _problem(name, key, repr(error["input"]), f"one of the parameters {known}", _near(key, known))
    if error["type"] == "missing":
        return _problem(name, key, "nothing", "a value")
    return _problem(name, key, repr(error["input"])[:200], error["msg"].removeprefix("Value error, "))


def _problem(name: str, key: str, found: str, expected: str, fix: str = "") -> Problem:
    return Problem(WHERE, f"{WHERE}.{name}.{key}", found, expected, fix)


def _near(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def _where_to(key: str) -> str:
    return "the key under metrics: is the name" if key == "name" else f"write prompts.{key}: <version>"
