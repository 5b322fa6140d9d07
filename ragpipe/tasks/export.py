"""`task=export`: a finished run for other programs, from its folder alone: CSV, JSON Lines, JUnit, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.finished_run import read_config
from ragpipe.reports.console import Console
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stages.seal_run import seal_added
from ragpipe.stages.write_reports import write_report_files
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder


class ExportSettings(Settings):
    """`run` names the run folder, `formats` what to write."""

    run: str = Field(min_length=1, description="Folder of the run.")
    formats: list[Literal["csv", "json", "html", "junit"]] = Field(
        min_length=1, description="Files to write: tables as csv or json, the page report.html, and report.junit.xml."
    )


@dataclass(frozen=True)
class Export:
    """What to write of which run; `report` holds the formats and the options of the page."""

    folder: RunFolder
    report: ReportSettings


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> Export:
    """Check the keys of this task. Options of the page are the run's own, so that the page stays what it was, unless they
    are given now. Raises ConfigError, DataError."""
    problems: list[Problem] = []
    origins = origins or NoOrigins()
    if "report.formats" in getattr(origins, "chosen", ()):
        problems.append(
            Problem(
                "command line",
                "report.formats",
                repr(plain["report"]["formats"]),
                "formats, which says what task=export writes",
                f"formats={_list(plain['report']['formats'])}",
            )
        )
    own = {key: plain[key] for key in ExportSettings.model_fields if key in plain}
    settings = validated(ExportSettings, own, "", origins, problems)
    if settings is None or problems:
        raise ConfigError("task=export cannot start; nothing was written", problems)
    folder = RunFolder.find(Path(settings.run))
    report = validated(ReportSettings, _report(folder, plain, origins), "report", origins, problems)
    if report is None:
        raise ConfigError("the report section is wrong; nothing was written", problems)
    return Export(folder, report.model_copy(update={"formats": settings.formats}))


def _list(formats: Any) -> str:
    return f"[{','.join(map(str, formats))}]" if isinstance(formats, list) else str(formats)


def _report(folder: RunFolder, plain: Mapping[str, Any], origins: ConfigOrigins) -> Any:
    """The run's `report` section with what was said now over it; a section that was chosen now as a whole stands."""
    now, said = plain.get("report", {}), getattr(origins, "chosen", ())
    before = read_config(folder).get("report")
    if "report" in said or not isinstance(before, Mapping):
        return now
    return {
        **before,
        **{key: now[key] for word in said if (key := word.removeprefix("report.")) in now and key != word},
    }


def run(export: Export, console: Console) -> int:
    """Write the files and print their paths. Returns 0. Raises DataError for a run that is not scored, OutputError."""
    folder = export.folder
    with FolderLock(folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        numbers = scored_iterations(folder)
        if not numbers:
            fix = "finish the run: start its command again"
            raise DataError(
                "there is nothing to export",
                [Problem(str(folder.root), "run", "no iteration that is scored", "a finished run", fix)],
            )
        written = write_report_files(folder, folder.iteration(numbers[-1]), export.report)
        seal_added(folder, written)
        for path in written:
            console.say(str(path))
    return 0
