"""`task=schema dir=FOLDER`: JSON Schemas of the YAML that a user writes, made from the settings, for completion and checks in an editor.

They are looser than the settings: what has a default may be left out, a value may be an interpolation (`${...}`) or left open
(`???`), and an option file may list `defaults`. Unknown keys are refused. Draft 7, which editors know best.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema

from ragpipe.comparison.settings import CompareSettings
from ragpipe.core import registry
from ragpipe.core.errors import OutputError, Problem
from ragpipe.core.registry import option_files
from ragpipe.core.score import LabelQuestion
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, did_you_mean, setting_keys, task_settings
from ragpipe.data.settings import DatasetSettings
from ragpipe.judge.jury import JurySettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import class_path, metric_class
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.settings import RUN_KEYS, RunConfig, StoreSettings, TopSettings
from ragpipe.score.settings import ScoringSettings

if TYPE_CHECKING:
    from ragpipe.report.console import Console

_OPEN_LEVELS = 4


class SchemaSettings(Settings):
    """Where the schemas are written."""

    dir: str = Field(
        default="schema", min_length=1, description="Folder of the JSON Schemas. It is made; its own files are replaced."
    )


Keys = SchemaSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> SchemaSettings:
    """Check the one key of this task. Raises ConfigError."""
    title = "task=schema needs a folder; nothing was written"
    return task_settings(SchemaSettings, plain, origins or NoOrigins(), title=title)


def run(settings: SchemaSettings, console: Console) -> int:
    """Write the schemas and print how a YAML names one. Returns 0. Raises OutputError."""
    folder = Path(settings.dir)
    texts = schema_texts()
    write_schemas(folder, texts)
    console.say(f"written to {folder}/: {len(texts)} JSON Schemas")
    console.say("name one in the first comment of a YAML, by its path from there:")
    console.say(f"  # yaml-language-server: $schema=../{folder.name}/judge.json")
    return 0


def task_keys() -> dict[str, type[Settings] | None]:
    """The keys of each task beside those of a run; None: none."""
    return {name: getattr(module, "Keys", None) for name, module in sorted(registry.everything("task").items())}


def schema_texts() -> dict[str, str]:
    """Every schema as JSON text, by its file name."""
    schemas = json_schemas(task_keys())
    return {name: _json_text(schema) + "\n" for name, schema in schemas.items()}


def write_schemas(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the schemas below a folder, over files of the same names. Raises OutputError."""
    try:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {error.filename}: {error.strerror}") from error


def _json_text(value: Any, depth: int = 0) -> str:
    """JSON with one line per key of the outer levels and none within: small, and changes can be read line by line."""
    if not isinstance(value, dict) or depth == _OPEN_LEVELS or not value:
        return json.dumps(value, ensure_ascii=False)
    indent = " " * (depth + 1)
    lines = [f"{indent}{json.dumps(key)}: {_json_text(item, depth + 1)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent[1:]}}}"


def unknown_words(task: str, words: Sequence[str], origins: ConfigOrigins) -> list[Problem]:
    """Which of these typed keys, none of them a run's, are not the task's either: it would pass over a misspelt one in silence. An
    evaluation, which has no settings of its own, checks all of its keys itself."""
    settings = getattr(registry.find("task", task), "Keys", None)
    keys = setting_keys(settings) if settings else tuple(words)
    what, expected = f"a key that task={task} does not know", f"keys of task={task}: {', '.join(keys)}; or of a run"
    return [
        Problem(origins.location(key), key, what, expected, did_you_mean(key, keys) or did_you_mean(key, RUN_KEYS))
        for key in words
        if key not in keys
    ]


Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
OPEN_VALUE: Schema = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}
"""A value that is filled in later: an interpolation, or the mark of one that must be given."""
DEFAULTS: Schema = {"type": "array", "description": "Hydra's list of the options that this file builds on."}
GROUPS: dict[str, type[Settings] | Mapping[str, type[Settings]]] = {
    "dataset": DatasetSettings,
    "system": registry.everything("system"),
    "judge": registry.everything("judge"),
    "transport": registry.everything("transport"),
    "runner": registry.everything("runner"),
    "embedder": registry.everything("embedder"),
    "scoring": ScoringSettings,
    "report": ReportSettings,
}
"""The settings of each option group, by `kind` where that decides them."""
TASK_GROUPS: dict[str, type[Settings]] = {"compare": CompareSettings}
"""The option groups of a task alone: no run has them."""


_CLASS: Schema = {"type": "string", "description": "The class: the name of a shipped one, or the dotted path of your own."}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator; a prompt, which no YAML holds, is any value."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Nothing: what cannot be expressed is left open on purpose."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Schema:
        return {}


SCORING_PARTS = ("weights", "thresholds", "diagnosis", "low_scores")
"""Parts of the scoring section whose option files hold the part alone, without its key."""


def json_schemas(task_settings: Mapping[str, type[Settings] | None]) -> dict[str, Schema]:
    """Every schema by its file name: one per group, `run.json` for experiments, modes and the
    primary configuration, `task.json` for the tasks with these settings (None: none of their own)."""
    schemas = {f"{group}.json": _group_schema(settings) for group, settings in {**GROUPS, **TASK_GROUPS}.items()}
    schemas |= {
        f"scoring/{part}.json": {"$ref": f"../scoring.json#/definitions/section/properties/{part}"} for part in SCORING_PARTS
    }
    schemas["metrics.json"] = _metrics_schema(shipped_metrics())
    run_definitions: dict[str, Schema] = {}  # all that an experiment, a mode or the primary configuration may set
    schemas["run.json"] = _keys_alone(_run_properties(run_definitions), run_definitions)
    schemas["task.json"] = _task_schema(task_settings)
    return {name: {"$schema": DRAFT, **schema} for name, schema in sorted(schemas.items())}


def shipped_metrics() -> dict[str, type[Metric]]:
    """The class of every shipped metric, by its name."""
    sections: dict[str, Any] = {}
    for path in option_files("metrics").values():
        sections |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: metric_class(name, section["class"]) for name, section in sections.items()}


def _group_schema(settings: type[Settings] | Mapping[str, type[Settings]]) -> Schema:
    """The schema of an option file, which as `#/definitions/section` is that of the section too."""
    definitions: dict[str, Schema] = {}
    if isinstance(settings, Mapping):
        section = _section_by_kind(settings, definitions)
    else:
        section = _with_defaults_list(_model_schema(settings, definitions))
    return {"$ref": "#/definitions/section", "definitions": {**_sorted(definitions), "section": section}}


def _section_by_kind(kinds: Mapping[str, type[Settings]], definitions: dict[str, Schema]) -> Schema:
    """A section whose `kind` decides which keys it has; without one, as in an overlay, it has the keys of any kind."""
    keys: dict[str, Schema] = {}
    for kind, model in kinds.items():
        schema = _with_defaults_list(_model_schema(model, definitions))
        definitions[f"kind_{kind}"] = schema
        for key, value in schema["properties"].items():
            keys.setdefault(key, {key_name: value[key_name] for key_name in ("description",) if key_name in value})
    keys["kind"] = {"enum": list(kinds), "description": "What it is; it decides the other keys."}
    has_kind = [
        {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"$ref": f"#/definitions/kind_{kind}"}}
        for kind in kinds
    ]
    return {"type": "object", "properties": keys, "additionalProperties": False, "allOf": has_kind}


def _metrics_schema(metrics: Mapping[str, type[Metric]]) -> Schema:
    """A mapping of metrics: shipped ones by name, others by their class."""
    definitions: dict[str, Schema] = {}
    for name, cls in metrics.items():
        definitions[f"metric_{name}"] = _metric_schema(cls, definitions)
    other_metric = {
        "type": "object",
        "properties": {"class": _CLASS},
        "required": ["class"],
        "allOf": [
            {
                "if": {"properties": {"class": {"const": class_path(cls)}}, "required": ["class"]},
                "then": {"$ref": f"#/definitions/metric_{name}"},
            }
            for name, cls in metrics.items()
        ],
    }
    properties = {"defaults": DEFAULTS} | {name: {"$ref": f"#/definitions/metric_{name}"} for name in metrics}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": other_metric,
        "definitions": _sorted(definitions),
    }


def _metric_schema(cls: type[Metric], definitions: dict[str, Schema]) -> Schema:
    """The section of one metric: its class, the versions of its templates, its parameters."""
    schema = _model_schema(cls, definitions)
    steps = {
        step: {"type": "string", "description": f"Version of the template prompts/{cls.prompt_folder(step)}/{step}."}
        for step in cls.step_names()
    }
    parameters = {key: value for key, value in schema["properties"].items() if key not in {"name", *steps}}
    prompts = {"type": "object", "properties": steps, "additionalProperties": False}
    first = {
        "class": {**_CLASS, "default": class_path(cls)},
        "prompts": {**prompts, "description": "Versions of the prompt templates, by step."},
    }
    if not steps:
        first.pop("prompts")
    definitions["LabelQuestion"] = _model_schema(LabelQuestion, definitions)
    first["label"] = {
        "description": "What a person is asked who labels its scores, and the grades.",
        "anyOf": [{"$ref": "#/definitions/LabelQuestion"}, {"type": "null"}, OPEN_VALUE],
    }
    return {**schema, "properties": {**first, **parameters}}


def _run_properties(definitions: dict[str, Schema]) -> dict[str, Schema]:
    sections: dict[str, Schema] = {group: {"$ref": f"{group}.json#/definitions/section"} for group in GROUPS}
    sections["metrics"] = {"$ref": "metrics.json"}
    sections["store"] = _model_schema(StoreSettings, definitions)
    described = {
        name: {"description": RunConfig.model_fields[name].description, "allOf": [schema]} for name, schema in sections.items()
    }
    described[JurySettings.section] = _jury_schema(definitions)
    hydra = {"type": "object", "description": "Hydra's own section; only what starts a sweep may be set."}
    return {"defaults": DEFAULTS, **_model_schema(TopSettings, definitions)["properties"], **described, "hydra": hydra}


def _jury_schema(definitions: dict[str, Schema]) -> Schema:
    """The section `jury` as it is composed: judges below `members`; what metrics say of their judging stands in their sections."""
    scratch: dict[str, Schema] = {}  # the members' settings are those of the group `judge`
    schema = _model_schema(JurySettings, scratch)
    properties = {name: value for name, value in schema["properties"].items() if name not in ("kind", "by_metric")}
    members = {"type": "object", "additionalProperties": {"$ref": "judge.json#/definitions/section"}}
    properties["members"] = {**properties["members"], "anyOf": [members, OPEN_VALUE]}
    definitions |= {name: scratch[name] for name in ("CascadeSettings", "BudgetSettings") if name in scratch}
    return {**{key: value for key, value in schema.items() if key != "required"}, "properties": properties}


def _task_schema(task_settings: Mapping[str, type[Settings] | None]) -> Schema:
    """A task's option file: the task and its own keys, beside everything that a run may set."""
    definitions: dict[str, Schema] = {}
    properties: dict[str, Schema] = {}
    for settings in task_settings.values():
        if settings is not None:
            for key, value in _model_schema(settings, definitions)["properties"].items():
                properties[key] = {"anyOf": [properties[key], value]} if key in properties else value
    task = {"enum": sorted(task_settings), "description": TopSettings.model_fields["task"].description}
    return _keys_alone({**_run_properties(definitions), **properties, "task": task}, definitions)


def _keys_alone(properties: dict[str, Schema], definitions: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, "definitions": _sorted(definitions)}


def _model_schema(model: type[BaseModel], definitions: dict[str, Schema]) -> Schema:
    """The schema of a model, with nothing required and open values allowed; models inside it go to `definitions`."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Generator)
    for name, inner in schema.pop("$defs", {}).items():
        definitions[name] = _loose(_without_discriminators(inner))
    loose = _loose(_without_discriminators(schema))
    loose.pop("description", None)  # the class's docstring, which is for programmers
    return loose


def _without_discriminators(value: Any) -> Any:
    """Any form of a union may match: with nothing required several can."""
    if isinstance(value, dict):
        items = {key: _without_discriminators(item) for key, item in value.items() if key != "discriminator"}
        return {"anyOf" if key == "oneOf" else key: item for key, item in items.items()}
    return [_without_discriminators(item) for item in value] if isinstance(value, list) else value


def _loose(schema: Schema) -> Schema:
    schema = {key: value for key, value in schema.items() if key not in ("title", "required")}
    if "properties" in schema:
        schema["properties"] = {key: _property(value) for key, value in schema["properties"].items()}
        schema.pop("description", None)
    return schema


def _property(schema: Schema) -> Schema:
    """The schema of a key's value: what the settings accept, or a value that is filled in later."""
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    values = {key: value for key, value in schema.items() if key not in ("description", "default", "title")}
    if not values or values == {"type": "string"}:
        return {**about, **values}
    choices = values["anyOf"] if set(values) == {"anyOf"} else [values]
    return {**about, "anyOf": [*choices, OPEN_VALUE]}


def _with_defaults_list(schema: Schema) -> Schema:
    return {**schema, "properties": {"defaults": DEFAULTS, **schema["properties"]}}


def _sorted(definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    return dict(sorted(definitions.items()))
