"""Checks a composed configuration as a whole, before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

from ragpipe.core import registry
from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secrets import secrets_in
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, did_you_mean, show_value, validated
from ragpipe.core.usage import PARTS
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.system_settings import SHARED_BY_METHODS, LiveSystem, method_sections
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.from_config import OF_A_JURY, shipped_scores
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.budget import budget_problems
from ragpipe.runs.metrics_section import encoder_problems, placed, read_metrics, score_name_problems
from ragpipe.runs.settings import RUN_KEYS, RunConfig, StoreSettings, TopSettings, prompt_library
from ragpipe.score.cross_checks import scoring_faults
from ragpipe.score.settings import ScoringSettings

INVALID_CONFIGURATION = "the configuration is wrong; nothing was started"
_OVERLAYS = ("experiment", "mode")
_DECIDING = (*_OVERLAYS, "task", "dataset", "system", "judge", "metrics")  # all else follows from these words

S = TypeVar("S", bound=Settings)
_Group = Literal["judge", "embedder", "transport", "runner", "system"]


def validate_config(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunConfig:
    """Check the composed configuration of a new run: its sections, what must be installed, and its metrics.

    Raises ConfigError that lists every fault of every section at once: key, file and line, found, expected, fix.
    """
    sections = _Sections(plain, origins)
    sections.read()
    sections.check_system_and_runner()
    sections.read_judge_and_embedder()
    sections.check_models_are_installed()
    sections.read_metrics(None)
    return sections.run_config()


def validate_without_metrics(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> RunConfig:
    """Check the configuration of a task that asks the judge questions of its own: as `validate_config`, with no metric."""
    sections = _Sections({**plain, "metrics": {}}, origins)
    sections.read()
    sections.read_judge_and_embedder()
    sections.check_models_are_installed()
    return sections.run_config()


def validate_finished_config(plain: Mapping[str, Any], origins: ConfigOrigins, *, prompts: PromptLibrary) -> RunConfig:
    """Check the configuration of a finished run, with what another task changed in it.

    Its templates travelled with it (`prompts`), its system is not asked again, and nothing need be installed. Raises
    ConfigError as `validate_config`.
    """
    sections = _Sections(plain, origins)
    sections.read()
    sections.read_judge_and_embedder()
    sections.read_metrics(prompts)
    return sections.run_config()


def task_name(plain: Mapping[str, Any], origins: ConfigOrigins) -> str:
    """The task to do, as it is registered; the packages of `plugins` may bring one. Raises ConfigError for others."""
    name = plain.get("task")
    registry.use(plain.get("plugins"))
    if not isinstance(name, str) or registry.find("task", name) is None:
        options = sorted(registry.names("task"))
        expected, fix = f"one of {', '.join(options)}", did_you_mean(str(name), options)
        raise ConfigError(INVALID_CONFIGURATION, [Problem(origins.location("task"), "task", show_value(name), expected, fix)])
    return str(name)


class _Sections:
    """The sections read so far, those that are wrong as None, and every fault of them."""

    def __init__(self, plain: Mapping[str, Any], origins: ConfigOrigins | None):
        """Raises ConfigError for secrets, before anything else: other messages show what was found; and for a misspelt
        `+experiment=` or `task=`, without which everything else would be missing."""
        self._plain, self._origins = with_jury(plain), origins or NoOrigins()
        if secrets := secrets_in(plain, self._origins):
            raise ConfigError(INVALID_CONFIGURATION, secrets)
        if misspelt := _misspelt_words(plain, self._origins):
            raise ConfigError(INVALID_CONFIGURATION, misspelt)
        self._problems: list[Problem] = []
        self._sections: dict[str, Any] = {"metrics": {}}
        self._top: TopSettings | None = None

    def read(self) -> None:
        """The keys outside of any section, and the sections whose settings need no other section."""
        top = {key: value for key, value in self._plain.items() if key in TopSettings.model_fields}
        self._top = validated(TopSettings, top, "", self._origins, self._problems)
        self._problems += _unknown_keys(self._plain, self._origins)
        self._read_dataset()
        self._read_kind("transport", default="live")
        self._read_kind("runner", default="local")
        self._read_section("scoring", ScoringSettings)
        self._read_section("report", ReportSettings)
        self._read_section("store", StoreSettings)
        self._read_kind("system", default="recorded")
        self._check_methods()

    def _check_methods(self) -> None:
        """Each method of a live system must be a system of its own."""
        system = self._sections["system"]
        if not isinstance(system, LiveSystem) or not system.methods:
            return
        problems_before = len(self._problems)
        if system.method != LiveSystem.model_fields["method"].default:
            self._add_method_fault("system.method", system.method, "no name, where system.methods names the methods")
        for name, overrides in system.methods.items():
            for key in sorted(SHARED_BY_METHODS & overrides.keys()):
                expected = f"{key} in the section, for all methods" if key != "method" else "its name above it alone"
                self._add_method_fault(f"system.methods.{name}.{key}", show_value(overrides[key]), expected)
        for name, section in method_sections(system.model_dump(mode="json", by_alias=True)).items():
            self._of_kind("system", section, f"system.methods.{name}", default="")
        if len(self._problems) > problems_before:
            self._sections["system"] = None

    def _add_method_fault(self, key: str, found: str, expected: str) -> None:
        self._problems.append(Problem(self._origins.location(key), key, found, expected, "leave it out"))

    def check_system_and_runner(self) -> None:
        """A system of the user's code must be importable now, and what measures the cases must be here, with its variables."""
        system, runner = self._sections["system"], self._sections["runner"]
        plugins = self._top.plugins if self._top is not None else []
        for settings in system.each_method() if isinstance(system, LiveSystem) and self._top is not None else ():
            if settings.code:
                try:
                    settings.opened(plugins)
                except ConfigError as error:
                    self._add_placed(error.problems)
        for key, found, expected, fix in runner.missing() if runner is not None else ():
            self._problems.append(Problem(self._origins.location(key), key, found, expected, fix))

    def read_judge_and_embedder(self) -> None:
        """The two sections whose `kind` decides their settings."""
        judge = self._plain.get("judge")
        if isinstance(judge, Mapping) and judge.get("kind") == "jury":
            self._read_jury(judge)
        else:
            self._read_kind("judge", default="llm")
        self._read_kind("embedder", default="none")
        judge, transport = self._sections["judge"], self._sections["transport"]
        if transport is not None and transport.asks:
            self._problems += budget_problems(judge, self._sections["embedder"], transport, self._origins)
        if transport is not None and judge is not None:
            self._add_placed(filter(None, [transport.refusal(judge)]))

    def check_models_are_installed(self) -> None:
        """What a judge in this process and an embedder need must be here, and be what the configuration names."""
        judge, embedder = self._sections["judge"], self._sections["embedder"]
        named = {"judge": judge}
        if isinstance(judge, JurySettings):
            named = {f"{SECTION}.members.{name}": member for name, member in judge.members.items()}
        for name, member in named.items():
            if member is not None and (missing := member.missing()):
                key = missing.key.replace("judge", name, 1)
                fix = missing.fix.replace("judge.", f"{name}.")
                self._problems.append(Problem(self._origins.location(key), key, missing.found, missing.expected, fix))
        if embedder is not None and (missing := embedder.missing()):
            self._problems.append(Problem(self._origins.location(missing.key), *missing))

    def read_metrics(self, prompts: PromptLibrary | None) -> None:
        """The metrics: score names must be unique, and fit the scoring. `prompts` are those of a finished run; None: those of this
        start, which needs the metrics' encoders too."""
        plugins, dirs = (self._top.plugins, self._top.prompt_dirs) if self._top is not None else ([], [])
        dataset, scoring = self._sections["dataset"], self._sections["scoring"]
        rule = None if dataset is None else dataset.references
        library = prompt_library(dirs) if prompts is None else prompts
        metrics = read_metrics(self._plain.get("metrics") or {}, library, plugins, rule, self._origins, self._problems)
        self._sections["metrics"] = metrics
        if metrics is None:
            return
        self._problems += score_name_problems(metrics, self._origins)
        if prompts is None:
            self._problems += encoder_problems(metrics, self._origins)
        if scoring is not None:
            specs = [spec for metric in metrics.values() for spec in metric.scores()]
            self._add_placed(scoring_faults(scoring, specs, shipped_scores))

    def run_config(self) -> RunConfig:
        """All sections together; the draw of samples gets the run's seed where it has none. Raises ConfigError for faults."""
        if self._problems or self._top is None:
            raise ConfigError(INVALID_CONFIGURATION, self._problems)
        dataset = self._sections["dataset"]
        if dataset.sample is not None:
            dataset = dataset.model_copy(update={"sample": dataset.sample.seeded(self._top.seed)})
        top = {name: getattr(self._top, name) for name in TopSettings.model_fields}
        return RunConfig(**top, **{**self._sections, "dataset": dataset})

    def _read_dataset(self) -> None:
        if self._plain.get("dataset"):
            self._read_section("dataset", DatasetSettings)
            return
        fix = "pass +experiment=NAME or dataset=NAME"
        self._problems.append(Problem(self._origins.location("dataset"), "dataset", "no data set", "a data set", fix))
        self._sections["dataset"] = None

    def _read_section(self, name: str, model: type[S]) -> None:
        section = self._plain.get(name, {})
        self._sections[name] = validated(model, section, name, self._origins, self._problems)

    def _read_jury(self, section: Mapping[str, Any]) -> None:
        """The judge of a run with several: its members, each with the settings of its kind."""
        before = len(self._problems)
        members = section.get("members")
        read = {}
        for name, member in members.items() if isinstance(members, Mapping) else ():
            key = f"{SECTION}.members.{name}"
            kind = member.get("kind", "llm") if isinstance(member, Mapping) else None
            settings = registry.find("judge", kind) if isinstance(kind, str) else None
            if settings is None:
                expected, fix = f"a judge: one of {', '.join(registry.names('judge'))}", f"+judge@{key}=llm"
                self._problems.append(Problem(self._origins.location(key), key, show_value(member), expected, fix))
                continue
            read[str(name)] = validated(settings, member, key, self._origins, self._problems)
        jury = None
        if len(self._problems) == before:
            jury = validated(JurySettings, section, SECTION, self._origins, self._problems, context={"members": read})
        if jury is not None:
            self._problems += jury_problems(jury, self._origins)
        self._sections["judge"] = jury

    def _read_kind(self, group: _Group, default: str) -> None:
        self._sections[group] = self._of_kind(group, self._plain.get(group) or {}, group, default)

    def _of_kind(self, group: _Group, section: Any, key: str, default: str) -> Any:
        """The settings that the `kind` of a section at this key has; None where something is wrong."""
        kind = section.get("kind", default) if isinstance(section, Mapping) else default
        settings = registry.find(group, kind) if isinstance(kind, str) else None
        if settings is not None:
            before = len(self._problems)
            read = validated(settings, section, key, self._origins, self._problems)
            self._problems[before:] = [_with_owner(problem, group, key) for problem in self._problems[before:]]
            return read
        kinds = registry.names(group)
        key, expected = f"{key}.kind", f"one of {', '.join(kinds)}"
        fix = did_you_mean(str(kind), kinds)
        self._problems.append(Problem(self._origins.location(key), key, show_value(kind), expected, fix))
        return None

    def _add_placed(self, problems: Any) -> None:
        self._problems += [placed(problem, self._origins) for problem in problems]


def _with_owner(problem: Problem, group: _Group, section: str) -> Problem:
    """The problem; of a key that another kind of this section has, with the option that has it."""
    key = problem.key.removeprefix(f"{section}.").split(".")[0]
    if not problem.found.startswith("an unknown key"):
        return problem
    kinds = registry.everything(group)
    if not (owners := [f"{group}={kind}" for kind, model in kinds.items() if key in model.model_fields]):
        return problem
    return replace(problem, fix=f"`{key}` is a key of {' and '.join(owners)}: add that word, or leave this one out")


def _unknown_keys(plain: Mapping[str, Any], origins: ConfigOrigins) -> list[Problem]:
    known = sorted(RUN_KEYS)
    expected = f"one of {', '.join(known)}"
    unknown = {key: f"an unknown key (= {show_value(value)})" for key, value in plain.items() if key not in known}
    return [Problem(origins.location(key), key, state, expected, did_you_mean(key, known)) for key, state in unknown.items()]


def _misspelt_words(plain: Mapping[str, Any], origins: ConfigOrigins) -> list[Problem]:
    """The unknown keys that nearly have the name of a word which decides what is composed."""
    problems = []
    for key, value in plain.items():
        if key in RUN_KEYS or not (near := did_you_mean(key, _DECIDING)):
            continue
        word = near.removeprefix("did you mean ").partition(" ")[0].rstrip("?")
        sign = "+" if word in _OVERLAYS else ""
        fix = f"did you mean {sign}{word}={value if isinstance(value, str) else '...'}?"
        problems.append(Problem(origins.location(key), key, f"an unknown key (= {show_value(value)})", f"{sign}{word}", fix))
    return problems


SECTION = JurySettings.section
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}\Z")


def with_jury(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with its jury as `judge` (`kind: jury`), and without the section `jury`.

    Without members and repeats, the judge stays as it is. Repeats alone ask the judge itself so often: it is the one member, `judge`.
    What metrics say of their judging moves to `judge.by_metric`.
    """
    jury = plain.get(SECTION)
    if not isinstance(jury, Mapping):
        return plain
    rest = {key: value for key, value in plain.items() if key != SECTION}
    members = jury.get("members") or {}
    if not members and jury.get("repeats", 1) == 1:
        return rest
    metrics, by_metric = {}, {}
    for name, section in (plain.get("metrics") or {}).items():
        if isinstance(section, Mapping):
            if judging := {key: section[key] for key in OF_A_JURY if key in section}:
                by_metric[name] = judging
            section = {key: value for key, value in section.items() if key not in OF_A_JURY}
        metrics[name] = section
    judge = {**jury, "kind": "jury", "members": members or {"judge": plain.get("judge")}, "by_metric": by_metric}
    if not members:
        judge["min_members"] = 1
    return {**rest, "judge": judge, "metrics": metrics}


def jury_problems(jury: JurySettings, origins: ConfigOrigins) -> list[Problem]:
    """What is wrong with a jury as a whole: names, members that are the same judge, members that are not there or never asked."""
    faults = [*_member_faults(jury), *_unknown_members(jury), *_unasked_members(jury)]
    if jury.min_members > len(jury.members):
        expected = f"at most the number of members, {len(jury.members)}"
        faults.append((f"{SECTION}.min_members", str(jury.min_members), expected, ""))
    return [Problem(origins.location(key), key, state, expected, fix) for key, state, expected, fix in faults]


_Fault = tuple[str, str, str, str]


def _member_faults(jury: JurySettings) -> list[_Fault]:
    faults: list[_Fault] = []
    seen: dict[str, str] = {}
    for name, member in jury.members.items():
        key = f"{SECTION}.members.{name}"
        if not _NAME.match(name):
            faults.append((key, f"the name {name!r}"[:100], "letters, digits and '_', beginning with a letter", ""))
        identity = sha256(member.identity_of_judge())
        if identity in seen:
            fix = f"{SECTION}.repeats=N asks one judge several times"
            faults.append((key, f"the same judge as {seen[identity]}", "another judge", fix))
        seen.setdefault(identity, name)
        if isinstance(member, JudgeSettings) and member.budget.is_set:
            part = next(part for part in PARTS if getattr(member.budget, part) is not None)
            state, fix = "a budget of one member", f"{SECTION}.budget.{part}=..."
            faults.append((f"{key}.budget.{part}", state, "one budget for all members", fix))
    return faults


def _unknown_members(jury: JurySettings) -> list[_Fault]:
    named = {f"metrics.{name}.judge": its.judge for name, its in jury.by_metric.items() if its.judge is not None}
    if jury.cascade is not None:
        named |= {f"{SECTION}.cascade.first": jury.cascade.first, f"{SECTION}.cascade.then": jury.cascade.then}
    expected = f"a member: {', '.join(jury.members)}"
    return [
        (key, member, expected, did_you_mean(member, jury.members))
        for key, member in named.items()
        if member not in jury.members
    ]


def _unasked_members(jury: JurySettings) -> list[_Fault]:
    """Members that a cascade leaves out, and that no metric names."""
    if jury.cascade is None:
        return []
    asked = {jury.cascade.first, jury.cascade.then, *(its.judge for its in jury.by_metric.values())}
    expected = "a member of the cascade, or the judge of a metric"
    return [
        (f"{SECTION}.members.{name}", "a member that is never asked", expected, f"~{SECTION}.members.{name}")
        for name in jury.members
        if name not in asked
    ]
