"""The configuration of a run: every section as its settings, checked together before anything is spent."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ragpipe.core.errors import ConfigError, Problem, PromptError
from ragpipe.core.resources import conf_dir, prompts_dir
from ragpipe.core.secret_detection import FIX, looks_secret, secret_at, secrets_of_environment
from ragpipe.core.validation import ConfigOrigins, NoOrigins, did_you_mean, show_value, validated
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.embedding.settings import EMBEDDERS, EmbedderSettings
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.shared.multi_reference import with_rule
from ragpipe.prompting.library import PromptLibrary
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.settings import NotInIdentity, Settings
from ragpipe.scoring.cross_checks import scoring_faults
from ragpipe.scoring.default_settings import WHOLE
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.systems.settings import PythonSystem, SystemSettings, settings_class

TITLE = "the configuration is wrong; nothing was started"
SECRET = "no secret in a configuration"
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}\Z")
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}\Z")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")


class TransportSettings(Settings):
    """How questions travel. `live`: to the provider; `stored`: only replies that the store has, a missing one fails."""

    kind: Literal["live", "stored"] = "live"


class StoreSettings(Settings):
    """Where judge replies are kept for all runs. `path` null: `<output_dir>/.store`; on a local disk, never on NFS."""

    path: Annotated[str, Field(min_length=1)] | None = None


class TopSettings(Settings):
    """The keys that stand in no section.

    `on_metric_error`: `stop` ends the run at the first unexpected exception of a metric, `record` goes on and records
    it. `retry_errors` asks again what failed for good. `lock_wait_s` is how long a folder that another process works on is
    waited for; null: not at all, and a day for a job of a sweep. `seed` is that of `dataset.sample`, where it has none of its own.
    `prompt_dirs` are searched before the shipped prompts.
    """

    name: str = "run"
    output_dir: Annotated[str, Field(min_length=1), NotInIdentity] = "outputs"
    iterations: Annotated[int, Field(ge=1, le=1000), NotInIdentity] = 1
    seed: Annotated[int, Field(ge=0, le=2**32 - 1), NotInIdentity] = 0
    plugins: Annotated[list[str], NotInIdentity] = Field(default_factory=list)
    prompt_dirs: Annotated[list[str], NotInIdentity] = Field(default_factory=list)
    log_level: Annotated[Literal["debug", "info", "warning", "error"], NotInIdentity] = "warning"
    on_metric_error: Annotated[Literal["stop", "record"], NotInIdentity] = "stop"
    retry_errors: Annotated[bool, NotInIdentity] = False
    lock_wait_s: Annotated[float | None, Field(ge=0, le=1e7, allow_inf_nan=False), NotInIdentity] = None
    store_inputs: bool = True
    task: Annotated[str, NotInIdentity] = "evaluate"

    @field_validator("name")
    @classmethod
    def _folder_name(cls, value: str) -> str:
        if not _FOLDER.match(value) or value.endswith("."):
            raise ValueError(
                "a folder's name: letters, digits, '.', '_', '-', at most 64, beginning with a letter or digit"
            )
        return value

    @field_validator("plugins")
    @classmethod
    def _importable(cls, plugins: list[str]) -> list[str]:
        for name in plugins:
            if not _MODULE.match(name):
                raise ValueError(f"names of Python packages, found {name!r}")
            try:
                found = importlib.util.find_spec(name.partition(".")[0])
            except (ImportError, ValueError):
                found = None
            if found is None:
                raise ValueError(f"packages that can be imported; {name!r} cannot: install it or set PYTHONPATH")
        return plugins

    @field_validator("prompt_dirs")
    @classmethod
    def _folders(cls, folders: list[str]) -> list[str]:
        for folder in folders:
            if not Path(folder).is_dir():
                raise ValueError(f"folders; {folder!r} is none (relative to {Path.cwd()})")
        return folders


class RunConfig(TopSettings):
    """Everything a run needs, checked. Made by `validate`."""

    dataset: DatasetSettings
    system: SystemSettings
    judge: JudgeSettings | HeuristicSettings
    transport: Annotated[TransportSettings, NotInIdentity]
    embedder: EmbedderSettings
    metrics: Annotated[dict[str, Metric], NotInIdentity]
    scoring: ScoringSettings
    report: Annotated[ReportSettings, NotInIdentity]
    store: Annotated[StoreSettings, NotInIdentity]

    @property
    def prompts(self) -> PromptLibrary:
        """The user's prompt folders, then the shipped one."""
        return prompt_library(self.prompt_dirs)

    def identity(self) -> dict[str, Any]:
        """The sections that can change a number, as plain JSON: what goes into a run's id beside data and metrics.

        Metrics are not among them: their versions and the hashes of their prompts belong to them (`tasks/identity.py`).
        """
        found = super().identity()
        found.pop("name")
        return found


_JUDGES: dict[Any, type[Settings]] = {
    "evidence": HeuristicSettings,
    "llm": JudgeSettings,
}
_SECTIONS: dict[str, type[Settings]] = {
    "dataset": DatasetSettings,
    "transport": TransportSettings,
    "scoring": ScoringSettings,
    "report": ReportSettings,
    "store": StoreSettings,
}


def prompt_library(prompt_dirs: list[str]) -> PromptLibrary:
    """Templates of the given folders first, then of the shipped one."""
    return PromptLibrary([*(Path(folder).absolute() for folder in prompt_dirs), prompts_dir()])


def validate_config(
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None = None,
    *,
    prompts: PromptLibrary | None = None,
    whole_scoring: bool = False,
) -> RunConfig:
    """Check a composed configuration as a whole.

    `prompts` are given for a run that is finished: its templates travelled with it, and its system is not asked again.
    With `whole_scoring` the scoring is that of a finished run, and no shipped default is merged into it.
    Raises ConfigError that lists every fault of every section at once: key, file and line, found, expected, fix.
    """
    origins = origins or NoOrigins()
    problems = secrets_in(plain, origins)
    if problems:
        raise ConfigError(TITLE, problems)  # before anything else, because other messages show what was found
    top = validated(
        TopSettings, {k: v for k, v in plain.items() if k in TopSettings.model_fields}, "", origins, problems
    )
    problems += _unknown(plain, origins)
    sections: dict[str, Any] = {}
    for name, model in _SECTIONS.items():
        if name == "dataset" and not plain.get(name):
            problems.append(
                Problem(
                    origins.of(name),
                    name,
                    "no data set",
                    "a data set",
                    "pass +experiment=NAME or dataset=NAME",
                )
            )
            continue
        context = WHOLE if name == "scoring" and whole_scoring else None
        sections[name] = validated(model, plain.get(name, {}), name, origins, problems, context)
    system = plain.get("system", {})
    sections["system"] = validated(settings_class(system), system, "system", origins, problems)
    if isinstance(sections["system"], PythonSystem) and top is not None and prompts is None:
        problems += _importable(sections["system"], top.plugins, origins)
    sections["judge"] = _of_kind("judge", _JUDGES, "llm", plain, origins, problems)
    sections["embedder"] = _of_kind("embedder", EMBEDDERS, "none", plain, origins, problems)
    if prompts is None:
        problems += _embedder_not_installed(sections["embedder"], origins)
    finished = prompts is not None
    prompts = prompts or prompt_library(top.prompt_dirs if top else [])
    sections["metrics"] = _metrics(plain, prompts, top.plugins if top else [], origins, problems)
    scoring: ScoringSettings | None = sections["scoring"]
    if sections["metrics"] is not None:
        if sections.get("dataset") is not None:
            sections["metrics"] = with_rule(sections["metrics"], sections["dataset"].references)
        problems += _taken_names(sections["metrics"], origins)
        if not finished:
            problems += _without_encoder(sections["metrics"], origins)
    if scoring is not None and sections["metrics"] is not None:
        specs = [spec for metric in sections["metrics"].values() for spec in metric.scores()]
        problems += [_placed(p, origins) for p in scoring_faults(scoring, specs)]
    if problems or top is None:
        raise ConfigError(TITLE, problems)
    if (dataset := sections["dataset"]).sample is not None:
        sections["dataset"] = dataset.model_copy(update={"sample": dataset.sample.seeded(top.seed)})
    return RunConfig(**{name: getattr(top, name) for name in TopSettings.model_fields}, **sections)


def task_name(plain: Mapping[str, Any], origins: ConfigOrigins) -> str:
    """The task to do: an option of `task`, whose module in `ragpipe.tasks` has a `run`. Raises ConfigError for others."""
    name, known = plain.get("task"), sorted(path.stem for path in (conf_dir() / "task").glob("*.yaml"))
    if name not in known:
        expected, fix = f"one of {', '.join(known)}", did_you_mean(str(name), known)
        raise ConfigError(TITLE, [Problem(origins.of("task"), "task", show_value(name), expected, fix)])
    return str(name)


def secrets_in(plain: Any, origins: ConfigOrigins) -> list[Problem]:
    """Every value that looks like a key, wherever it came from (an interpolation may have brought it in)."""
    known = secrets_of_environment()
    found: list[Problem] = []

    def walk(value: Any, key: str) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                if what := looks_secret(str(name), known):
                    found.append(Problem(origins.of(key), key or "a key", f"{what} as a key (not shown)", SECRET, FIX))
                else:
                    walk(item, f"{key}.{name}" if key else str(name))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{key}.{index}")
        elif what := secret_at(key, value, known):
            found.append(Problem(origins.of(key), key, f"{what} (not shown)", SECRET, FIX))

    walk(plain, "")
    return found


def _unknown(plain: Mapping[str, Any], origins: ConfigOrigins) -> list[Problem]:
    known = sorted(RunConfig.model_fields)
    return [
        Problem(
            origins.of(key),
            key,
            f"an unknown key (= {show_value(value)})",
            f"one of {', '.join(known)}",
            did_you_mean(key, known),
        )
        for key, value in plain.items()
        if key not in known
    ]


def _importable(system: PythonSystem, plugins: list[str], origins: ConfigOrigins) -> list[Problem]:
    from ragpipe.systems.live_system import open_system

    try:
        open_system(system, plugins)
    except ConfigError as error:
        return [_placed(p, origins) for p in error.problems]
    return []


def _of_kind(
    name: str,
    kinds: Mapping[Any, type[Settings]],
    usual: str,
    plain: Mapping[str, Any],
    origins: ConfigOrigins,
    problems: list[Problem],
) -> Any:
    """A section whose form its `kind` decides; None when it is wrong."""
    section = plain.get(name) or {}
    kind = section.get("kind", usual) if isinstance(section, Mapping) else usual
    if not isinstance(kind, str) or kind not in kinds:
        expected, fix = f"one of {', '.join(kinds)}", did_you_mean(str(kind), kinds)
        problems.append(Problem(origins.of(f"{name}.kind"), f"{name}.kind", show_value(kind), expected, fix))
        return None
    return validated(kinds[kind], section, name, origins, problems)


def _metrics(
    plain: Mapping[str, Any],
    prompts: PromptLibrary,
    plugins: list[str],
    origins: ConfigOrigins,
    problems: list[Problem],
) -> dict[str, Metric] | None:
    """All metrics, None when one is wrong."""
    sections = plain.get("metrics") or {}
    if not isinstance(sections, Mapping):
        problems.append(Problem(origins.of("metrics"), "metrics", show_value(sections), "a mapping of metrics"))
        return None
    if not sections:
        problems.append(
            Problem(origins.of("metrics"), "metrics", "none", "at least one metric", "pass metrics=[NAME,...]")
        )
        return None
    found: dict[str, Metric] = {}
    faults: list[Problem] = []
    for name, section in sections.items():
        if not (isinstance(name, str) and _METRIC.match(name)):
            expected = "letters, digits, '_', '-', at most 64, beginning with a letter"
            faults.append(Problem("metrics", "metrics", f"the name {name!r}"[:200], expected))
            continue
        if _left_out(name, section, origins):
            continue
        if not isinstance(section, Mapping):
            faults.append(Problem(f"metrics.{name}", f"metrics.{name}", show_value(section), "a mapping with `class`"))
            continue
        try:
            found[name] = _metric(name, section, prompts, plugins, origins)
        except (ConfigError, PromptError) as error:
            faults += error.problems
    problems += [_placed(p, origins) for p in faults]
    return None if faults else found


def _left_out(name: str, section: object, origins: ConfigOrigins) -> bool:
    """Whether this is what an experiment sets for a shipped metric that `metrics=[...]` did not choose."""
    if (
        not isinstance(section, Mapping)
        or "class" in section
        or not (conf_dir() / "metrics" / f"{name}.yaml").is_file()
    ):
        return False
    return not any(origins.of(f"metrics.{name}.{key}").startswith("command line") for key in section)


def _embedder_not_installed(embedder: EmbedderSettings | None, origins: ConfigOrigins) -> list[Problem]:
    """An embedder whose files or package are absent. A finished run needs none."""
    fix = embedder.missing() if embedder is not None else None
    if not (embedder and fix):
        return []
    key = "embedder.kind"
    state = f"{embedder.kind}, without its files or its package"
    return [Problem(origins.of(key), key, state, "an embedder that is installed", fix)]


def _without_encoder(metrics: Mapping[str, Metric], origins: ConfigOrigins) -> list[Problem]:
    """Metrics that compare tokens by a model that is not installed."""
    wanted = ((name, metric.encoder_settings) for name, metric in metrics.items())
    missing = ((f"metrics.{name}.encoder.kind", found.kind, found.missing()) for name, found in wanted if found)
    expected = "an encoder that is installed"
    return [
        Problem(origins.of(key), key, f"{kind}, without its files or its package", expected, fix)
        for key, kind, fix in missing
        if fix
    ]


def _taken_names(metrics: Mapping[str, Metric], origins: ConfigOrigins) -> list[Problem]:
    """Scores whose name another metric's score or a column of the records has: the tables could not tell them apart."""
    from ragpipe.scoring.case_records import records_schema

    owner = dict.fromkeys(records_schema(()).names, "a column of records.parquet")
    problems = []
    for name, metric in metrics.items():
        if not metric.scores():
            own = [field for field in type(metric).model_fields if field != "name"]
            fix = f"name them under metrics.{name}.{own[0]}" if own else ""
            problems.append(
                Problem(origins.of(f"metrics.{name}.class"), f"metrics.{name}", "no score", "a metric with scores", fix)
            )
        taken = [(spec.name, owner[spec.name]) for spec in metric.scores() if spec.name in owner]
        if taken:
            key, found = f"metrics.{name}", ", ".join(score for score, _ in taken[:3])
            found += f" and {len(taken) - 3} more" if len(taken) > 3 else ""
            expected = f"names that are free; {taken[0][0]} is that of {taken[0][1]}"
            fix = f"{key}.prefix=..." if "prefix" in type(metric).model_fields else "give the metric another name"
            problems.append(Problem(origins.of(f"{key}.class"), key, f"the scores {found}", expected, fix))
        owner |= {spec.name: f"metrics.{name}" for spec in metric.scores()}
    return problems


def _metric(
    name: str, section: Mapping[str, Any], prompts: PromptLibrary, plugins: list[str], origins: ConfigOrigins
) -> Metric:
    """One metric. Where it expects a text and the command line gave a number by its looks, the typed text is taken."""
    try:
        return load_metric(name, section, prompts, plugins)
    except ConfigError as error:
        typed = {
            p.key.removeprefix(f"metrics.{name}."): origins.raw(p.key) for p in error.problems if "string" in p.expected
        }
        texts = {key: raw for key, raw in typed.items() if raw is not None and not isinstance(section.get(key), str)}
        if not texts:
            raise
    return load_metric(name, {**section, **texts}, prompts, plugins)


def _placed(problem: Problem, origins: ConfigOrigins) -> Problem:
    """The fault with the place that set its key, unless it names a file already (a prompt's)."""
    if "/" in problem.where or re.search(r":\d+$", problem.where):
        return problem
    return Problem(origins.of(problem.key), problem.key, problem.found, problem.expected, problem.fix)
