"""The files and folders of a run.

outputs/<name>/<run_id>/            outputs/<name>/latest -> the newest evaluation;  outputs/<name>/runs.md lists all
  manifest.json  config.yaml  prompts/  samples.parquet  outputs.parquet  gates.json
  baseline.parquet  calibration.json     where scoring names a baseline or a calibration
  verdict.json  report.md  report.html  report.data/  report.junit.xml  export/  .reports.json
  iteration-1/  .progress.json  journal.jsonl  records.parquet  scores.parquet  judge_inputs.parquet
                metrics.json  low_scores.json  cost.json
  final/        metrics.json  cost.json      over all iterations
outputs/<name>/sweeps/<sweep id>/   comparison.parquet  comparison.md  comparison.html  sweep.json
outputs/<name>/history/             history.parquet  history.csv  history.md  history.html  history.prom
outputs/<name>/comparisons/<id>/    verdict.json  comparison.json  comparison.parquet  comparison.md  comparison.junit.xml
                                    compare.html  compare.data/
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem
from ragpipe.core.version import FORMAT, format_mismatch
from ragpipe.store.files import (
    DISK_FULL,
    atomic_write,
    make_folders,
    output_error,
    sweep_temporaries,
    sync_folder,
    temporary_name,
)
from ragpipe.store.parquet_parts import PARTS
from ragpipe.store.run_tables import check_sealed_manifest, read_json

RUN_ID = re.compile(r"[0-9a-f]{12}")
"""The form of a run's id, and of the ids of comparisons and sweeps: the beginning of a digest."""
LATEST = "latest"
RUNS = "runs.md"
SWEEPS = "sweeps"
"""Folder of the comparisons of sweeps, beside the runs that they compare."""
HISTORY = "history"
"""Folder of the history of a name, beside its runs."""
COMPARISONS = "comparisons"
"""Folder of what `task=compare` wrote, beside the candidate."""
_RESERVED = frozenset({LATEST, RUNS, SWEEPS, HISTORY, COMPARISONS})
_ITERATION = re.compile(r"iteration-([1-9]\d*)")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff/\\:*?\"<>|]+")


class _Named:
    """The path of a file or folder by its name below the root."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, folder: FinalFolder | RunFolder, owner: type | None = None) -> Path:
        return folder.root / self._name


@dataclass(frozen=True, slots=True)
class FinalFolder:
    """The files over all iterations of a run."""

    root: Path

    metrics = _Named("metrics.json")
    cost = _Named("cost.json")

    def create(self) -> Self:
        """Make the folder and remove what dead writers left in it. Raises OutputError."""
        make_folder(self.root)
        sweep_temporaries(self.root)
        return self


@dataclass(frozen=True, slots=True)
class IterationFolder(FinalFolder):
    """The files of one repetition of the judging. `parts` has the tables' parts while they are being made, `<parts>/<table>/`."""

    progress = _Named(".progress.json")
    wall = _Named(".wall.json")
    journal = _Named("journal.jsonl")
    records = _Named("records.parquet")
    scores = _Named("scores.parquet")
    judge_inputs = _Named("judge_inputs.parquet")
    low_scores = _Named("low_scores.json")
    parts = _Named(PARTS)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    root: Path

    manifest = _Named("manifest.json")
    config = _Named("config.yaml")
    prompts = _Named("prompts")
    samples = _Named("samples.parquet")
    outputs = _Named("outputs.parquet")
    outputs_journal = _Named("outputs.journal.jsonl")  # what a live system answered, while it is being collected
    index = _Named("index.json")  # how far the documents are in the system's index; absent without an index manifest
    index_documents = _Named("index.parquet")  # its documents
    gates = _Named("gates.json")  # absent where no gate is declared
    baseline = _Named("baseline.parquet")  # what the gates need of the runs that they hold this one against
    calibration = _Named("calibration.json")  # what `scoring.calibration` named
    own_calibration = _Named("calibration/calibration.json")  # what `task=calibrate` found by labels of this run
    verdict = _Named("verdict.json")
    report = _Named("report.md")
    html = _Named("report.html")
    junit = _Named("report.junit.xml")
    export = _Named("export")  # the tables as CSV and JSON Lines
    reports_made = _Named(".reports.json")  # what the reports were written from, as digests
    seal = _Named("seal.json")

    @classmethod
    def at(cls, output_dir: Path, name: str, run_id: str) -> RunFolder:
        """The folder `<output_dir>/<name>/<run_id>`, not made yet.

        `name` may have levels (`team/nightly`). Raises ConfigError for one that would leave `output_dir`, hide itself
        or take the name of something else there.
        """
        for key, text in (("name", name), ("run_id", run_id)):
            if fault := _name_fault(text, levels=key == "name"):
                expected = "a relative name without `..`, leading dots and special characters"
                raise ConfigError(f"`{key}` cannot name a folder", [Problem(key, fault, repr(text), expected)])
        return cls(Path(output_dir) / name / run_id)

    @property
    def run_id(self) -> str:
        return self.root.name

    @property
    def runs(self) -> Path:
        """The list of all runs of this name, beside them."""
        return self.root.parent / RUNS

    @property
    def latest(self) -> Path:
        """The pointer to the newest evaluation of this name."""
        return self.root.parent / LATEST

    def iteration(self, number: int) -> IterationFolder:
        """The folder of iteration `number` (from 1), not made yet."""
        return IterationFolder(self.root / f"iteration-{number}")

    @property
    def final(self) -> FinalFolder:
        """The folder over all iterations, not made yet."""
        return FinalFolder(self.root / "final")

    def iterations(self) -> list[int]:
        """The numbers of the existing iteration folders, in order."""
        if not self.root.is_dir():
            return []
        matches = (_ITERATION.fullmatch(path.name) for path in self.root.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def create(self) -> Self:
        """Make the folder (permissions by the umask) and remove what dead writers left in it. Raises OutputError."""
        make_folder(self.root.parent)
        make_folder(self.root)
        sweep_temporaries(self.root.parent)
        sweep_temporaries(self.root)
        return self

    def point_latest(self) -> None:
        """Point `latest`, beside this folder, to it: a relative link, replaced atomically.

        A text file with the folder's name where the file system has no links. Raises OutputError.
        """
        if self.latest.is_symlink() and os.readlink(self.latest) == self.root.name:
            return
        temporary = temporary_name(self.root.parent)
        try:
            os.symlink(self.root.name, temporary)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise output_error(self.latest, error) from error
            atomic_write(self.latest, self.root.name + "\n")
            return
        try:
            try:
                os.replace(temporary, self.latest)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_folder(self.root.parent)
        except OSError as error:
            raise output_error(self.latest, error) from error

    @classmethod
    def find(cls, path: Path) -> RunFolder:
        """The run that `path` names: a run folder, a `latest`, or a folder that holds a `latest`.

        The pointer is read as a plain name beside it, so that a copied folder cannot lead elsewhere. Raises DataError;
        FormatMismatch for a run of another format.
        """
        path = Path(path)
        if path.name != LATEST and not (path / "manifest.json").is_file() and _exists(path / LATEST):
            path = path / LATEST
        if path.name == LATEST and _exists(path):
            path = path.parent / _pointed(path)
        if not (path / "manifest.json").is_file():
            raise _no_run(path, "no manifest.json in it" if path.is_dir() else "no such folder")
        manifest_of(path / "manifest.json")
        return cls(path)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _pointed(latest: Path) -> str:
    """The name in `latest`: a link, a text file, or (copied with links followed) a folder."""
    if latest.is_symlink():
        name = os.readlink(latest)
    elif latest.is_dir():
        name = LATEST
    else:
        with open(latest, "rb") as file:
            name = file.read(4096).decode("utf-8", "replace").strip()
    if _name_fault(name, levels=False) and name != LATEST:
        raise _no_run(latest, f"a pointer to {name!r}")
    return name


def _no_run(path: Path, content: str) -> DataError:
    fix = "name a run folder (outputs/<name>/<run_id>) or outputs/<name>/latest"
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]+:/", str(path)):  # an address, as a path writes it
        content, fix = "an address, not a folder of this machine", "task=fetch run=ADDRESS brings a published run here"
    return DataError("there is no run", [Problem(str(path), "run", content, "a run folder", fix)])


def _name_fault(text: str, *, levels: bool) -> str | None:
    """What is wrong with a folder name, None when nothing is."""
    pieces = text.split("/") if levels else [text]
    for piece in pieces:
        if not piece:
            return "an empty part"
        if piece.startswith("."):
            return "a part that begins with a dot"
        if piece in _RESERVED:
            return "a reserved name"
        if not _PLAIN.fullmatch(piece) or piece != piece.strip():
            return "a character that a file name cannot have"
        if len(os.fsencode(piece)) > 200:
            return "too long"
    return None


def make_folder(folder: Path) -> None:
    """Make a folder and its parents where they are missing. Raises OutputError, also for a symbolic link."""
    make_folders(folder)
    if folder.is_symlink():
        raise OutputError(f"cannot write into {folder}: it is a symbolic link, and links are not followed. To fix: remove it.")


def manifest_of(path: Path) -> dict[str, Any]:
    """The content of a `manifest.json`. Raises FormatMismatch for a run of another format, DataError for a broken file."""
    manifest = read_json(path)
    if type(manifest.get("format")) is not int or manifest["format"] != FORMAT:
        made_by = " ".join(f"{name}{manifest[key]}" for key, name in (("ragpipe", ""), ("code", "code ")) if key in manifest)
        raise format_mismatch(
            "a run folder of another format is not read, continued or changed",
            path,
            manifest.get("format"),
            made_by,
            "start the run's command again (it gets a folder of its own), or use the ragpipe that made this one",
        )
    check_sealed_manifest(path, manifest)
    return manifest


class HistoryRun(NamedTuple):
    """A scored run of a history."""

    folder: RunFolder
    manifest: Mapping[str, Any]
