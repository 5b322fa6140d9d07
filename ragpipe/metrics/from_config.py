"""Metrics from YAML: loads the class, its prompts and its parameters, and reports every fault of a section at once.

Nothing is instantiated by name except a subclass of Metric.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import yaml
from pydantic import ValidationError

from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, Problem, PromptError
from ragpipe.core.score import LabelQuestion, ScoreSpec
from ragpipe.core.settings import NoOrigins, validated, with_description
from ragpipe.core.yaml_files import FastLoader
from ragpipe.judge.prompt import Prompt, line_of, template_error
from ragpipe.judge.prompt_library import GradedExamples, PromptLibrary
from ragpipe.metrics.base import Computed, Metric

WHERE = "metrics"
OF_A_JURY = ("judge", "aggregation")
"""Keys of a metric's section that say which members of a jury judge it, and how: the jury takes them out."""
SECTION_KEYS = ("class", "prompts", "label")
"""The keys of a metric's section that are no parameters of its class."""


def load_metric(name: str, section: Mapping[str, Any], library: PromptLibrary, plugins: Sequence[str] = ()) -> Metric:
    """The metric that `metrics.<name>` describes: `class`, `prompts.<step>: <version>`, `label: {question, grades}`, and the
    parameters of the class.

    The class is a shipped one, or below a package of `plugins`. Raises ConfigError with all faults of the section; their
    keys are `metrics.<name>.<param>`.
    """
    cls = metric_class(name, section.get("class"), plugins)
    parameters = {key: value for key, value in section.items() if key not in SECTION_KEYS}
    unused = cls.unused_steps(parameters)
    prompts, problems = _load_prompts(name, cls, section.get("prompts"), library, unused)
    for key in sorted(set(parameters) & {"name", *cls.step_names()}):
        value = repr(parameters.pop(key))
        fix = "the key under metrics: is the name" if key == "name" else f"write prompts.{key}: <version>"
        problems.append(_problem(name, key, value, "no such parameter", fix))
    try:
        metric = cls.model_validate({**parameters, **prompts, "name": name})
    except ValidationError as error:
        steps = set(cls.step_names())
        faults = (fault for fault in error.errors() if not (fault["loc"] and fault["loc"][0] in steps))
        problems += [_parameter_problem(name, cls, fault) for fault in faults]
    if (label := section.get("label")) is not None:
        label = validated(LabelQuestion, label, f"{WHERE}.{name}.label", NoOrigins(), problems)
    if problems:
        raise ConfigError(f"the metric {name} is wrong", problems)
    return _with_graded_examples(metric.with_label_question(label), library)


@lru_cache(maxsize=1)
def shipped_scores() -> Mapping[str, ScoreSpec]:
    """The scores of all shipped metrics with their default parameters, switched on or not: by name what each score is declared as. Neither templates are compiled nor parameters checked, which takes a second."""
    scores: dict[str, ScoreSpec] = {}
    for path in registry.option_files("metrics").values():
        for name, section in yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader).items():
            parameters = {key: value for key, value in section.items() if key not in SECTION_KEYS}
            metric = metric_class(name, section["class"]).model_construct(name=name, **parameters)
            scores |= {spec.name: spec for spec in metric.scores()}
    return scores


def _with_graded_examples(metric: Metric, library: PromptLibrary) -> Metric:
    """The metric with the files of graded examples that its `examples` name, of the steps in use. Raises ConfigError."""
    versions = getattr(metric, "examples", None)
    graded: dict[str, GradedExamples] = {}
    problems: list[Problem] = []
    for step, version in (versions if isinstance(versions, Mapping) else {}).items():
        key = f"{WHERE}.{metric.name}.examples.{step}"
        if step not in metric.prompts() or not isinstance(version, str):
            continue
        try:
            graded[step] = _load_examples(metric, step, version, library)
        except PromptError as error:
            problems += [Problem(p.where, key, f"{p.key}: {p.found}", p.expected, p.fix) for p in error.problems]
    if problems:
        raise ConfigError(f"the metric {metric.name} is wrong", problems)
    return metric.with_graded_examples(graded)


def _load_examples(metric: Metric, step: str, version: str, library: PromptLibrary) -> GradedExamples:
    """The graded examples of a step, checked. Raises PromptError."""
    prompt = metric.prompts()[step]
    if "examples" not in prompt.optional:
        expected = "a template with `examples` under optional:, which shows them"
        raise template_error(prompt.path, line_of(prompt.text, r"optional\s*:"), "no place for examples", expected)
    try:
        answer = metric.answer_type(step)
    except KeyError:
        found = f"{class_path(type(metric))} without an answer type for {step}"
        problem = Problem(WHERE, "answer_types", found, "the type of the step's answers in `answer_types` of the class")
        raise PromptError("graded examples are wrong", [problem]) from None
    graded = library.load_examples(prompt, version)
    graded.check(prompt, answer)
    return graded


def metric_class(name: str, path: Any, plugins: Sequence[str] = ()) -> type[Metric]:
    """The class that `metrics.<name>.class` names: a shipped one by its name alone, one of a plugin by its dotted path.

    Nothing outside of the shipped metrics and the plugins is imported. Raises ConfigError for what is not a metric.
    """
    expected = "the name of a shipped class (conf/metrics/), or the dotted path of a Metric class"
    expected += f" below {' or '.join(plugins)}" if plugins else " below a package of `plugins`"
    module, attribute = _module_of(path)
    if not module or (module != _shipped_module(path) and not _is_below(module, plugins)):
        value = repr(path) if path is not None else "nothing"
        raise _class_error(name, value, expected, _class_fix(path, plugins))
    try:
        cls = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # a plugin may fail at import in any way; the user needs to see which and why
        message = " ".join(str(getattr(error, "message", error)).split())  # of pydantic's without a web address
        text = f"{path!r}, whose import fails: {type(error).__name__}: {message}"
        raise _class_error(name, text, expected) from error
    if not (inspect.isclass(cls) and issubclass(cls, Metric)):
        raise _class_error(name, f"{path!r}, which is {'not there' if cls is None else 'no Metric'}", expected)
    computes = issubclass(cls, Computed) and cls.compute is not Computed.compute
    if cls.measure is Metric.measure and not computes:
        raise _class_error(name, f"{path!r}, which is only a base of metrics", expected)
    return cls


def class_path(cls: type[Metric]) -> str:
    """How a configuration and an identity name a metric's class: a shipped class by its name alone, since it may move
    between modules, any other by its dotted path."""
    return cls.__qualname__ if _is_below(cls.__module__, ["ragpipe"]) else f"{cls.__module__}.{cls.__qualname__}"


def _module_of(path: Any) -> tuple[str, str]:
    """Module and name of the class of a `class:` value; an empty module for what names none."""
    if not isinstance(path, str):
        return "", ""
    module, _, attribute = path.rpartition(".")
    return module or _shipped_module(path), attribute


def _shipped_module(class_name: str) -> str:
    """The module of a shipped class, by its name in snake case or its registration; empty for any other."""
    if not re.fullmatch(r"([A-Z][a-z0-9]*)+", class_name):
        return ""
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", class_name.removesuffix("Metric")).lower()
    modules = (f"ragpipe.metrics.{room}.{stem}" for room in ("judged", "computed"))
    if module := next((module for module in modules if importlib.util.find_spec(module)), ""):
        return module
    registered = registry.find("metric", class_name)
    return registered.__module__ if registered is not None else ""


def _is_below(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _class_fix(path: Any, plugins: Sequence[str]) -> str:
    if not isinstance(path, str):
        return ""
    if "." not in path:
        return "conf/metrics/ has the shipped classes"
    return f"list your own package: 'plugins=[{','.join([*plugins, path.partition('.')[0]])}]'"


def _load_prompts(
    name: str, cls: type[Metric], versions: Any, library: PromptLibrary, unused: frozenset[str]
) -> tuple[dict[str, Prompt], list[Problem]]:
    """The prompts of the steps in use, and what is wrong. The version of an unused step is ignored."""
    steps = cls.step_names()
    versions = {} if versions is None else versions
    if not isinstance(versions, Mapping):
        return {}, [_problem(name, "prompts", repr(versions), f"a mapping of the steps {list(steps)} to versions")]
    prompts: dict[str, Prompt] = {}
    problems: list[Problem] = []
    for step in [*steps, *(step for step in versions if step not in steps)]:
        if step in unused:
            continue
        key = f"prompts.{step}"
        if step not in steps:
            near = difflib.get_close_matches(step, steps, n=1)
            fix = f"did you mean {near[0]}?" if near else ""
            problems.append(_problem(name, key, f"the step {step!r}", f"one of the steps {list(steps)}", fix))
            continue
        try:
            prompts[step] = _load_prompt(name, cls, step, versions.get(step), library)
        except PromptError as error:
            problems += [Problem(p.where, f"{WHERE}.{name}.{key}", p.found, p.expected, p.fix) for p in error.problems]
    return prompts, problems


def _load_prompt(name: str, cls: type[Metric], step: str, version: Any, library: PromptLibrary) -> Prompt:
    folder = cls.prompt_folder(step)
    if isinstance(version, str):
        prompt = library.load(folder, step, version)
        _check_answer_type(cls, step, prompt)
        return prompt
    value = "nothing" if version is None else repr(version)
    known = ", ".join(library.versions(folder, step)) or "none"
    problem = _problem(name, f"prompts.{step}", value, f"a version of {folder}/{step}; there are: {known}")
    raise PromptError("a prompt is missing", [problem])


def _check_answer_type(cls: type[Metric], step: str, prompt: Prompt) -> None:
    """Raises PromptError, with the line, for a template that asks for an answer that the step cannot use."""
    known = [answer.__name__ for answer in cls.answer_types.get(step, ())]
    if prompt.answer_type and prompt.answer_type not in known:
        expected = f"one of {known}" if known else "no answer_type: this step has one form of answer"
        raise template_error(prompt.path, line_of(prompt.text, "answer_type"), f"answer_type: {prompt.answer_type}", expected)


def _parameter_problem(name: str, cls: type[Metric], fault: Any) -> Problem:
    key = ".".join(str(part) for part in fault["loc"]) or "(the whole section)"
    if fault["type"] == "extra_forbidden":
        known = [field for field in cls.model_fields if field != "name" and field not in cls.step_names()]
        near = next(iter(difflib.get_close_matches(key, known, n=1)), None)
        fix = with_description(f"did you mean {near}?", cls.model_fields[near].description or "") if near else ""
        if key in OF_A_JURY:
            fix = "a jury has several judges to choose from: +judge@jury.members.NAME=..."
        return _problem(name, key, repr(fault["input"]), f"one of the parameters {known}", fix)
    field = cls.model_fields.get(key)
    description = (field.description if field is not None else None) or ""
    if fault["type"] == "missing":
        return _problem(name, key, "nothing", "a value", description)
    fix = "" if fault["type"] == "value_error" else description
    return _problem(name, key, repr(fault["input"])[:200], fault["msg"].removeprefix("Value error, "), fix)


def _class_error(name: str, value: str, expected: str, fix: str = "") -> ConfigError:
    return ConfigError(f"the metric {name} has no usable class", [_problem(name, "class", value, expected, fix)])


def _problem(name: str, key: str, value: str, expected: str, fix: str = "") -> Problem:
    return Problem(WHERE, f"{WHERE}.{name}.{key}", value, expected, fix)
