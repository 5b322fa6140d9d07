"""`task=selftest`: changes cases of a finished run in known directions, and shows which changes each score notices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from ragpipe.core.errors import DataError, Incomplete, Problem
from ragpipe.core.markdown_text import code_span, escape_markdown, markdown_table
from ragpipe.core.safe_text import on_one_line
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.run_policies import RejudgePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.finished_run import FinishedRun
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask
from ragpipe.extras.checks.changed_cases import ChangedCase, ChangedCases
from ragpipe.extras.checks.check_run import document_of_check, open_check, write_check
from ragpipe.extras.checks.mutations import MUTATION_NAMES, MUTATIONS, MUTATIONS_VERSION, POOL, draw_mutants
from ragpipe.extras.checks.selftest_figures import Expectation, mutants_table, selftest_figures
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import percent_with_interval, plural, whole
from ragpipe.schema.sample import Case
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_folder import RunFolder

CAUGHT_HEADS = ("mutation", "score", "caught", "% [95%]", "left out")
KEPT_HEADS = ("mutation", "score", "unchanged", "mean change, %", "")
CAUGHT_NOTE = (
    "caught: the score became worse (or better, where that is expected) by more than the noise floor; with the "
    "Wilson interval by question. left out: mutants that do not count, as a value is missing or the original is at the end of the scale."
)
KEPT_NOTE = (
    "unchanged: within the noise floor. mean change: in percent of the range, above 0 where mutants do better; `moves`: its 95% "
    "interval, clustered by question, excludes 0."
)
_ALL = "any score"
_AROUND = 60  # characters shown before and after a changed place
MISSED_SHOWN = 5
"""Missed mutants of each mutation on the page; all are in selftest.json."""
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


class Keys(FinishedRunKeys):
    selftest: SelftestSettings = Field(description="Which mutants are made, and what is expected of each score.")


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
    document = document_of_check(finished, spec.folder, kept, **figures)
    tables = {"mutants.parquet": mutants_table(source.changed)}
    write_check(spec.folder, SECTION, document, markdown=selftest_markdown(document), tables=tables)
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


def headline(document: Mapping[str, Any]) -> str:
    """One line: how many mutants that must be noticed were, by one score at least."""
    rows = document["caught_by_any"]
    n, caught = sum(row["n"] for row in rows), sum(row["as_expected"] for row in rows)
    if not n:
        return "no score of this run can notice these mutations: see selftest.expect"
    return (
        f"{whole(caught)} of {whole(n)} mutants that a score must notice were caught by at least one of them ({caught / n:.1%}); "
        f"judge {document['judge']}"
    )


def caught_rows(document: Mapping[str, Any], *, short: bool = False) -> list[list[str]]:
    """A row per mutation and score that must notice it, after a row for any score. With `short`, computed scores that caught
    everything are left out."""
    rows = []
    for mutation in document["mutations"]:
        name = mutation["name"]
        of_any = [_caught_row(row, _ALL) for row in document["caught_by_any"] if row["mutation"] == name]
        scores = [row for row in document["scores"] if row["mutation"] == name and row["expected"] != "same"]
        shown = [row for row in scores if not (short and _is_plain(row, document))]
        rows += [*of_any, *(_caught_row(row, row["score"]) for row in shown)]
    return rows


def kept_rows(document: Mapping[str, Any], *, short: bool = False) -> list[list[str]]:
    """A row per mutation and score that must not change. With `short`, computed scores that stay are left out."""
    rows = [row for row in document["scores"] if row["expected"] == "same" and row["n"]]
    return [_kept_row(row) for row in rows if not (short and _is_plain(row, document))]


def _is_plain(row: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether a row says what everybody expects: a computed score did on all mutants what it must, or none counts."""
    return row["score"] in document["computed_scores"] and row["as_expected"] == row["n"]


def _caught_row(row: Mapping[str, Any], score: str) -> list[str]:
    untold = row.get("at_end", 0) + row.get("no_value", 0)
    cells = [row["mutation"], on_one_line(score, 60), _of(row), _percent(row)]
    return [*cells, "" if score == _ALL else whole(untold)]


def _percent(row: Mapping[str, Any]) -> str:
    """`90 [66, 98]`; `few` behind an interval over fewer than five questions."""
    return percent_with_interval(row) + (" few" if row["interval"] and row["interval"]["too_few"] else "")


def _of(row: Mapping[str, Any]) -> str:
    return f"{whole(row['as_expected'])} of {whole(row['n'])}"


def _kept_row(row: Mapping[str, Any]) -> list[str]:
    change = f"{100 * row['mean_change']:+.1f}"
    state = "moves" if row["state"] == "moves" else ""
    return [row["mutation"], on_one_line(row["score"], 60), _of(row), change, state]


def floor_lines(document: Mapping[str, Any]) -> list[str]:
    """What counts as a change: the noise floor of each score, or the tolerance that stands in for it."""
    floors = document["noise_floor"]
    if document["iterations"] == 1:
        tolerance = document["settings"]["tolerance"]
        return [
            f"noise floor: not known from one iteration; changes up to {tolerance:.1%} of the range count as none "
            "(selftest.tolerance). iterations=3 measures it"
        ]
    limits = ", ".join(f"{on_one_line(name, 60)} {100 * floor['limit']:.1f}%" for name, floor in floors.items())
    return [f"noise floor of a case, from {document['iterations']} iterations, in percent of the range: {limits}"]


def selftest_markdown(document: Mapping[str, Any]) -> str:
    """The page `selftest.md`."""
    drawn = [
        [code_span(row["name"]), row["what"], whole(row["mutants"]), whole(row["questions"])]
        for row in document["mutations"]
    ]
    lines = [
        "# Self-test",
        "",
        escape_markdown(headline(document), 1000),
        "",
        f"Mutants of the cases of run {code_span(document['source_run'])}, judged in run {code_span(document['run_id'])}.",
        "",
        *(escape_markdown(line, 5000) for line in floor_lines(document)),
        "",
        "## Mutants",
        "",
        *markdown_table(("mutation", "what is done", "mutants", "questions"), drawn, left=(0, 1)),
        "",
        "## Caught",
        "",
        *markdown_table(CAUGHT_HEADS, caught_rows(document), left=(0, 1)),
        "",
        CAUGHT_NOTE,
        "",
        "## Must not change",
        "",
        *markdown_table(KEPT_HEADS, kept_rows(document), left=(0, 1)),
        "",
        KEPT_NOTE,
        "",
        "## Missed",
        *_missed(document),
    ]
    return "\n".join(lines) + "\n"


def _missed(document: Mapping[str, Any]) -> Iterator[str]:
    """For each mutation the mutants that most scores missed, with the text before and after."""
    for mutation in document["mutations"]:
        rows = [row for row in document["missed"] if row["mutation"] == mutation["name"]]
        if not rows:
            continue
        shown = sorted(rows, key=lambda row: -len(row["scores"]))[:MISSED_SHOWN]
        more = f", {MISSED_SHOWN} of them here" if len(rows) > MISSED_SHOWN else ""
        yield from ("", f"### {mutation['name']}: {plural(len(rows), 'mutant')}{more}", "")
        for row in shown:
            scores = ", ".join(_score_text(name, score) for name, score in row["scores"].items())
            before, after = changed_place(row["before"], row["after"])
            yield f"- {code_span(row['sample_id'], 60)}, {code_span(row['method'], 60)}: {escape_markdown(scores, 1000)}"
            yield f"  - before: {code_span(before, 400)}"
            yield f"  - after: {code_span(after, 400)}"


def _score_text(name: str, score: Mapping[str, Any]) -> str:
    return f"{name} {score['value']:.3g} -> {score['mutant_value']:.3g} (to be {score['expected']})"


def changed_place(before: str, after: str) -> tuple[str, str]:
    """Both texts around the place where they begin to differ and end to."""
    limit = min(len(before), len(after))
    first = next((place for place in range(limit) if before[place] != after[place]), limit)
    last = next((place for place in range(limit - first) if before[-1 - place] != after[-1 - place]), limit - first)
    return _around(before, first, last), _around(after, first, last)


def _around(text: str, first: int, last: int) -> str:
    start, end = max(0, first - _AROUND), len(text) - max(0, last - _AROUND)
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
