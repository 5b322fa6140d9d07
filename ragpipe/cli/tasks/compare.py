"""`task=compare`: whether a change made it better: runs against a base, or the methods of one run, case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings, validated
from ragpipe.report.comparison_summary import headline_table, mode_rows, mode_table, shown_modes, summary_lines, title_line
from ragpipe.report.console import Console
from ragpipe.report.settings import ReportSettings
from ragpipe.report.styled_text import plural, wrapped
from ragpipe.report.terminal import print_table
from ragpipe.runs.comparison_files import ComparedRuns, compared_runs, write_comparison
from ragpipe.runs.preference_run import ask_for_preference, open_preference
from ragpipe.runs.run_list import EXPECTED, run_of_task
from ragpipe.runs.spec import RunSpec
from ragpipe.store.run_folder import RunFolder

_TITLE = "task=compare cannot start"

RunWord = Annotated[str, Field(min_length=1)]


class CompareTaskSettings(Settings):
    """`base` and `candidate` name runs by folder, name, `NAME/latest` or run id; between methods `run` names the run."""

    base: RunWord | None = Field(default=None, description="Run to compare with: a folder, a name, NAME/latest or a run id.")
    candidate: RunWord | list[RunWord] | None = Field(
        default=None, description="Run that is compared with the base, or a list of them."
    )
    run: RunWord | None = Field(default=None, description="Run whose methods are compared, with compare=methods.")
    compare: CompareSettings = Field(description="What is compared, what may differ, and which effects matter.")


@dataclass(frozen=True)
class CompareTask:
    """The runs to compare and how; `preferences` are the runs in which a judge is asked first."""

    base: RunFolder
    candidates: Sequence[RunFolder]
    settings: CompareSettings
    preferences: Sequence[RunSpec] = ()


Keys = CompareTaskSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> CompareTask:
    """Find the runs. Raises ConfigError for settings that do not fit together, DataError for a run that is not there."""
    origins = origins or NoOrigins()
    settings = task_settings(CompareTaskSettings, plain, origins, title=_TITLE)
    expected = ("run",) if settings.compare.kind == "methods" else ("base", "candidate")
    problems: list[Problem] = []
    report = validated(ReportSettings, plain.get("report", {}), "report", origins, problems)
    problems += [_missing(key, settings.compare.kind) for key in expected if not getattr(settings, key)]
    problems += [
        Problem(origins.location(key), key, repr(getattr(settings, key)), f"no {key} with compare={settings.compare.kind}")
        for key in {"run", "base", "candidate"}.difference(expected)
        if getattr(settings, key)
    ]
    if problems or report is None:
        raise ConfigError(_TITLE, problems)

    def folder(key: str, word: str) -> RunFolder:
        return run_of_task(word, plain, origins, key=key)

    if settings.compare.kind == "methods":
        base, candidates = folder("run", str(settings.run)), []
    else:
        words = [settings.candidate] if isinstance(settings.candidate, str) else settings.candidate or []
        base, candidates = folder("base", str(settings.base)), [folder("candidate", word) for word in words]
    asked = (candidates or [base]) if settings.compare.preference else []
    preferences = [open_preference(plain, origins, base, other, settings.compare) for other in asked]
    return CompareTask(base, candidates, settings.compare, preferences)


def _missing(key: str, kind: str) -> Problem:
    fix = "task=compare base=RUN candidate=RUN" if kind == "runs" else "task=compare compare=methods run=RUN"
    return Problem("command line", key, "not given", EXPECTED, fix)


def run(task: CompareTask, console: Console) -> int:
    """Compare, print verdict, headline scores and flips, and write the files; before that, where a preference is wanted, ask for it.
    Returns 0, whatever the verdict, or 4 where judgements of the preference failed beyond the coverage floor.

    Raises ConfigError for runs that differ in what is not accepted, DataError for what cannot be read, OutputError.
    """
    codes = [0]
    if task.preferences:
        with compared_runs(task.base, task.candidates, task.settings):
            pass  # refuses what cannot be compared before anything is spent
    for spec in task.preferences:
        codes.append(ask_for_preference(spec, console))
    compare_task(task, console)
    return max(codes)


def compare_task(task: CompareTask, console: Console) -> dict[str, Any]:
    """As `run`; returns the content of `comparison.json`."""
    asked = [spec.folder for spec in task.preferences]
    with compared_runs(task.base, task.candidates, task.settings, asked) as compared:
        _print(compared, console)
        folder = write_comparison(compared)
    console.say(f"written: {folder / 'compare.html'}, comparison.md, .json, .parquet, .junit.xml")
    return compared.document


def _print(compared: ComparedRuns, console: Console) -> None:
    for comparison in compared.document["comparisons"]:
        screen = console.screen
        for line in (comparison["verdict"]["sentence"], title_line(compared.document, comparison)):
            console.lines(wrapped((line,), screen.columns))
        print_table(headline_table(comparison), console)
        if rows := mode_rows(comparison["failure_modes"]):
            print_table(mode_table(shown := shown_modes(rows)), console)
            if len(rows) > len(shown):
                console.say(f"and {plural(len(rows) - len(shown), 'more failure mode')} without a clear change")
        for line in summary_lines(compared.document, comparison):
            console.lines(wrapped((line,), screen.columns))
        rest = sum(not score["headline"] for score in comparison["scores"].values())
        if rest:
            console.say(f"{plural(rest, 'more score')} in comparison.md")
