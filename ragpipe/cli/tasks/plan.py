"""`task=plan`: what a data set holds and what looks wrong in it, what a run would do and cost. Spends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field

from ragpipe.cli.plan_report import print_answer, print_live, print_metrics, write_plan
from ragpipe.cli.profile_report import print_profile
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings
from ragpipe.data.system_settings import LiveSystem
from ragpipe.report.console import Console
from ragpipe.runs.calibration_states import scoring_warnings
from ragpipe.runs.case_sources import DatasetSource
from ragpipe.runs.collected_outputs import unknown_methods
from ragpipe.runs.data_profile import DataProfile, times_are_known
from ragpipe.runs.identity import RunData, identity_of_dataset, run_id, system_sources
from ragpipe.runs.judge_access import check_call_store
from ragpipe.runs.plan import Plan
from ragpipe.runs.plan_notices import wanted_line
from ragpipe.runs.plan_summary import plan_of_data
from ragpipe.runs.scoring_files import resolved_for_dataset
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.validation import INVALID_CONFIGURATION, validate_config
from ragpipe.store.run_folder import RunFolder

SECTION = "plan"


class PlanSettings(Settings):
    """Where the whole plan is written; what is printed is a part of it."""

    out: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="File for the whole plan and profile as JSON, with a page of the data beside it; older ones are replaced. null: none.",
    )


@dataclass(frozen=True)
class PlanTask:
    """The configuration of the run that is planned, and where the plan is written."""

    config: RunConfig
    settings: PlanSettings

    @property
    def plugins(self) -> list[str]:
        """The packages of the user's own classes that this start may import."""
        return self.config.plugins

    @property
    def log_level(self) -> str:
        """The level of the library logs of this start."""
        return self.config.log_level


class Keys(Settings):
    plan: PlanSettings = Field(description="Where the whole plan is written.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> PlanTask:
    """Check the configuration of the run, and the section `plan`. Raises ConfigError."""
    config = validate_config({key: value for key, value in plain.items() if key != SECTION}, origins)
    settings = task_settings(PlanSettings, plain, origins or NoOrigins(), title=INVALID_CONFIGURATION, section=SECTION)
    return PlanTask(config, settings)


def run(task: PlanTask, console: Console) -> int:
    """Print the plan. Returns 0. Raises FormatMismatch for a call store that the run could not use, OutputError."""
    plan_run(task, console)
    return 0


def plan_run(task: PlanTask, console: Console) -> Plan | None:
    """Print the plan and return it; None for a live system, whose outputs decide what is asked. Raises as `run`."""
    config = task.config
    check_call_store(config)
    data = RunData.of(config)
    source = DatasetSource(config, data, console)
    dataset, sources = source.dataset, system_sources(config.system, config.plugins).sources
    identity_of = partial(identity_of_dataset, data=source.digest, sources=sources)
    config, scoring_files = resolved_for_dataset(config, identity_of)
    scoring_files.check(config)
    identity = identity_of(config)
    folder = RunFolder.at(Path(config.output_dir), config.name, run_id(identity))
    calibration = scoring_files.calibration_of(folder)
    for warning in scoring_warnings(config, identity, calibration, are_answers_known=False):
        console.warn(warning)
    profile = DataProfile(config.metrics.values(), times_known=times_are_known(config.dataset))
    planned = None
    with TemporaryDirectory() as place:
        frozen = RunFolder(Path(place))
        source.write_for_plan(frozen, folder, identity)
        if isinstance(config.system, LiveSystem):
            profile.read(frozen.samples)
        else:
            planned = plan_of_data(config, frozen, scoring_files)
            profile.read(frozen.samples, frozen.outputs)
            if line := unknown_methods(config.system, profile.cases):
                console.warn(line)
    if planned is not None:
        print_answer(planned.plan, planned.full, config, console)
        for line in (*(member.line() for member in planned.members), *planned.gate_lines):
            console.say(line)
    print_profile(dataset, source.remarks, profile, data.index, console, is_mapped=bool(config.dataset.fields))
    categories = profile.sample_fields().get("category")
    if line := wanted_line(categories.labels if categories else {}, config.scoring.wanted_cases):
        console.say(line)
    if planned is None:
        print_live(profile, config, console)
    else:
        print_metrics(planned.plan, config, console)
    if task.settings.out is not None:
        page = write_plan(Path(task.settings.out), dataset, source.remarks, profile, config, planned)
        console.say(f"written: {task.settings.out}, {page}")
    return planned.plan if planned else None
