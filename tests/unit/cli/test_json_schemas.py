"""The JSON Schemas of the YAML: up to date, met by every shipped YAML, and strict about misspelt keys."""

import json
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from jsonschema import Draft7Validator
from pydantic import BaseModel
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from ragpipe.cli.tasks.schema import GROUPS, schema_texts, shipped_metrics, task_keys
from ragpipe.core.registry import option_files, option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.core.settings import Settings
from ragpipe.judge.prompt_library import Prompt
from ragpipe.runs.settings import RunConfig, StoreSettings, TopSettings

CONF = conf_dir()
OPTIONS = [path for folder in option_folders() for path in sorted(folder.rglob("*.yaml")) if path.parent.name != "patterns"]
MODELINE = "# yaml-language-server: $schema="


@pytest.fixture(scope="module")
def texts():
    return schema_texts()


@pytest.fixture(scope="module")
def registry(texts):
    """The schemas where they are committed, so that a reference is followed as an editor follows it."""
    return Registry().with_resources(
        ((CONF / "schema" / name).as_uri(), Resource.from_contents(json.loads(text), default_specification=DRAFT7))
        for name, text in texts.items()
    )


def faults(schema, value, registry):
    checker = Draft7Validator({"$ref": schema.resolve().as_uri()}, registry=registry)
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in checker.iter_errors(as_json(value))]


def as_json(value):
    """The keys of a YAML mapping as text, as an editor reads them."""
    if isinstance(value, dict):
        return {str(key).lower() if isinstance(key, bool) else str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def named_schema(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines()[:2] if line.startswith(MODELINE)]
    assert lines, f"{path.name}: put `{MODELINE}<path of its schema>` into its first two lines, as its siblings do"
    return path.parent / lines[0].removeprefix(MODELINE)


def test_each_task_has_its_keys_in_the_schema_of_tasks():
    assert list(task_keys()) == list(option_files("task")), "register the task (ragpipe/core/registry.py, or the ENTRIES of its extra)"


@pytest.mark.slow
def test_the_committed_schemas_are_those_of_the_settings(texts):
    folder = CONF / "schema"
    committed = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    assert committed.keys() == texts.keys(), "run `python -m ragpipe task=schema dir=conf/schema`"
    stale = [name for name, text in texts.items() if committed[name] != text]
    assert not stale, "run `python -m ragpipe task=schema dir=conf/schema`"


@pytest.mark.slow
def test_each_schema_is_one(texts):
    for text in texts.values():
        Draft7Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_shipped_yaml_names_its_schema_and_meets_it(path, registry):
    schema = named_schema(path)
    assert schema.is_file()
    assert faults(schema, yaml.safe_load(path.read_text(encoding="utf-8")), registry) == []


@pytest.mark.parametrize(("schema", "value", "misspelt"), [
    ("judge", {"kind": "llm", "temprature": 1}, "temprature"),
    ("judge", {"kind": "rules", "model": "openai/m"}, "model"),  # a key of another kind
    ("judge", {"temprature": 1}, "temprature"),
    ("embedder", {"kind": "minilm", "bach": 1}, "bach"),
    ("system", {"kind": "http", "ulr": "http://x"}, "ulr"),
    ("transport", {"knd": "live"}, "knd"),
    ("dataset", {"feilds": {}}, "feilds"),
    ("dataset", {"fields": {"chunks": {"eech": "x"}}}, "eech"),
    ("report", {"format": []}, "format"),
    ("scoring", {"weigths": {}}, "weigths"),
    ("scoring", {"gates": {"g": {"scor": "faithfulness"}}}, "scor"),
    ("scoring", {"failure_modes": {"m": [{"all": [{"scor": "mrr", "below": 1}]}]}}, "scor"),
    ("metrics", {"faithfulness": {"bach": 1}}, "bach"),
    ("metrics", {"faithfulness": {"prompts": {"verfy": "v1"}}}, "verfy"),
    ("run", {"judge": {"temprature": 1}}, "temprature"),
    ("run", {"metrics": {"mine": {"class": "RubricMetric", "scael": 1}}}, "scael"),
    ("run", {"iteration": 2}, "iteration"),
    ("task", {"task": "store", "acton": "stats"}, "acton"),
])  # fmt: skip
def test_a_misspelt_key_is_flagged(schema, value, misspelt, registry):
    path = CONF / "schema" / f"{schema}.json"
    problems = faults(path, value, registry)
    assert any(misspelt in problem for problem in problems), problems


def test_a_wrong_value_is_flagged_and_an_open_one_is_not(registry):
    path = CONF / "schema" / "judge.json"
    assert faults(path, {"kind": "llm", "temperature": "hot"}, registry)
    assert faults(path, {"kind": "lm"}, registry)
    for value in (0.5, 1, None, "${oc.env:HEAT}", "???"):
        assert faults(path, {"kind": "llm", "temperature": value}, registry) == []


def test_a_metric_of_ones_own_needs_its_class_alone(registry):
    path = CONF / "schema" / "run.json"
    assert faults(path, {"metrics": {"mine": {"class": "my.Metric", "anything": 1}}}, registry) == []
    assert faults(path, {"metrics": {"mine": {"anything": 1}}}, registry)


def models():
    """Every class of settings that the configuration is made of, those inside others too."""
    tops: list[Any] = [RunConfig, TopSettings, StoreSettings, *GROUPS.values(), *shipped_metrics().values(), *task_keys().values()]
    pending = [model for top in tops if top for model in (top.values() if isinstance(top, dict) else [top])]
    seen: set[type[BaseModel]] = set()
    while pending:
        model = pending.pop()
        if model in seen:
            continue
        seen.add(model)
        yield model
        pending += [inner for field in model.model_fields.values() for inner in inner_models(field.annotation)]


def inner_models(annotation):
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if issubclass(annotation, Settings):
            yield annotation
    elif get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            yield from inner_models(argument)


def test_every_setting_has_a_description():
    classes = list(models())
    assert len(classes) > 60
    without = [
        f"{model.__name__}.{name}"
        for model in classes
        for name, field in model.model_fields.items()
        if field.annotation not in (Prompt, Prompt | None) and not (field.description or "").rstrip().endswith(".")
    ]
    assert without == [], "give each a Field(description=...) of one or two sentences"
