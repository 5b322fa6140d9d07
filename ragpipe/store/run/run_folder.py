"""The files and folders of a run.

outputs/<name>/<run_id>/            outputs/<name>/latest -> the newest evaluation;  outputs/<name>/runs.md lists all
  manifest.json  config.yaml  prompts/  samples.parquet  outputs.parquet  gates.json
  baseline.parquet  calibration.json     where scoring names a baseline or a calibration
  report.md  report.html  report.data/  report.junit.xml  export/  .reports.json
  iteration-1/  .progress.json  journal.jsonl  records.parquet  scores.parquet  judge_inputs.parquet
                metrics.json  low_scores.json  cost.json
  final/        metrics.json  cost.json      over all iterations
outputs/<name>/sweeps/<sweep id>/   comparison.parquet  comparison.md  sweep.json
outputs/<name>/history/             history.parquet  history.csv  history.md  history.prom
outputs/<name>/comparisons/<id>/    comparison.json  comparison.parquet  comparison.md  comparison.junit.xml  compare.html
                                    compare.data/
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem
from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.store.files.atomic import (
    DISK_FULL,
    atomic_write,
    make_folders,
    output_error,
    sweep_temporaries,
    sync_folder,
    temporary_name,
)
from ragpipe.store.files.parquet_parts import PARTS
from ragpipe.store.run.run_tables import check_sealed_manifest, read_json

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


@dataclass(frozen=True, slots=True)
class IterationFolder:
    """The files of one repetition of the judging."""

    root: Path

    @property
    def progress(self) -> Path:
        return self.root / ".progress.json"

    @property
    def wall(self) -> Path:
        return self.root / ".wall.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def records(self) -> Path:
        return self.root / "records.parquet"

    @property
    def scores(self) -> Path:
        return self.root / "scores.parquet"

    @property
    def judge_inputs(self) -> Path:
        return self.root / "judge_inputs.parquet"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def low_scores(self) -> Path:
        return self.root / "low_scores.json"

    @property
    def cost(self) -> Path:
        return self.root / "cost.json"

    @property
    def parts(self) -> Path:
        """Folder of the tables' parts while they are being made, `<parts>/<table>/`; gone at the end."""
        return self.root / PARTS

    def create(self) -> Self:
        """Make the folder and remove what dead writers left in it. Raises OutputError."""
        make_folder(self.root)
        sweep_temporaries(self.root)
        return self


@dataclass(frozen=True, slots=True)
class FinalFolder:
    """The files over all iterations of a run."""

    root: Path

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def cost(self) -> Path:
        return self.root / "cost.json"

    def create(self) -> Self:
        """Make the folder and remove what dead writers left in it. Raises OutputError."""
        make_folder(self.root)
        sweep_temporaries(self.root)
        return self


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    root: Path

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
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def prompts(self) -> Path:
        return self.root / "prompts"

    @property
    def samples(self) -> Path:
        return self.root / "samples.parquet"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs.parquet"

    @property
    def index(self) -> Path:
        """How far the documents are in the index of the system; absent where no index manifest was given."""
        return self.root / "index.json"

    @property
    def outputs_journal(self) -> Path:
        """What a live system answered, line by line, while its outputs are being collected."""
        return self.root / "outputs.journal.jsonl"

    @property
    def gates(self) -> Path:
        """The verdicts of the gates over all iterations; absent where no gate is declared."""
        return self.root / "gates.json"

    @property
    def baseline(self) -> Path:
        """What the gates need of the runs that they hold this one against; absent where no gate has a baseline."""
        return self.root / "baseline.parquet"

    @property
    def calibration(self) -> Path:
        """How far the judge agrees with people, as `scoring.calibration` named it; absent where it names none."""
        return self.root / "calibration.json"

    @property
    def report(self) -> Path:
        return self.root / "report.md"

    @property
    def html(self) -> Path:
        return self.root / "report.html"

    @property
    def junit(self) -> Path:
        return self.root / "report.junit.xml"

    @property
    def reports_made(self) -> Path:
        """What the reports were written from, as digests."""
        return self.root / ".reports.json"

    @property
    def export(self) -> Path:
        """Folder of the tables as CSV and JSON Lines, laid out as the run folder is."""
        return self.root / "export"

    @property
    def runs(self) -> Path:
        """The list of all runs of this name, beside them."""
        return self.root.parent / RUNS

    @property
    def seal(self) -> Path:
        """What every file was when the run ended."""
        return self.root / "seal.json"

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
        raise OutputError(
            f"cannot write into {folder}: it is a symbolic link, and links are not followed. To fix: remove it."
        )


_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes; https://www.sqlite.org/fileformat2.html section 1.3
_USER_VERSION = slice(60, 64)


def manifest_of(path: Path) -> dict[str, Any]:
    """The content of a `manifest.json`. Raises FormatMismatch for a run of another format, DataError for a broken file."""
    manifest = read_json(path)
    if type(manifest.get("format")) is not int or manifest["format"] != FORMAT:
        made_by = " ".join(
            f"{name}{manifest[key]}" for key, name in (("ragpipe", ""), ("code", "code ")) if key in manifest
        )
        raise format_mismatch(
            "a run folder of another format is not read, continued or changed",
            path,
            manifest.get("format"),
            made_by,
            "start the run's command again (it gets a folder of its own), or use the ragpipe that made this one",
        )
    check_sealed_manifest(path, manifest)
    return manifest


def check_store(path: Path) -> None:
    """Raises FormatMismatch for a call store of another format. A file that is no database is reported when it is opened.

    The number is SQLite's `user_version`, in the first page of the file: these bytes are read, the database is not opened.
    Opening it, even for reading, would leave SQLite's log and shared memory beside it.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER)
    except OSError:
        return
    number = int.from_bytes(head[_USER_VERSION], "big")
    if not head.startswith(_MAGIC) or number == FORMAT:
        return
    tables, meta = _peek(path)
    log = path.with_name(f"{path.name}-wal")
    is_new = not tables and not (log.exists() and log.stat().st_size)
    is_foreign = bool(tables) and not {"meta", "calls"} <= tables
    if is_new or is_foreign:  # without a table it is about to become one; with others it is another program's
        return
    raise format_mismatch(
        "a call store of another format is not read, continued or changed",
        path,
        number or None,
        meta.get("ragpipe"),
        "set store.path=FOLDER to a new folder, or move the file away: only the ragpipe that made it reads its replies",
    )


def _peek(path: Path) -> tuple[set[str], dict[str, str]]:
    """The tables of a database and the content of `meta`, as far as they can be read without its log."""
    tables: set[str] = set()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return tables, dict(db.execute("SELECT name, value FROM meta").fetchall())
    except (sqlite3.Error, ValueError):
        return tables, {}
