"""`task=selftest`: changes cases of a finished run in known directions, and shows which changes each score notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from ragpipe.core.errors import DataError, Incomplete, Problem
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.task_settings import FinishedRunTask
from ragpipe.extras.checks.changed_cases import ChangedCase, ChangedCases
from ragpipe.extras.checks.check_run import check_document, open_check
from ragpipe.extras.checks.mutations import MUTATION_NAMES, MUTATIONS, MUTATIONS_VERSION, POOL, draw_mutants
from ragpipe.extras.checks.selftest_figures import Expectation, mutants_table, selftest_figures
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
from ragpipe.reports.console import Console
from ragpipe.schema.sample import Case
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import json_unless_same, open_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder

SECTION = "selftest"


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
    return open_check(SelftestSettings, plain, origins, task=SECTION)


def run(task: FinishedRunTask[SelftestSettings], console: Console) -> int:
    """Make the mutants, judge them beside their originals in a run of their own, and print what was caught.

    Returns 0, or 4 where judgements failed beyond the coverage floor. The same start again asks nothing. Raises what an
    evaluation raises.
    """
    finished, settings = task.finished, task.settings
    source = _source(finished, settings)
    spec = RunSpec.of_changed_cases(finished, source)
    code = Evaluation(spec, RejudgePolicy(finished), console).run()
    if not scored_iterations(spec.folder):
        return code
    figures = selftest_figures(spec.folder, spec.config, source.changed, settings.expect, tolerance=settings.tolerance)
    kept = settings.model_dump(include={"n", "seed", "tolerance"})
    document = check_document(finished, spec.folder, kept, **figures)
    _write(spec.folder, source, document)
    _print_results(document, spec.folder, console)
    return code if code == Incomplete.exit_code else 0


def _source(finished: FinishedRun, settings: SelftestSettings) -> ChangedCases:
    """An original is a method's output as it was; a mutant is the output of `<method>~<mutation>` for the same sample."""
    names = settings.mutations or MUTATION_NAMES

    def mutants(pool: list[Case]) -> Sequence[ChangedCase]:
        chosen = [mutation for mutation in MUTATIONS if mutation.name in names]
        if drawn := draw_mutants(pool, chosen, n=settings.n, seed=settings.seed):
            return drawn
        problem = Problem(
            str(finished.folder.root),
            "outputs",
            "no case to which one of the mutations applies",
            "answers with claims, numbers or citations, or at least two chunks",
            "choose other mutations (selftest.mutations), or a run with recorded answers and chunks",
        )
        raise DataError("there is nothing to mutate", [problem])

    recipe = [MUTATIONS_VERSION, list(names), settings.n]
    return ChangedCases(
        finished, task=SECTION, word="mutated", recipe=recipe, seed=settings.seed, pool=POOL * settings.n, make=mutants
    )


def _write(folder: RunFolder, source: ChangedCases, document: Mapping[str, Any]) -> None:
    """Write and seal `selftest.json`, `selftest.md` and `mutants.parquet`."""
    paths = [folder.root / name for name in ("selftest.json", "selftest.md", "mutants.parquet")]
    table = mutants_table(source.changed)
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
