"""`task=export`: a finished run for other programs, from its folder alone: CSV, JSON Lines, JUnit, and the page; and what extras and plugins write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, field_validator
from pydantic_core import PydanticKnownError

from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, task_settings, validated
from ragpipe.report.console import Console
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.finished_run import read_config
from ragpipe.runs.manifest import checked_manifest, scored_iterations, seal_added
from ragpipe.runs.run_list import EXPECTED, check_unmodified, run_of_task
from ragpipe.runs.write_reports import write_report_files
from ragpipe.store.folder_lock import FolderLock
from ragpipe.store.run_folder import RunFolder

REPORT_FORMATS = ("csv", "json", "html", "junit")
"""What is written of one run and is sealed in it; what else there is, extras and plugins write."""
_TITLE = "task=export cannot start; nothing was written"


class ExportSettings(Settings):
    """`run` names the run, `formats` what to write. Only a site needs no run: it holds all finished ones then."""

    run: str | None = Field(
        default=None,
        min_length=1,
        description="Run to export, as for the other tasks. null, with formats=[site]: all runs of `output_dir`.",
    )
    formats: list[
        Annotated[str, WithJsonSchema({"enum": [*REPORT_FORMATS, *registry.own_names("export")], "type": "string"})]
    ] = Field(
        min_length=1,
        description="Files to write: tables as csv or json, the page report.html, report.junit.xml; site: a folder of pages; "
        "otlp, langfuse, phoenix, mlflow: the scores, for the tool that holds the traces.",
    )
    dir: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of what is not written into the run: a site, scores. null: one with the name of the format.",
    )

    @field_validator("formats")
    @classmethod
    def _known(cls, formats: list[str]) -> list[str]:
        for name in formats:
            if name not in REPORT_FORMATS and registry.find("export", name) is None:
                known = [f"'{known}'" for known in (*REPORT_FORMATS, *registry.names("export"))]
                raise PydanticKnownError("literal_error", {"expected": ", ".join(known)})
        return formats


@dataclass(frozen=True)
class OtherExport:
    """What an extra or a plugin writes, and its arguments: the output folder, the run (None: all runs there), and `dir`. It yields
    the lines to print."""

    write: Callable[[Path, RunFolder | None, Path], Iterable[str]]
    output_dir: Path
    run: RunFolder | None
    target: Path


@dataclass(frozen=True)
class Export:
    """The run to write, or None. `report` holds the formats and the options of the page; `others` is what extras and plugins write.

    An export needs no checked configuration of the run: it also works where the run's own classes are not installed.
    """

    folder: RunFolder | None
    report: ReportSettings
    others: tuple[OtherExport, ...] = ()


Keys = ExportSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> Export:
    """Check the keys of this task. Options of the page come from the run, so that the page stays what it was, unless they
    are set in this start. Raises ConfigError and DataError."""
    origins = origins or NoOrigins()
    misplaced = _misplaced_formats(plain, origins)
    settings = task_settings(ExportSettings, plain, origins, title=_TITLE, known_problems=misplaced)
    formats = [name for name in settings.formats if name in REPORT_FORMATS]
    folder = run_of_task(settings.run, plain, origins) if settings.run else None
    if folder is not None:
        check_unmodified(folder, checked_manifest(folder)["iterations"])
    if folder is None and formats:
        fix = "run=NAME; formats=[site] alone takes all runs"
        raise ConfigError(_TITLE, [Problem("command line", "run", "not set", EXPECTED, fix)])
    root = Path(str(plain.get("output_dir", "outputs")))
    others = tuple(
        OtherExport(registry.find("export", name), root, folder, Path(settings.dir or name))
        for name in settings.formats
        if name not in REPORT_FORMATS
    )
    problems: list[Problem] = []
    section = plain.get("report", {}) if folder is None else _report_section(folder, plain, origins)
    report = validated(ReportSettings, section, "report", origins, problems)
    if report is None:
        raise ConfigError("the report section is wrong; nothing was written", problems)
    return Export(folder, report.model_copy(update={"formats": formats}), others)


def _misplaced_formats(plain: Mapping[str, Any], origins: ConfigOrigins) -> list[Problem]:
    """The problem of `report.formats`, which is an option of an evaluation, on the command line of this task."""
    if "report.formats" not in getattr(origins, "chosen", ()):
        return []
    formats = plain["report"]["formats"]
    word = f"[{','.join(map(str, formats))}]" if isinstance(formats, list) else str(formats)
    expected = "formats, which says what task=export writes"
    return [Problem("command line", "report.formats", repr(formats), expected, f"formats={word}")]


def _report_section(folder: RunFolder, plain: Mapping[str, Any], origins: ConfigOrigins) -> Any:
    """The run's `report` section with the keys that this start sets over it, or all of this start's where it was chosen."""
    section, overrides = plain.get("report", {}), getattr(origins, "chosen", ())
    recorded = read_config(folder).get("report")
    if "report" in overrides or not isinstance(recorded, Mapping):
        return section
    keys = [word.removeprefix("report.") for word in overrides if word.startswith("report.")]
    return {**recorded, **{key: section[key] for key in keys if key in section}}


def run(export: Export, console: Console) -> int:
    """Write the files and print their paths. Returns 0. Raises DataError for a run that is not scored, OutputError."""
    if export.folder is not None and export.report.formats:
        _write_files(export.folder, export.report, console)
    for kind in export.others:
        for line in kind.write(kind.output_dir, kind.run, kind.target):
            console.say(line)
    return 0


def _write_files(folder: RunFolder, report: ReportSettings, console: Console) -> None:
    with FolderLock(folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        newest = scored_iterations(folder, or_error="there is nothing to export")[-1]
        written = write_report_files(folder, folder.iteration(newest), report)
        seal_added(folder, written)
        for path in written:
            console.say(str(path))
