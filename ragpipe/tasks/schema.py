"""`task=schema dir=FOLDER`: JSON Schemas of the YAML, for completion and checks in an editor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ragpipe.building.build_settings import BuildSettings
from ragpipe.config.json_schemas import json_schemas
from ragpipe.config.settings import RUN_KEYS
from ragpipe.core.errors import ConfigError, OutputError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, did_you_mean, validated
from ragpipe.engine.task_settings import setting_keys
from ragpipe.extras.checks.judge_audit import JudgeAuditSettings
from ragpipe.extras.checks.selftest import SelftestSettings
from ragpipe.extras.checks.spot_check import SpotCheckSettings
from ragpipe.labelling.label_settings import LabelSettings
from ragpipe.schema.settings import Settings
from ragpipe.scoring.weighing.weighing_settings import WeighingSettings
from ragpipe.synthesizing.settings import SynthesizeSettings
from ragpipe.tasks.calibrate import CalibrateSettings
from ragpipe.tasks.compare import CompareTaskSettings
from ragpipe.tasks.explain import ExplainSettings
from ragpipe.tasks.export import ExportSettings
from ragpipe.tasks.fetch import FetchSettings
from ragpipe.tasks.history import HistorySettings
from ragpipe.tasks.init import InitSettings
from ragpipe.tasks.plan import PlanSettings
from ragpipe.tasks.publish import PublishTaskSettings
from ragpipe.tasks.rejudge import RejudgeSettings
from ragpipe.tasks.runs import RunsSettings
from ragpipe.tasks.store import StoreTaskSettings
from ragpipe.tasks.view import ViewTaskSettings

if TYPE_CHECKING:
    from ragpipe.reports.console import Console

_OPEN_LEVELS = 4


class SchemaSettings(Settings):
    """Where the schemas are written."""

    dir: str = Field(
        default="schema",
        min_length=1,
        description="Folder of the JSON Schemas. It is made; its own files are replaced.",
    )


class _FinishedRunKeys(Settings):
    run: str = Field(min_length=1, description="Folder of the finished run.")


class _PlanKeys(Settings):
    plan: PlanSettings = Field(description="Where the whole plan is written.")


class _ExplainKeys(_FinishedRunKeys, ExplainSettings):
    pass


class _BuildKeys(Settings):
    build: BuildSettings = Field(description="How a test set is drawn from the data set, and where it is written.")


class _CalibrateKeys(_FinishedRunKeys):
    calibrate: CalibrateSettings = Field(description="Which labels, and what agreement has to exceed.")


class _JudgeAuditKeys(_FinishedRunKeys):
    judge_audit: JudgeAuditSettings = Field(description="Which attacks and probes, on how many cases, and what counts.")


class _LabelKeys(_FinishedRunKeys):
    label: LabelSettings = Field(description="Which cases people label, or which labelled files are read.")


class _RejudgeKeys(_FinishedRunKeys):
    rejudge: RejudgeSettings = Field(description="How the judge is asked again.")


class _SelftestKeys(_FinishedRunKeys):
    selftest: SelftestSettings = Field(description="Which mutants are made, and what is expected of each score.")


class _SpotCheckKeys(_FinishedRunKeys):
    spot_check: SpotCheckSettings = Field(description="How many cases, which of them, and what is too much.")


class _SynthesizeKeys(Settings):
    synthesize: SynthesizeSettings = Field(description="Documents, templates and counts of a test set.")


class _WeightsKeys(_FinishedRunKeys):
    weights: WeighingSettings = Field(description="Weight sets, draws and ratings.")


TASKS: dict[str, type[Settings] | None] = {
    "build_dataset": _BuildKeys,
    "calibrate": _CalibrateKeys,
    "compare": CompareTaskSettings,
    "drift": None,
    "evaluate": None,
    "explain": _ExplainKeys,
    "export": ExportSettings,
    "fetch": FetchSettings,
    "history": HistorySettings,
    "init": InitSettings,
    "judge_audit": _JudgeAuditKeys,
    "label": _LabelKeys,
    "plan": _PlanKeys,
    "publish": PublishTaskSettings,
    "rejudge": _RejudgeKeys,
    "rescore": _FinishedRunKeys,
    "runs": RunsSettings,
    "schema": SchemaSettings,
    "selftest": _SelftestKeys,
    "spot_check": _SpotCheckKeys,
    "store": StoreTaskSettings,
    "synthesize": _SynthesizeKeys,
    "verify": _FinishedRunKeys,
    "view": ViewTaskSettings,
    "weights": _WeightsKeys,
}
"""The keys of each task beside those of a run; None: none."""


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


def schema_texts() -> dict[str, str]:
    """Every schema as JSON text, by its file name."""
    schemas = json_schemas(TASKS)
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
    settings = TASKS.get(task)
    keys = setting_keys(settings) if settings else tuple(words)
    what, expected = f"a key that task={task} does not know", f"keys of task={task}: {', '.join(keys)}; or of a run"
    return [
        Problem(origins.location(key), key, what, expected, did_you_mean(key, keys) or did_you_mean(key, RUN_KEYS))
        for key in words
        if key not in keys
    ]
