"""Where the frozen tables of a run come from: a data set with its system, or another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ragpipe.config import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.datasets.dataset import Dataset, open_dataset
from ragpipe.datasets.index_manifest import IndexManifest
from ragpipe.engine.frozen_inputs import damage
from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.manifest import previous
from ragpipe.reports.render.terminal import Console
from ragpipe.schema.sample import Output
from ragpipe.stages.closed_book import mark_closed_book, unknown_methods
from ragpipe.stages.collect_outputs import collected, has_failures
from ragpipe.stages.load_dataset import load_outputs, load_samples, read_samples, run_load
from ragpipe.store.files.atomic import atomic_write, link_or_copy
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.systems.settings import PythonSystem, RecordedSystem


class CaseSource(Protocol):
    """`name` and `digest` of the data; `tables(identity)` names the content of samples.parquet and outputs.parquet.
    `collected_at` is when a live system gave the last of the outputs (ISO 8601, UTC); None where they are recorded."""

    name: str
    collected_at: str | None

    @property
    def digest(self) -> str: ...
    def tables(self, identity: dict[str, Any]) -> str:
        """What names the content of both tables: equal ones are linked, not written again."""
        ...

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """Put samples.parquet and outputs.parquet into the folder. Raises DataError and leaves nothing behind."""
        ...

    def freeze_again(self, folder: RunFolder, fault: str) -> None:
        """Put both tables into the folder once more, with the same cases, because of this fault; nobody is asked. Raises
        DataError where they cannot be made again."""
        ...

    def ask_again(self, folder: RunFolder) -> bool:
        """Ask the system again for what it failed on. True when the outputs may have changed."""
        ...

    def judged(self, folder: RunFolder) -> dict[str, str]:
        """The iterations whose judging is there already, with their states; their tables are put into the folder."""
        ...

    def check(self) -> None:
        """Raises DataError when the data is not what it was at the start."""
        ...


class DatasetSource:
    """The data set, and the system under test where its outputs are not recorded."""

    def __init__(self, config: RunConfig, console: Console):
        self._config, self._console = config, console
        self._dataset: Dataset = open_dataset(config.dataset, Path.cwd())
        self._index = open_index(config)
        self.name = self._dataset.name
        self.collected_at: str | None = None

    @property
    def digest(self) -> str:
        """Of the data set; with an index manifest, of both."""
        return sha256([self._dataset.digest, self._index.digest]) if self._index else self._dataset.digest

    def tables(self, identity: dict[str, Any]) -> str:
        system = {key: value for key, value in identity["system"].items() if key != "prices"}  # they change no answer
        return sha256([identity["dataset"], system, identity["data"], identity["ragpipe"], identity["format"]])

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        before = previous(folder)
        other = RunFolder(folder.root.parent / str(before.get("run_id")))
        if self._same_tables(before, identity) and damage(other, before["data"].get("frozen")) is None:
            link_tables(other, folder)
            self.collected_at = before["data"].get("collected_at")
        elif isinstance(self._config.system, RecordedSystem):
            self._load(folder, self._config.system)
        else:
            load_samples(self._dataset, samples=folder.samples)
            self._write_index(folder)  # a wrong one is told before the system is asked
            if not folder.outputs_journal.exists():
                self._say_anew(folder, before, identity)
            self._collect(folder)
            self._warn_of_unknown([self._config.system.method])
        self._write_index(folder)

    def _load(self, folder: RunFolder, system: RecordedSystem) -> None:
        counts = run_load(mark_closed_book(self._dataset, system), samples=folder.samples, outputs=folder.outputs)
        self._warn_of_unknown(counts.methods)

    def freeze_again(self, folder: RunFolder, fault: str) -> None:
        if isinstance(self._config.system, RecordedSystem):
            self._load(folder, self._config.system)
        elif not folder.outputs_journal.is_file():
            raise cannot_freeze(
                folder, f"{fault}; outputs.journal.jsonl, which has what the system answered, is missing too"
            )
        else:
            load_samples(self._dataset, samples=folder.samples)
            found = collected(folder.outputs_journal)
            if lost := [sample.id for sample in read_samples(folder.samples) if sample.id not in found]:
                raise cannot_freeze(folder, f"{fault}; outputs.journal.jsonl has no answer to sample {lost[0]!r}")
            self._write_outputs(folder, found)
        self._write_index(folder)

    def _write_outputs(self, folder: RunFolder, found: Mapping[str, Sequence[Output]]) -> None:
        load_outputs(((sample, found[sample.id]) for sample in read_samples(folder.samples)), outputs=folder.outputs)

    def _same_tables(self, before: dict[str, Any], identity: dict[str, Any]) -> bool:
        """Whether a run has the outputs that this one would collect: also those of an older source, where the user says
        that the version alone counts."""
        if before.get("data", {}).get("tables") == self.tables(identity):
            return True
        system = self._config.system
        if not (before and isinstance(system, PythonSystem) and system.recognised_by == "version"):
            return False
        return self._differ_in_source(before, identity)

    def _differ_in_source(self, before: dict[str, Any], identity: dict[str, Any]) -> bool:
        """Whether the outputs of two runs are another's for nothing but the system's source."""
        found, wanted = (self.tables(_without_source(one)) for one in (before["identity"], identity))
        return found == wanted

    def _say_anew(self, folder: RunFolder, before: dict[str, Any], identity: dict[str, Any]) -> None:
        """Before a system is asked for outputs of which there are others: those of the run before, or of a collection that
        was stopped."""
        for path in unfinished(folder):
            self._console.say(
                f"outputs are collected from the start: those of {path} are of another source, system or data"
            )
        if not before or before["identity"]["system"]["kind"] == "recorded":
            return
        line = (
            f"outputs are collected again: those of run {before['run_id']} come from another system or other questions"
        )
        if self._differ_in_source(before, identity):
            line = (
                f"outputs are collected again, as the system was edited; system.identity=version would keep those of run "
                f"{before['run_id']}"
            )
        self._console.say(line)

    def ask_again(self, folder: RunFolder) -> bool:
        if not has_failures(folder.outputs_journal):
            return False
        self._collect(folder)
        return True

    def judged(self, folder: RunFolder) -> dict[str, str]:
        return {}

    def check(self) -> None:
        if DatasetSource(self._config, self._console).digest != self.digest:
            raise DataError(
                "the data changed while the run was going on",
                [
                    Problem(
                        str(self._config.dataset.path),
                        "dataset.path",
                        "other content than at the start",
                        "the same content",
                        "start again: the changed data opens its own run, and unchanged cases cost nothing",
                    )
                ],
            )

    def _warn_of_unknown(self, methods: Iterable[str]) -> None:
        if line := unknown_methods(self._config.system, methods):
            self._console.warn(line)

    def _write_index(self, folder: RunFolder) -> None:
        if self._index:
            json_unless_same(folder.index, self._index.coverage(read_samples(folder.samples)).model_dump(mode="json"))

    def _collect(self, folder: RunFolder) -> None:
        from ragpipe.engine.output_collection import collect

        found = collect(self._config, folder, self._console)
        self.collected_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_outputs(folder, found)


class RunSource:
    """The tables of a run that exists: neither its data set nor its system is needed, and nothing is asked again.

    With `scores` its scores and replies are taken over too: only the scoring is done again. Raises DataError when a table
    is not there, or is not what the run's seal says.
    """

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, scores: bool = False):
        check_frozen_tables(source)
        check_unmodified(source, manifest["iterations"], scores=scores)
        self._source, self._data = source, manifest["data"]
        self._states: dict[str, str] = manifest["iterations"] if scores else {}
        self.name: str = self._data["name"]
        self.collected_at: str | None = self._data.get("collected_at")

    @property
    def digest(self) -> str:
        return str(self._data["digest"])

    def tables(self, identity: dict[str, Any]) -> str:
        return str(self._data["tables"])

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        link_tables(self._source, folder)

    def freeze_again(self, folder: RunFolder, fault: str) -> None:
        if self._source.root.resolve() == folder.root.resolve():
            raise cannot_freeze(folder, fault)
        link_tables(self._source, folder)

    def ask_again(self, folder: RunFolder) -> bool:
        return False

    def judged(self, folder: RunFolder) -> dict[str, str]:
        found = {}
        for number, state in self._states.items():
            source, target = self._source.iteration(int(number)), folder.iteration(int(number))
            if state == "complete" and _whole(source.scores) and _whole(source.judge_inputs):
                target.create()
                link_or_copy(source.scores, target.scores)
                link_or_copy(source.judge_inputs, target.judge_inputs)
                found[number] = "judged"
        return found

    def check(self) -> None:
        """Frozen tables do not change."""


def unfinished(folder: RunFolder) -> list[Path]:
    """Run folders of the same name in which outputs were collected, and which never became a run."""
    there = (
        RunFolder(path)
        for path in sorted(folder.root.parent.glob("*"))
        if path != folder.root and not path.is_symlink()
    )
    return [other.root for other in there if other.outputs_journal.is_file() and not other.manifest.exists()]


def _without_source(identity: dict[str, Any]) -> dict[str, Any]:
    system = {key: value for key, value in identity["system"].items() if key != "source"}
    return {**identity, "system": system}


def open_index(config: RunConfig) -> IndexManifest | None:
    """The index manifest of the system, None where none is given. Raises DataError."""
    path = config.system.index_manifest
    return IndexManifest(path, Path.cwd()) if path is not None else None


def check_frozen_tables(source: RunFolder) -> None:
    """Raises DataError when a run has lost its frozen cases, or one of them is a link."""
    for path in (source.samples, source.outputs):
        if not _whole(path):
            raise DataError(
                "a run folder is not whole",
                [
                    Problem(
                        str(path),
                        "file",
                        "no such file",
                        "the run's frozen cases",
                        "start the run's own command again: it freezes the cases anew from the same data; or copy the whole run folder",
                    )
                ],
            )


def cannot_freeze(folder: RunFolder, fault: str) -> DataError:
    """The error for frozen cases that are damaged and cannot be made again."""
    return DataError(
        "the frozen cases of a run are damaged",
        [
            Problem(
                str(folder.root),
                "samples.parquet, outputs.parquet",
                fault,
                "the tables that ragpipe wrote",
                "remove this folder and start the run's own command again: replies of the judge are in the call store, a live system "
                "is asked again; or copy the whole run folder from elsewhere",
            )
        ],
    )


def link_tables(source: RunFolder, target: RunFolder) -> None:
    """Both tables of another run, hard-linked where that is possible. Raises DataError when one is not there."""
    check_frozen_tables(source)
    link_or_copy(source.samples, target.samples)
    link_or_copy(source.outputs, target.outputs)
    if _whole(source.index):
        link_or_copy(source.index, target.index)
    if source.outputs_journal.is_file():  # copied, not linked: it is appended to when failures are asked again
        atomic_write(target.outputs_journal, source.outputs_journal.read_bytes())


def _whole(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
