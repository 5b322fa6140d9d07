"""Stage `collect`: ask the system under test for every sample; one journal line an answer, so that a kill loses none.

What the system gave is frozen here: judging, iterations and re-judging work on these outputs and never ask it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragpipe.core.errors import ConfigError, DataError, Incomplete, Interrupted, Problem, RagpipeError
from ragpipe.schema.sample import Output, Sample
from ragpipe.store.run.journal import Journal
from ragpipe.systems.live_system import System
from ragpipe.systems.settings import LiveSystem

ReadOutput = Callable[[Mapping[str, Any], Sample], Output]
_FORM = {"sample_id": str, "repeat": int, "failed": bool, "output": str}
"""What every line of the journal has; `output` is an Output as JSON."""


class CollectStage:
    """Collects `repeats` outputs per sample. `read` turns the system's raw mapping into an Output and raises on a wrong one.

    A system that fails, times out or answers in the wrong shape gives an output with `error` set: its cases are counted
    as system errors, never as zeros, and a later collection asks for them again. A system that fails `concurrency` + 5
    times in a row is down: the collection stops, and can be resumed.
    """

    def __init__(
        self,
        system: System,
        settings: LiveSystem,
        journal: Path,
        read: ReadOutput,
        on_change: Callable[[int], None] = lambda _: None,
    ):
        self._system, self._settings, self._read, self._on_change = system, settings, read, on_change
        self._path = journal
        self._failures = self._done = 0
        self._stopped: RagpipeError | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self, why: RagpipeError) -> None:
        self._stopped = self._stopped or why

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def run(self, samples: Iterator[Sample]) -> int:
        """Ask for every repeat of every sample of which the journal holds no answer. Returns how many outputs there are.

        Raises Incomplete when the system is down.
        """
        with Journal.open(self._path, form=_FORM) as journal:
            known = {asked for asked, output in _last(journal).items() if output.error is None}
            self._done = len(known)
            try:
                await self._collect(samples, known, journal)
            finally:
                await self._system.close()
        if self._stopped:
            raise self._stopped
        return self._done

    async def _collect(self, samples: Iterator[Sample], known: set[tuple[str, int]], journal: Journal) -> None:
        slots = asyncio.Semaphore(self._settings.concurrency)
        repeats = range(1, self._settings.repeats + 1)
        for sample, repeat in ((sample, repeat) for sample in samples for repeat in repeats):
            if (sample.id, repeat) in known:
                continue
            await slots.acquire()
            if self._stopped:
                break
            task = asyncio.create_task(self._collect_one(sample, repeat, journal, slots))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _collect_one(self, sample: Sample, repeat: int, journal: Journal, slots: asyncio.Semaphore) -> None:
        try:
            output = await self._ask(sample, repeat)
            failed, text = output.error is not None, output.model_dump_json()
            journal.append({"sample_id": sample.id, "repeat": repeat, "failed": failed, "output": text})
            self._count(output.error)
            self._done += 1
            self._on_change(self._done)
        except RagpipeError as error:
            self.stop(error)
        except asyncio.CancelledError:
            self.stop(Interrupted("the run was cancelled"))
        except Exception as error:  # a task's exception would be lost, and its sample with it
            why = RagpipeError(f"the output of sample {sample.id!r} could not be kept: {error}")
            why.__cause__ = error
            self.stop(why)
        finally:
            slots.release()

    def _count(self, error: str | None) -> None:
        self._failures = self._failures + 1 if error else 0
        if self._failures >= self._settings.concurrency + 5:
            self.stop(
                Incomplete(
                    f"the system under test failed {self._failures} times in a row, last with: {error}\n    "
                    "what it answered before is kept; when it is up again, the same command goes on"
                )
            )

    async def _ask(self, sample: Sample, repeat: int) -> Output:
        started, limit = time.monotonic(), asyncio.timeout(self._settings.timeout_s)
        try:
            async with limit:
                raw = dict(await self._system.answer(sample))
            raw |= {"method": self._settings.method, "repeat": repeat}
            if self._settings.version:
                raw.setdefault("version", self._settings.version)
            output = self._declared(self._read(raw, sample))
        except ConfigError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise  # this collection is given up; without that, the system has raised it
            what = f"{type(error).__name__}: {error}"[:500]
            if limit.expired() and isinstance(error, TimeoutError):  # the system may raise one of its own
                what = f"timeout after {self._settings.timeout_s:g} s"
            return self._failed(sample, repeat, what, started)
        if "total" in output.timings:
            return output
        return output.model_copy(update={"timings": {**output.timings, "total": _since(started)}})

    @property
    def _retrieves(self) -> bool:
        return self._settings.says_it_retrieves(self._settings.method)

    def _declared(self, output: Output) -> Output:
        """With `retrieves: false` where the settings say so. Raises ConfigError, which ends the collection, when it has
        chunks: the settings are wrong then, and every further answer would be asked for in vain."""
        if self._retrieves:
            return output
        if output.chunks:
            raise ConfigError(
                "the system under test retrieves something; the collection was stopped",
                [
                    Problem(
                        f"the output of sample {output.sample_id!r}, method {output.method!r}",
                        "system.retrieves",
                        f"false, and {len(output.chunks)} chunks in the answer",
                        "no chunks",
                        "system.retrieves=true, or let the system give no chunks; what it answered before is kept",
                    )
                ],
            )
        return output.model_copy(update={"retrieves": False})

    def _failed(self, sample: Sample, repeat: int, error: str, started: float) -> Output:
        return Output(
            sample_id=sample.id,
            method=self._settings.method,
            repeat=repeat,
            error=error,
            timings={"total": _since(started)},
            version=self._settings.version or None,
            retrieves=self._retrieves,
        )


def collected(journal: Path) -> dict[str, list[Output]]:
    """The outputs of a finished collection by sample id, in the order of their repeats; the last word on each counts.
    Raises DataError."""
    opened = Journal.open(journal, form=_FORM)
    try:
        outputs = _last(opened)
    finally:
        opened.close()
    by_sample: dict[str, list[Output]] = {}
    for (sample_id, _), output in sorted(outputs.items()):
        by_sample.setdefault(sample_id, []).append(output)
    return by_sample


def _last(journal: Journal) -> dict[tuple[str, int], Output]:
    """The last word on each repeat of each sample. Raises DataError for a line whose output is none."""
    found: dict[tuple[str, int], Output] = {}
    for entry in journal.entries:
        try:
            found[entry["sample_id"], entry["repeat"]] = Output.model_validate_json(entry["output"])
        except ValueError as error:
            raise DataError(
                f"the journal {journal.path} cannot be continued",
                [
                    Problem(
                        f"sample {entry['sample_id']!r}, repeat {entry['repeat']}",
                        "output",
                        str(error)[:200],
                        "an output as JSON",
                        "take the line out: this sample is asked again",
                    )
                ],
            ) from error
    return found


def has_failures(journal: Path) -> bool:
    """Whether the last word on some sample is that the system failed. False where nothing was collected."""
    return journal.exists() and any(output.error for outputs in collected(journal).values() for output in outputs)


class Unanswered(NamedTuple):
    """How many outputs of a table say that the system failed, of how many; the first of them and what it says."""

    failed: int
    cases: int
    first: str = ""


def unanswered(outputs: Path) -> Unanswered:
    """What of a run's frozen outputs is a failure of the system."""
    table = pq.read_table(outputs, columns=["sample_id", "error"])
    failed = table.filter(pc.is_valid(table["error"]))
    first = failed.slice(0, 1).to_pylist()
    text = " ".join(f"{first[0]['sample_id']}: {first[0]['error']}".split())[:200] if first else ""
    return Unanswered(len(failed), len(table), text)


def versions(outputs: Path) -> dict[str, list[str]]:
    """The versions that a run's frozen outputs name, by method, each in the order of their first appearance."""
    found: dict[str, dict[str, None]] = {}
    with pq.ParquetFile(outputs) as file:
        for batch in file.iter_batches(columns=["method", "version"]):
            pairs = pa.Table.from_batches([batch]).group_by(["method", "version"], use_threads=False).aggregate([])
            for row in pairs.to_pylist():
                if row["version"] is not None:
                    found.setdefault(row["method"], {})[row["version"]] = None
    return {method: list(names) for method, names in found.items()}


def _since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
