"""`task=schema dir=FOLDER`: JSON Schemas of the YAML, for completion and checks in an editor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ragpipe.cli.json_schemas import json_schemas
from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, OutputError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, did_you_mean, validated
from ragpipe.runs.finished_run import setting_keys
from ragpipe.runs.settings import RUN_KEYS

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
    problems: list[Problem] = []
    section = {key: value for key, value in plain.items() if key == "dir"}
    settings = validated(SchemaSettings, section, "", origins or NoOrigins(), problems)
    if settings is None:
        raise ConfigError("task=schema needs a folder; nothing was written", problems)
    return settings


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
