"""Where the frozen tables of a run come from: a data set with its system, or another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.core.safe_text import on_one_line
from ragpipe.datasets.dataset import Dataset, open_dataset
from ragpipe.datasets.index_manifest import IndexManifest
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.engine.judge_check import check_judge
from ragpipe.engine.runs.manifest import JUDGED, previous_manifest
from ragpipe.engine.runs.run_identity import kept_methods, method_identities, tables_digest
from ragpipe.engine.sources.frozen_inputs import table_damage
from ragpipe.engine.work_meter import WorkDone, WorkMeter
from ragpipe.judging.limits.budget import Budget
from ragpipe.reports.console import Console
from ragpipe.schema.sample import Output
from ragpipe.stages.collect_outputs import CollectStage
from ragpipe.stages.collected_outputs import (
    collected_outputs,
    has_failures,
    mark_closed_book,
    take_over_outputs,
    unknown_methods,
)
from ragpipe.stages.load_dataset import load_dataset, load_outputs, load_samples, read_samples
from ragpipe.stages.read_answers import cost_of_answer, open_system_budget
from ragpipe.store.files.atomic import atomic_write, json_unless_same, link_or_copy
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.journal import has_entries
from ragpipe.store.run.progress_file import ProgressView
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import check_regular_file
from ragpipe.systems.live_system import AnswerCosts, open_methods
from ragpipe.systems.settings import AnySystem, LiveSystem


class CaseSource(Protocol):
    """What fills samples.parquet and outputs.parquet of a run.

    `name` is that of the data. `collected_at` is when a live system gave the last of the outputs (ISO 8601, UTC); None
    where they are recorded. `linked_from` is the run whose tables were linked; None where they were written.
    """

    name: str
    collected_at: str | None
    linked_from: RunFolder | None

    @property
    def digest(self) -> str:
        """The digest of the data's content."""
        ...

    def tables_digest(self, identity: dict[str, Any]) -> str:
        """Names the content of both tables: equal ones are linked, not written again."""
        ...

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        """Put samples.parquet and outputs.parquet into the folder. Raises DataError and leaves nothing behind."""
        ...

    def restore(self, folder: RunFolder, fault: str) -> None:
        """Write both tables once more, with the same cases, because of this fault; no system is asked. Raises DataError
        where they cannot be restored."""
        ...

    def retry_failures(self, folder: RunFolder) -> bool:
        """Ask the system again for what it failed on. True when the outputs may have changed."""
        ...

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        """Put the tables of iterations that are judged already into the folder. Returns their states by number."""
        ...

    def check_unchanged(self) -> None:
        """Raises OutputError when the data is not what it was at the start."""
        ...


class DatasetSource:
    """The data set, and the system under test where its outputs are not recorded."""

    def __init__(self, config: RunConfig, console: Console):
        self._config, self._console = config, console
        self.dataset: Dataset = open_dataset(config.dataset, Path.cwd(), config.cache)
        self._index = open_index(config)
        self.name = self.dataset.name
        self.collected_at: str | None = None
        self.linked_from: RunFolder | None = None

    @property
    def digest(self) -> str:
        """The digest of the data set; with an index manifest, of both."""
        return sha256([self.dataset.digest, self._index.digest]) if self._index else self.dataset.digest

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return tables_digest(identity)

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        previous = previous_manifest(folder)
        previous_folder = RunFolder(folder.root.parent / str(previous.get("run_id")))
        kept = self._kept_methods(previous, identity)
        is_sound = bool(previous) and table_damage(previous_folder, previous["data"].get("frozen")) is None
        if is_sound and self._same_tables(previous, identity, kept):
            link_tables(previous_folder, folder)
            self.linked_from = previous_folder
            self.collected_at = previous["data"].get("collected_at")
        elif not isinstance(self._config.system, LiveSystem):
            self._load(folder, self._config.system)
        else:
            load_samples(self.dataset, samples=folder.samples)
            self._write_index(folder)  # a wrong index is reported before the system is asked
            if not folder.outputs_journal.exists():
                self._say_why_collected(folder, previous, identity, kept)
            self._take_over(previous_folder, folder, kept)
            check_judge(self._config, folder.root.name, self._console.warn)
            self._collect(folder, kept)
            self._warn_of_unknown_methods(self._config.system.method_names)
        self._write_index(folder)

    def _load(self, folder: RunFolder, system: AnySystem) -> None:
        records = mark_closed_book(self.dataset, system)
        counts = load_dataset(records, samples=folder.samples, outputs=folder.outputs)
        self._warn_of_unknown_methods(counts.methods)
        for line in self.dataset.remarks():
            self._console.warn(on_one_line(line, 1000))

    def restore(self, folder: RunFolder, fault: str) -> None:
        if not isinstance(self._config.system, LiveSystem):
            self._load(folder, self._config.system)
        elif not folder.outputs_journal.is_file():
            raise cannot_restore(
                folder, f"{fault}; outputs.journal.jsonl, which has what the system answered, is missing too"
            )
        else:
            load_samples(self.dataset, samples=folder.samples)
            outputs = self._collected(folder)
            if lost := [sample.id for sample in read_samples(folder.samples) if sample.id not in outputs]:
                raise cannot_restore(folder, f"{fault}; outputs.journal.jsonl has no answer to sample {lost[0]!r}")
            self._write_outputs(folder, outputs)
        self._write_index(folder)

    def _take_over(self, earlier: RunFolder, folder: RunFolder, methods: Sequence[str]) -> None:
        """The answers of methods that are as they were in an earlier run: these are not asked again."""
        if methods and earlier.outputs_journal.is_file():
            counts = take_over_outputs(earlier.outputs_journal, folder.outputs_journal, methods)
            for method, count in counts.items():
                self._console.say(
                    f"{count:,} outputs of {method} are those of run {earlier.root.name}: it is as it was"
                )

    def _write_outputs(self, folder: RunFolder, by_sample: Mapping[str, Sequence[Output]]) -> None:
        pairs = ((sample, by_sample[sample.id]) for sample in read_samples(folder.samples))
        load_outputs(pairs, outputs=folder.outputs)

    def _kept_methods(self, previous: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
        """The live methods whose outputs in a run are those that this run would collect: also those of an older source, where
        the user says that the version alone counts."""
        system = self._config.system
        if not previous or not isinstance(system, LiveSystem):
            return []
        by_version = (method.method for method in system.each_method() if method.by_version)
        return kept_methods(previous["identity"], identity, frozenset(by_version))

    def _same_tables(self, previous: Mapping[str, Any], identity: Mapping[str, Any], kept: Sequence[str]) -> bool:
        """Whether a run has all outputs that this run would collect, and no others."""
        if previous["data"].get("tables") == tables_digest(identity):
            return True
        return bool(kept) and len(kept) == len(method_identities(previous["identity"]["system"])) == len(
            method_identities(identity["system"])
        )

    def _say_why_collected(
        self, folder: RunFolder, previous: Mapping[str, Any], identity: Mapping[str, Any], kept: Sequence[str]
    ) -> None:
        """Before a system is asked though there are outputs already: those of the previous run, or of a collection that was
        stopped."""
        for path in abandoned_collections(folder):
            self._console.say(
                f"outputs are collected from the start: those of {path} are of another source, system or data"
            )
        if not previous or previous["identity"]["system"]["kind"] == "recorded":
            return
        run, before = previous["run_id"], method_identities(previous["identity"]["system"])
        again = [name for name in method_identities(identity["system"]) if name in before and name not in kept]
        if kept:
            if again:
                self._console.say(
                    f"outputs of {', '.join(again)} are collected again: another system than in run {run}"
                )
            return
        line = f"outputs are collected again: those of run {run} come from another system or other questions"
        if again and kept_methods(previous["identity"], identity, frozenset(again)) == again:
            line = (
                "outputs are collected again, as the system was edited; system.identity=version would keep those of "
                f"run {run}"
            )
        self._console.say(line)

    def retry_failures(self, folder: RunFolder) -> bool:
        if not has_failures(folder.outputs_journal):
            return False
        self._collect(folder)
        return True

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        return {}

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
        if self._index:
            json_unless_same(folder.index, self._index.coverage(read_samples(folder.samples)).model_dump(mode="json"))

    def _collect(self, folder: RunFolder, taken_over: Sequence[str] = ()) -> None:
        """Ask the live system for every output that is missing or failed, and freeze all of them."""
        system = self._config.system
        if not isinstance(system, LiveSystem):
            raise RagpipeError("a recorded system has nothing to collect")
        with open_system_budget(system, folder.outputs_journal, taken_over) as budget:
            try:
                run_async(self._ask_system(folder, system, budget))
            finally:
                if budget is not None:
                    self._console.say(budget.line())
        self.collected_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_outputs(folder, self._collected(folder))

    def _collected(self, folder: RunFolder) -> dict[str, list[Output]]:
        system = self._config.system
        methods = system.method_names if isinstance(system, LiveSystem) else None
        return collected_outputs(folder.outputs_journal, methods)

    async def _ask_system(self, folder: RunFolder, settings: LiveSystem, budget: Budget | None) -> None:
        methods = open_methods(settings, self._config.plugins)
        if budget is not None:
            costs = cost_of_answer(settings)
            methods = [replace(method, costs=AnswerCosts(budget, costs)) for method in methods]
        stage = CollectStage(methods, folder.outputs_journal, tell=self._console.warn)
        samples = sum(1 for _ in read_samples(folder.samples))
        total = samples * sum(method.settings.repeats for method in methods)
        meter = WorkMeter(
            "collecting",
            total,
            lambda: WorkDone(stage.collected, stage.resumed, stage.failed, dict(stage.failure_kinds)),
            servers=stage.servers,
        )
        view = ProgressView(folder.iteration(1).create().progress, name=self.name, iteration=1, total=total)
        with (
            self._console.progress(meter.state, label="collecting", noun="outputs", keep=view.show),
            SignalHandlers(stage, self._console.warn),
        ):
            try:
                counts = await stage.run(lambda: read_samples(folder.samples))
            finally:
                for note in (note for method in methods for note in method.system.notes):
                    self._console.warn(note)
        for method in settings.method_names:
            self._console.say(f"collected {counts[method]:,} outputs of {method}")


class RunSource:
    """The tables of an existing run: neither its data set nor its system is needed, and nothing is asked again.

    With `scores` its scores and replies are taken over too: only the scoring is done again. Raises DataError when a table
    is missing.
    """

    def __init__(self, source: RunFolder, manifest: dict[str, Any], *, scores: bool = False):
        check_frozen_tables(source)
        self._source, self._data = source, manifest["data"]
        self._states: dict[str, str] = manifest["iterations"] if scores else {}
        self.name: str = self._data["name"]
        self.collected_at: str | None = self._data.get("collected_at")
        self.linked_from: RunFolder | None = source

    @property
    def digest(self) -> str:
        return str(self._data["digest"])

    def tables_digest(self, identity: dict[str, Any]) -> str:
        return str(self._data["tables"])

    def write(self, folder: RunFolder, identity: dict[str, Any]) -> None:
        link_tables(self._source, folder)

    def restore(self, folder: RunFolder, fault: str) -> None:
        if self._source.root.resolve() == folder.root.resolve():
            raise cannot_restore(folder, fault)
        link_tables(self._source, folder)

    def retry_failures(self, folder: RunFolder) -> bool:
        return False

    def adopt_judged(self, folder: RunFolder) -> dict[str, str]:
        adopted = {}
        for number, state in self._states.items():
            source, target = self._source.iteration(int(number)), folder.iteration(int(number))
            if state == "complete" and is_regular_file(source.scores) and is_regular_file(source.judge_inputs):
                target.create()
                link_or_copy(source.scores, target.scores)
                link_or_copy(source.judge_inputs, target.judge_inputs)
                adopted[number] = JUDGED
        return adopted

    def check_unchanged(self) -> None:
        """Frozen tables do not change."""


def abandoned_collections(folder: RunFolder) -> list[Path]:
    """Run folders of the same name in which outputs were collected, and which never became a run."""
    siblings = (
        RunFolder(path)
        for path in sorted(folder.root.parent.glob("*"))
        if path != folder.root and not path.is_symlink()
    )
    return [run.root for run in siblings if has_entries(run.outputs_journal) and not run.manifest.exists()]


def open_index(config: RunConfig) -> IndexManifest | None:
    """The index manifest of the system, None where the configuration names none. Raises DataError."""
    path = config.system.index_manifest
    return IndexManifest(path, Path.cwd(), config.cache) if path is not None else None


def check_frozen_tables(source: RunFolder) -> None:
    """Raises DataError when a run has lost its frozen cases, or one of the tables is a link."""
    for path in (source.samples, source.outputs):
        check_regular_file(path)


def cannot_restore(folder: RunFolder, fault: str) -> DataError:
    """The error for frozen cases that are damaged and cannot be written again."""
    fix = (
        "remove this folder and start the run's own command again: replies of the judge are in the call store, a live "
        "system is asked again; or copy the whole run folder from elsewhere"
    )
    tables = "samples.parquet, outputs.parquet"
    problem = Problem(str(folder.root), tables, fault, "the tables that ragpipe wrote", fix)
    return DataError("the frozen cases of a run are damaged", [problem])


def link_tables(source: RunFolder, target: RunFolder) -> None:
    """Take both tables of another run, hard-linked where that is possible. Raises DataError when one is missing."""
    check_frozen_tables(source)
    link_or_copy(source.samples, target.samples)
    link_or_copy(source.outputs, target.outputs)
    if is_regular_file(source.index):
        link_or_copy(source.index, target.index)
    if source.outputs_journal.is_file():  # copied, not linked: it is appended to when failures are asked again
        atomic_write(target.outputs_journal, source.outputs_journal.read_bytes())
