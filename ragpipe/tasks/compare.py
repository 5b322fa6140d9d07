"""`task=compare`: whether a change made it better: runs against a base, or the methods of one run, case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragpipe.comparing.settings import CompareSettings
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.runs.comparison_files import ComparedRuns, compared_runs, write_comparison
from ragpipe.engine.runs.run_list import find_named_run
from ragpipe.engine.task_settings import task_settings
from ragpipe.pages.side_files import SINGLE_FILE_MB
from ragpipe.reports.comparison_summary import headline_lines, summary_lines, title_line
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.settings import Settings
from ragpipe.store.places import cache_folder, is_remote, objects
from ragpipe.store.run.run_folder import RunFolder

_TITLE = "task=compare cannot start"
_DEFAULT_NAME = "run"  # the value of `name` that the user did not set

RunWord = Annotated[str, Field(min_length=1)]


class CompareTaskSettings(Settings):
    """`base` and `candidate` name runs by folder, name, `NAME/latest` or run id; between methods `run` names the run."""

    base: RunWord | None = Field(
        default=None, description="Run to compare with: a folder, a name, NAME/latest or a run id."
    )
    candidate: RunWord | list[RunWord] | None = Field(
        default=None, description="Run that is compared with the base, or a list of them."
    )
    run: RunWord | None = Field(default=None, description="Run whose methods are compared, with compare=methods.")
    compare: CompareSettings = Field(description="What is compared, what may differ, and which effects matter.")


@dataclass(frozen=True)
class CompareTask:
    """The runs to compare and how; a page with more than `single_file_mb` megabytes of data has side files."""

    base: RunFolder
    candidates: Sequence[RunFolder]
    settings: CompareSettings
    single_file_mb: float = SINGLE_FILE_MB


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
        Problem(
            origins.location(key), key, repr(getattr(settings, key)), f"no {key} with compare={settings.compare.kind}"
        )
        for key in {"run", "base", "candidate"}.difference(expected)
        if getattr(settings, key)
    ]
    if problems or report is None:
        raise ConfigError(_TITLE, problems)
    output_dir, name = Path(str(plain.get("output_dir", "outputs"))), str(plain.get("name", _DEFAULT_NAME))
    named = name if name != _DEFAULT_NAME or "name" in getattr(origins, "chosen", ()) else None

    def folder(key: str, word: str) -> RunFolder:
        if is_remote(word):
            fetched: RunFolder = objects("task", "fetch").fetch_run(word, cache_folder(plain))
            return fetched
        return find_named_run(word, output_dir, name=named, key=key)

    if settings.compare.kind == "methods":
        return CompareTask(folder("run", str(settings.run)), (), settings.compare, report.single_file_mb)
    words = [settings.candidate] if isinstance(settings.candidate, str) else settings.candidate or []
    candidates = [folder("candidate", word) for word in words]
    return CompareTask(folder("base", str(settings.base)), candidates, settings.compare, report.single_file_mb)


def _missing(key: str, kind: str) -> Problem:
    fix = "task=compare base=RUN candidate=RUN" if kind == "runs" else "task=compare compare=methods run=RUN"
    return Problem("command line", key, "not given", "a run: a folder, a name, NAME/latest or a run id", fix)


def run(task: CompareTask, console: Console) -> int:
    """Compare, print verdict, headline scores and flips, and write the files. Returns 0, whatever the verdict.

    Raises ConfigError for runs that differ in what is not accepted, DataError for what cannot be read, OutputError.
    """
    compare_task(task, console)
    return 0


def compare_task(task: CompareTask, console: Console) -> dict[str, Any]:
    """As `run`; returns the content of `comparison.json`."""
    with compared_runs(task.base, task.candidates, task.settings) as compared:
        _print(compared, console)
        folder = write_comparison(compared, single_file_mb=task.single_file_mb)
    console.say(f"written: {folder / 'compare.html'}, comparison.md, .json, .parquet, .junit.xml")
    return compared.document


def _print(compared: ComparedRuns, console: Console) -> None:
    for comparison in compared.document["comparisons"]:
        console.say(comparison["verdict"]["sentence"])
        console.say(title_line(compared.document, comparison))
        console.lines(headline_lines(comparison, console.screen))
        for line in summary_lines(compared.document, comparison):
            console.say(line)
        rest = sum(not score["headline"] for score in comparison["scores"].values())
        if rest:
            console.say(f"{plural(rest, 'more score')} in comparison.md")
