"""What tasks share: their own settings, and the finished run that they work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.runs.finished_run import FinishedRun, open_run
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.settings import Settings

SettingsT = TypeVar("SettingsT", bound=Settings)
_DEFAULT_NAME = "run"  # of `name` in conf/ragpipe.yaml


class FinishedRunKeys(Settings):
    """The keys of a task over a finished run, beside its own. `Keys` of a task's module are all that its YAML may have."""

    run: str = Field(min_length=1, description="Folder of the finished run.")


@dataclass(frozen=True)
class FinishedRunTask(Generic[SettingsT]):
    """A task over a finished run: the run as it was opened, and the task's own settings."""

    finished: FinishedRun
    settings: SettingsT

    @property
    def plugins(self) -> list[str]:
        """The packages of the user's own classes that this start may import."""
        return self.finished.config.plugins

    @property
    def log_level(self) -> str:
        """The level of the library logs of this start."""
        return self.finished.config.log_level

    @property
    def lock_wait_s(self) -> float | None:
        """Seconds to wait for a folder that another process is using; None for the default."""
        return self.finished.config.lock_wait_s


def open_finished_run(
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None,
    settings_class: type[SettingsT],
    *,
    task: str,
    title: str = "",
    changeable: Sequence[str] = (),
) -> FinishedRunTask[SettingsT]:
    """The task's settings and the run that `run` names.

    Args:
        plain: the composed configuration.
        origins: where each value was set.
        settings_class: the task's settings; its fields are top-level keys of `plain`.
        task: the name of the task, for messages.
        title: the title of the error for wrong settings.
        changeable: the sections and keys of the run's configuration that the task may change.

    Raises ConfigError and DataError.
    """
    origins = origins or NoOrigins()
    settings = task_settings(settings_class, plain, origins, title=title)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=setting_keys(settings_class))
    return FinishedRunTask(finished, settings)


def unnamed_judge(finished: FinishedRun, origins: ConfigOrigins, *, without_a_call: str) -> Problem | None:
    """The problem where a live judge is to be asked that only the run folder names: the folder may come from anybody, so a live
    call goes where the user says. `without_a_call` is what to write instead for no call at all."""
    config = finished.config
    asks_server = isinstance(config.judge, JurySettings) and bool(config.judge.asked_servers)
    is_live = config.transport.asks and (isinstance(config.judge, JudgeSettings) or asks_server)
    if not is_live or "judge" in finished.overrides:
        return None
    return Problem(
        origins.location("judge"),
        "judge",
        f"only the run's own ({config.judge.label})",
        "a judge that you name: addresses and names of keys are never taken from a run folder",
        f"judge=llm judge.model=... (and judge.api_base, judge.api_key_env), or {without_a_call} for no call",
    )


def task_settings(
    settings_class: type[SettingsT],
    plain: Mapping[str, Any],
    origins: ConfigOrigins,
    *,
    title: str,
    section: str = "",
    known_problems: Iterable[Problem] = (),
) -> SettingsT:
    """The settings of a task, from its top-level keys or from the section of this name.

    Args:
        settings_class: the settings to read.
        plain: the composed configuration.
        origins: where each value was set.
        title: the title of the error.
        section: the section that holds the settings; empty where they are top-level keys.
        known_problems: problems of the task that were seen already; they are reported with those of the settings.

    Raises ConfigError.
    """
    problems = list(known_problems)
    values = plain.get(section, {}) if section else own_values(settings_class, plain)
    settings = validated(settings_class, values, section, origins, problems)
    if settings is None or problems:
        raise ConfigError(title, problems)
    return settings


def chosen_name(plain: Mapping[str, Any], origins: ConfigOrigins) -> Any:
    """The `name` of the configuration; None where it is the default, which the user did not set."""
    name = plain.get("name")
    return None if name == _DEFAULT_NAME and "name" not in getattr(origins, "chosen", ()) else name


def own_values(settings_class: type[Settings], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the composed configuration that these settings read; a task ignores all other keys."""
    return {key: plain[key] for key in setting_keys(settings_class) if key in plain}


def setting_keys(settings_class: type[Settings]) -> tuple[str, ...]:
    """The keys of these settings, as they are written in YAML."""
    return tuple(field.alias or name for name, field in settings_class.model_fields.items())
