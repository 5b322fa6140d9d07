"""`task=selftest`: changes cases of a finished run in known directions, and shows which changes each score notices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from ragpipe.core.errors import ConfigError, Incomplete
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import open_run
from ragpipe.engine.task_settings import FinishedRunTask, task_settings, unnamed_judge
from ragpipe.extras.checks.expectations import Expectation
from ragpipe.extras.checks.mutant_source import MutantSource
from ragpipe.extras.checks.mutations import MUTATION_NAMES
from ragpipe.extras.checks.selftest_report import (
    CAUGHT_HEADS,
    CAUGHT_NOTE,
    KEPT_HEADS,
    KEPT_NOTE,
    caught_rows,
    floor_lines,
    headline,
    kept_rows,
    selftest_markdown,
)
from ragpipe.extras.checks.selftest_results import mutants_table, selftest_document
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder

CHANGEABLE = ("judge", "embedder", "metrics", "report", "iterations")
SECTION = "selftest"
_TITLE = "task=selftest is wrong; nothing was started"


class SelftestSettings(Settings):
    """Which mutants are made, and what is expected of each score. `mutations` null is all of them; a mutation without an entry in
    `expect` is made, and nothing is expected."""

    n: int = Field(default=20, ge=1, le=10_000, description="Mutants of each mutation, at most, 1 to 10,000.")
    seed: int = Field(default=1, ge=0, description="Seed of the draw of cases and of the changes.")
    mutations: list[str] | None = Field(default=None, description="Names of the mutations to make. null: all.")
    tolerance: float = Field(
        default=0.01,
        ge=0,
        lt=1,
        description=(
            "Share of a score's range up to which a change counts as none, where one iteration says nothing of the "
            "judge's noise."
        ),
    )
    expect: dict[str, Expectation] = Field(
        default_factory=dict, description="What scores must do, by the name of the mutation."
    )

    @field_validator("mutations")
    @classmethod
    def _known_names(cls, names: list[str] | None) -> list[str] | None:
        _check_names(names or ())
        if names is not None and (not names or len(set(names)) < len(names)):
            raise ValueError("name each mutation once, at least one; null makes all of them")
        return names

    @field_validator("expect")
    @classmethod
    def _known_mutations(cls, expect: dict[str, Expectation]) -> dict[str, Expectation]:
        _check_names(expect)
        return expect


def _check_names(names: Any) -> None:
    if unknown := [name for name in names if name not in MUTATION_NAMES]:
        raise ValueError(f"no such mutation: {', '.join(unknown)}; there are {', '.join(MUTATION_NAMES)}")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[SelftestSettings]:
    """The run, with the user's judge over its own, and how to mutate it. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(SelftestSettings, plain, origins, title=_TITLE, section=SECTION)
    finished = open_run(plain, origins, changeable=CHANGEABLE, task="selftest", task_keys=(SECTION,))
    if problem := unnamed_judge(finished, origins, without_a_call="transport=stored"):
        raise ConfigError(_TITLE, [problem])
    return FinishedRunTask(finished, settings)


def run(task: FinishedRunTask[SelftestSettings], console: Console) -> int:
    """Make the mutants, judge them beside their originals in a run of their own, and print what was caught.

    Returns 0, or 4 where judgements failed beyond the coverage floor. The same start again asks nothing. Raises what an
    evaluation raises.
    """
    finished, settings = task.finished, task.settings
    source = MutantSource(
        finished.folder,
        finished.manifest,
        names=settings.mutations or MUTATION_NAMES,
        n=settings.n,
        seed=settings.seed,
    )
    spec = RunSpec.of_changed_cases(finished, source)
    code = Evaluation(spec, RejudgePolicy(finished), console).run()
    if not scored_iterations(spec.folder):
        return code
    document = selftest_document(
        spec.folder,
        spec.config,
        source.mutants,
        settings.expect,
        source_run=finished.run_id,
        settings={name: getattr(settings, name) for name in ("n", "seed", "tolerance")},
    )
    _write(spec.folder, source, document)
    _print_results(document, spec.folder, console)
    return code if code == Incomplete.exit_code else 0


def _write(folder: RunFolder, source: MutantSource, document: Mapping[str, Any]) -> None:
    """Write and seal `selftest.json`, `selftest.md` and `mutants.parquet`."""
    paths = [folder.root / name for name in ("selftest.json", "selftest.md", "mutants.parquet")]
    table = mutants_table(source.mutants)
    with FolderLock(folder.root):
        json_unless_same(paths[0], document)
        write_unless_same(paths[1], selftest_markdown(document))
        with open_unless_same(paths[2]) as file, parquet_writer(file, table.schema, compression="zstd") as writer:
            writer.write_table(table)
        seal_added(folder, paths)


def _print_results(document: Mapping[str, Any], folder: RunFolder, console: Console) -> None:
    if rows := caught_rows(document, short=True):
        console.table(CAUGHT_HEADS, rows, title="caught", left=(0, 1))
        console.say(CAUGHT_NOTE)
    if rows := kept_rows(document, short=True):
        console.table(KEPT_HEADS, rows, title="must not change", left=(0, 1))
        console.say(KEPT_NOTE)
    for line in floor_lines(document):
        console.say(line)
    if document["computed_scores"]:
        console.say("computed scores that did on all mutants what they must are not listed here")
    console.say(headline(document))
    console.say(f"missed mutants, before and after: {folder.root / 'selftest.md'}")
