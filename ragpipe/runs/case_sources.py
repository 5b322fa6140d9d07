"""Where the frozen tables of a run come from: a data set with its system, or another run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, OutputError, RagpipeError
from ragpipe.core.resources import code_digest
from ragpipe.core.text import on_one_line
from ragpipe.data.dataset import open_dataset
from ragpipe.data.system_settings import LiveSystem
from ragpipe.report.console import Console
from ragpipe.runs.collect_outputs import ask_system
from ragpipe.runs.collected_outputs import collected_outputs, has_failures, mark_closed_book, take_over_outputs, unknown_methods
from ragpipe.runs.identity import RunData, kept_methods, method_identities, tables_digest
from ragpipe.runs.judge_check import check_judge
from ragpipe.runs.load_dataset import load_dataset, load_outputs, load_samples, read_samples
from ragpipe.runs.manifest import COMPLETE, JUDGED, previous_manifest
from ragpipe.runs.settings import RunConfig
from ragpipe.store.files import atomic_write, is_regular_file, json_unless_same, link_or_copy, open_unless_same
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import check_regular_file, check_sealed, open_table
from ragpipe.store.seals import unchecked


class CaseSource(ABC):
    """What fills samples.parquet and outputs.parquet of a run.

    `name` is that of the data. `collected_at` is when a live system gave the last of the outputs (ISO 8601, UTC); None
    where they are recorded. `pair` names the tables of both sides where the cases are pairs. `remarks`: what reading noticed.
    """

    name: str
    collected_at: str | None = None
    pair: Mapping[str, Any] | None = None
    remarks: Sequence[str] = ()

    @property
    @abstractmethod
    def digest(self) -> str:
        """The digest of the data's content."""

    @abstractmethod
    def tables_digest(self, identity: dict[str, Any]) -> str:
        """Names the content of both tables: equal ones are linked, not written again."""

    @abstractmethod
    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """Put samples.parquet and outputs.parquet into the folder. Raises DataError and leaves nothing behind."""

    def retry_failures(self, folder: RunFolder) -> bool:
        """Ask the system again for what it failed on. True when the outputs may have changed."""
        return False

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        """Put the tables of iterations that are judged already into the folder. Returns their states by number. Raises DataError for
        one that was changed."""
        return {}

    def check_unchanged(self) -> None:
        """Raises OutputError when the data is not what it was at the start."""
        return None


class DatasetSource(CaseSource):
    """The data set, and the system under test where its outputs are not recorded."""

    def __init__(self, config: RunConfig, data: RunData, console: Console):
        self._config, self._data, self._console = config, data, console
        self.dataset, self.name = data.dataset, data.dataset.name
        self._judged: RunSource | None = None  # the previous run, where its scoring alone differs, by the same code

    @property
    def digest(self) -> str:
        return self._data.digest

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return tables_digest(identity)

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        previous = previous_manifest(folder)
        previous_folder = RunFolder(folder.root.parent / str(previous.get("run_id")))
        kept = self._kept_methods(previous, identity)
        if self._has_same_tables(previous_folder, previous, identity, kept):
            self._link(previous_folder, previous, folder)
            has_same_judging = {**previous["identity"], "scoring": None} == {**identity, "scoring": None}
            if has_same_judging and previous.get("code") == code_digest() and not self._config.retry_errors:
                numbers = map(str, range(1, self._config.iterations + 1))
                states = {number: previous["iterations"].get(number) for number in numbers}
                self._judged = RunSource(previous_folder, {**previous, "iterations": states}, scores=True)
        elif not isinstance(self._config.system, LiveSystem):
            self._warn_of_unknown_methods(self._load(folder))
            for line in self.remarks:
                self._console.warn(on_one_line(line, 1000))
        else:
            load_samples(self.dataset, samples=folder.samples)
            self._write_index(folder)  # a wrong index is reported before the system is asked
            if not folder.outputs_journal.exists():
                self._say_why_collected(previous, identity, kept)
            self._take_over(previous_folder, folder, kept)
            check_judge(self._config, folder.root.name, self._console.warn)
            self._collect(folder, kept)
            self._warn_of_unknown_methods(self._config.system.method_names)
        self._write_index(folder)

    def write_for_plan(self, folder: RunFolder, planned: RunFolder, identity: dict[str, Any]) -> None:
        """Put the cases of a planned run into a folder: those that the newest run of its name froze, where they are the same."""
        newest = previous_manifest(planned, or_itself=True)
        known = RunFolder(planned.root.parent / str(newest.get("run_id")))
        if isinstance(self._config.system, LiveSystem):
            load_samples(self.dataset, samples=folder.samples)
            self.remarks = self.dataset.remarks()
        elif self._has_same_tables(known, newest, identity):
            self._link(known, newest, folder)
        else:
            self._load(folder)

    def _load(self, folder: RunFolder) -> list[str]:
        """Read the recorded outputs, those of a system that retrieves nothing marked. Returns their methods."""
        records = mark_closed_book(self.dataset, self._config.system)
        methods = load_dataset(records, samples=folder.samples, outputs=folder.outputs)
        self.remarks = self.dataset.remarks()
        return methods

    def _link(self, known: RunFolder, manifest: Mapping[str, Any], folder: RunFolder) -> None:
        link_tables(known, folder)
        self.collected_at, self.remarks = manifest["data"].get("collected_at"), manifest["data"].get("remarks", ())

    def _take_over(self, earlier: RunFolder, folder: RunFolder, methods: Sequence[str]) -> None:
        """The answers of methods that are as they were in an earlier run: these are not asked again."""
        if methods and earlier.outputs_journal.is_file():
            counts = take_over_outputs(earlier.outputs_journal, folder.outputs_journal, methods)
            for method, count in counts.items():
                self._console.say(f"{count:,} outputs of {method} are those of run {earlier.root.name}: it is as it was")

    def _kept_methods(self, previous: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
        """The live methods whose outputs in a run are those that this run would collect, by the version alone where the user says so."""
        system = self._config.system
        if not previous or not isinstance(system, LiveSystem):
            return []
        by_version = (method.method for method in system.each_method() if method.by_version)
        return kept_methods(previous["identity"], identity, frozenset(by_version))

    def _has_same_tables(
        self, folder: RunFolder, previous: Mapping[str, Any], identity: Mapping[str, Any], kept: Sequence[str] = ()
    ) -> bool:
        """Whether a run has all outputs that this run would collect, no others, and none is damaged."""
        if not previous or table_damage(folder, previous["data"].get("frozen")) is not None:
            return False
        if previous["data"].get("tables") == tables_digest(identity):
            return True
        return bool(kept) and len(kept) == len(method_identities(previous["identity"]["system"])) == len(
            method_identities(identity["system"])
        )

    def _say_why_collected(self, previous: Mapping[str, Any], identity: Mapping[str, Any], kept: Sequence[str]) -> None:
        """Said before a system is asked though there are outputs of the previous run."""
        if not previous or previous["identity"]["system"]["kind"] == "recorded":
            return
        run, before = previous["run_id"], method_identities(previous["identity"]["system"])
        again = [name for name in method_identities(identity["system"]) if name in before and name not in kept]
        if not kept:
            said = f"outputs are collected again: those of run {run} come from another system or other questions"
            self._console.say(said)
        elif again:
            self._console.say(f"outputs of {', '.join(again)} are collected again: another system than in run {run}")

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        if self._judged is None:
            return {}
        try:
            adopted = self._judged.adopt_judged(folder)
        except DataError:  # of a changed table: the cases are done again over the stored replies
            return {}
        if adopted:
            self._console.say("only the scoring differs: what that run has judged is taken")
        return adopted

    def retry_failures(self, folder: RunFolder) -> bool:
        if not has_failures(folder.outputs_journal):
            return False
        self._collect(folder)
        return True

    def check_unchanged(self) -> None:
        if (path := self.dataset.touched()) is None:
            return
        try:
            is_same = open_dataset(self._config.dataset, Path.cwd(), self._config.cache).digest == self.dataset.digest
        except RagpipeError:
            is_same = False
        if not is_same:
            raise OutputError(
                f"the data changed while the run was going on: {path} is not what it was at the start. To fix: start again: the "
                "changed data opens its own run, what was answered is kept, and unchanged cases cost nothing"
            )

    def _warn_of_unknown_methods(self, methods: Iterable[str]) -> None:
        if line := unknown_methods(self._config.system, methods):
            self._console.warn(line)

    def _write_index(self, folder: RunFolder) -> None:
        if index := self._data.index:
            json_unless_same(folder.index, index.coverage(read_samples(folder.samples)).model_dump(mode="json"))
            with open_unless_same(folder.index_documents) as file:
                pq.write_table(index.documents(), file, compression="zstd")

    def _collect(self, folder: RunFolder, taken_over: Sequence[str] = ()) -> None:
        """Ask the live system for every output that is missing or failed, and freeze all of them."""
        system = self._config.system
        if not isinstance(system, LiveSystem):
            raise RagpipeError("a recorded system has nothing to collect")
        ask_system(folder, system, self._config.plugins, taken_over, self.name, self._console)
        self.collected_at = datetime.now(UTC).isoformat(timespec="seconds")
        by_sample = collected_outputs(folder.outputs_journal, system.method_names)
        pairs = ((sample, by_sample[sample.id]) for sample in read_samples(folder.samples))
        load_outputs(pairs, outputs=folder.outputs)


class RunSource(CaseSource):
    """The tables of an existing run: neither its data set nor its system is needed, and nothing is asked again.

    With `scores` its scores and replies are taken over too: only the scoring is done again. Raises DataError when a table
    is missing.
    """

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, scores: bool = False):
        _check_tables(source)
        self._source, self._data = source, manifest["data"]
        self._states: dict[str, str] = manifest["iterations"] if scores else {}
        self.name = self._data["name"]
        self.collected_at, self.pair = self._data.get("collected_at"), self._data.get("pair")
        self.remarks = self._data.get("remarks", ())

    @property
    def digest(self) -> str:
        return str(self._data["digest"])

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return str(self._data["tables"])

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        link_tables(self._source, folder)

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        done = {
            number: source
            for number, state in self._states.items()
            if state == COMPLETE and all(map(is_regular_file, _judged_tables(source := self._source.iteration(int(number)))))
        }
        check_sealed(*(path for source in done.values() for path in _judged_tables(source)))
        for number, source in done.items():
            target = folder.iteration(int(number)).create()
            for path, copy in zip(_judged_tables(source), _judged_tables(target), strict=True):
                link_or_copy(path, copy)
        return dict.fromkeys(done, JUDGED)


def _judged_tables(iteration: IterationFolder) -> tuple[Path, Path]:
    return iteration.scores, iteration.judge_inputs


def link_tables(source: RunFolder, target: RunFolder) -> None:
    """Take both tables of another run, hard-linked where that is possible. Raises DataError when one is missing."""
    _check_tables(source)
    link_or_copy(source.samples, target.samples)
    link_or_copy(source.outputs, target.outputs)
    for known, path in ((source.index, target.index), (source.index_documents, target.index_documents)):
        if is_regular_file(known):
            link_or_copy(known, path)
    if source.outputs_journal.is_file():  # copied, not linked: it is appended to when failures are asked again
        atomic_write(target.outputs_journal, source.outputs_journal.read_bytes())


def _check_tables(source: RunFolder) -> None:
    """Raises DataError when a run has lost its frozen cases, or one of the tables is a link."""
    for path in (source.samples, source.outputs):
        check_regular_file(path)


def table_digests(folder: RunFolder) -> dict[str, str]:
    """The sha256 of both tables, as they are in the manifest."""
    return {path.name: sha256_file(path) for path in (folder.samples, folder.outputs)}


def table_damage(folder: RunFolder, known: Any) -> str | None:
    """The first thing that is wrong with the frozen cases, in words; None where both tables are what was frozen. `known` are
    the digests of the manifest."""
    for path in (folder.samples, folder.outputs):
        if fault := table_fault(path):
            return f"{path.name}: {fault}"
        if not isinstance(known, Mapping) or known.get(path.name) != sha256_file(path):
            return f"{path.name} is not what was frozen"
    return None


def table_fault(path: Path) -> str | None:
    """Why a table cannot be opened; None when it can."""
    try:
        with unchecked(), open_table(path):
            pass
    except DataError as error:
        return error.problems[0].found
    return None
