"""What the reports of a run are made from: unchanged ones are not made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError
from ragpipe.core.resources import code_digest
from ragpipe.core.version import FORMAT
from ragpipe.report.page_file import side_folder
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.manifest import derived_and_frozen
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json


@dataclass(frozen=True)
class ReportSources:
    """What the reports of a run are made from, as digests, taken before they are read: `made_from` is one of ragpipe's code and
    templates, the settings, the run's files and what else is shown, `reports` are those of the reports and exports that are
    there, by path. `.reports.json` keeps both. No figure is read from it, and no seal covers it."""

    run: RunFolder
    made_from: str
    reports: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFolder, settings: ReportSettings, shown: Mapping[str, Any]) -> ReportSources:
        """The sources as they are now. `shown` is what reports show besides files of the run: plain JSON."""
        paths = {path.relative_to(run.root).as_posix(): path for path in derived_and_frozen(run.root)}
        digests = {name: sha256_file(path) for name, path in paths.items() if _is_source(name)}
        reports = {name: sha256_file(path) for name, path in paths.items() if _is_report(run, name)}
        sources = {"code": code_digest(), "settings": settings.model_dump(mode="json"), "shown": dict(shown), "files": digests}
        return cls(run, sha256(sources), reports)

    def written(self) -> list[Path] | None:
        """The reports, where all are there and are what was written from these sources; else None."""
        try:
            noted = read_json(self.run.reports_made) if self.run.reports_made.exists() else {}
        except DataError:  # then the reports are made again, and the file with them
            return None
        digests = noted.get("written")
        if noted.get("made_from") != self.made_from or not isinstance(digests, dict):
            return None
        is_intact = all(self.reports.get(name) == digest for name, digest in digests.items())
        return [self.run.root / name for name in digests] if is_intact else None

    def note(self, written: Sequence[Path]) -> None:
        """Note that these reports were written from these sources. Raises OutputError."""
        digests = {path.relative_to(self.run.root).as_posix(): sha256_file(path) for path in written}
        json_unless_same(self.run.reports_made, {"format": FORMAT, "made_from": self.made_from, "written": digests})


def _is_source(name: str) -> bool:
    """Whether a file of the run, named by its path in the folder, may be read for a report."""
    top = name.partition("/")[0]
    return top.startswith("iteration-") or top in ("final", "gates.json", "index.json", "outputs.parquet", "samples.parquet")


def _is_report(run: RunFolder, name: str) -> bool:
    """Whether a file of the run, named by its path in the folder, is what reports write."""
    pages = {path.name for path in (run.verdict, run.report, run.html, run.junit)}
    return name in pages or name.startswith(("export/", f"{side_folder(run.html).name}/"))
