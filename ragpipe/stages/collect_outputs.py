"""Stage `collect`: asks the system under test for every sample. Each answer is one journal line, so that a kill loses none.

The outputs are frozen here: judging, iterations and re-judging use them and never ask the system again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError, Incomplete, Interrupted, Problem, RagpipeError
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.native_form import output_of
from ragpipe.schema.sample import Output, Sample
from ragpipe.stages.collected_outputs import JOURNAL_FIELDS, last_outputs
from ragpipe.store.run.journal import Journal
from ragpipe.systems.live_system import System
from ragpipe.systems.settings import LiveSystem

_RESUME = "what it answered before is kept; when it is up again, the same command goes on"


class CollectStage:
    """Collects `repeats` outputs per sample.

    A system that fails, times out or answers in the wrong shape gives an output with `error` set: its cases are counted
    as system errors, never as zeros, and a later collection asks for them again. A system that fails `concurrency` + 5
    times in a row is down: the collection stops, and can be resumed. `on_change` gets the number of outputs so far.
    """

    def __init__(
        self,
        system: System,
        settings: LiveSystem,
        journal: Path,
        on_change: Callable[[int], None] = lambda _: None,
    ):
        self._system, self._settings, self._on_change = system, settings, on_change
        self._path = journal
        self._failures_in_a_row = self._done = 0
        self._stopped: RagpipeError | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self, why: RagpipeError) -> None:
        """Ask for nothing more; answers in flight are kept."""
        self._stopped = self._stopped or why

    def cancel(self) -> None:
        """Give up the answers in flight."""
        for task in tuple(self._tasks):
            task.cancel()

    async def run(self, samples: Iterator[Sample]) -> int:
        """Ask for every repeat of every sample that has no output in the journal. Returns the number of outputs.

        Raises Incomplete when the system is down.
        """
        with Journal.open(self._path, form=JOURNAL_FIELDS) as journal:
            collected = {key for key, output in last_outputs(journal).items() if output.error is None}
            self._done = len(collected)
            try:
                await self._collect(samples, collected, journal)
            finally:
                await self._system.close()
        if self._stopped:
            raise self._stopped
        return self._done

    async def _collect(self, samples: Iterator[Sample], collected: set[tuple[str, int]], journal: Journal) -> None:
        slots = asyncio.Semaphore(self._settings.concurrency)
        repeats = range(1, self._settings.repeats + 1)
        for sample, repeat in ((sample, repeat) for sample in samples for repeat in repeats):
            if (sample.id, repeat) in collected:
                continue
            await slots.acquire()
            if self._stopped:
                break
            task = asyncio.create_task(self._collect_output(sample, repeat, journal, slots))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _collect_output(self, sample: Sample, repeat: int, journal: Journal, slots: asyncio.Semaphore) -> None:
        try:
            output = await self._answer(sample, repeat)
            failed, text = output.error is not None, output.model_dump_json()
            journal.append({"sample_id": sample.id, "repeat": repeat, "failed": failed, "output": text})
            self._count_failures(output.error)
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

    def _count_failures(self, error: str | None) -> None:
        self._failures_in_a_row = self._failures_in_a_row + 1 if error else 0
        if self._failures_in_a_row >= self._settings.concurrency + 5:
            reason = f"the system under test failed {self._failures_in_a_row} times in a row, last with: {error}"
            self.stop(Incomplete(f"{reason}\n    {_RESUME}"))

    async def _answer(self, sample: Sample, repeat: int) -> Output:
        """The system's output for one sample, or one that says how it failed."""
        started, limit = time.monotonic(), asyncio.timeout(self._settings.timeout_s)
        try:
            async with limit:
                raw = dict(await self._system.answer(sample))
            raw |= {"method": self._settings.method, "repeat": repeat}
            if self._settings.version:
                raw.setdefault("version", self._settings.version)
            output = self._checked_retrieval(read_output(raw, sample))
        except ConfigError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise  # this collection is given up; without that, the system has raised it
            reason = f"{type(error).__name__}: {error}"[:500]
            if limit.expired() and isinstance(error, TimeoutError):  # the system may raise one of its own
                reason = f"timeout after {self._settings.timeout_s:g} s"
            return self._failure(sample, repeat, reason, started)
        if "total" in output.timings:
            return output
        return output.model_copy(update={"timings": {**output.timings, "total": _elapsed_ms(started)}})

    @property
    def _retrieves(self) -> bool:
        return self._settings.says_it_retrieves(self._settings.method)

    def _checked_retrieval(self, output: Output) -> Output:
        """The output, with `retrieves: false` where the settings say so. Raises ConfigError, which ends the collection, when
        it has chunks all the same: the settings are wrong then, and asking further would be in vain."""
        if self._retrieves:
            return output
        if output.chunks:
            problem = Problem(
                f"the output of sample {output.sample_id!r}, method {output.method!r}",
                "system.retrieves",
                f"false, and {len(output.chunks)} chunks in the answer",
                "no chunks",
                "system.retrieves=true, or let the system give no chunks; what it answered before is kept",
            )
            raise ConfigError("the system under test retrieves something; the collection was stopped", [problem])
        return output.model_copy(update={"retrieves": False})

    def _failure(self, sample: Sample, repeat: int, error: str, started: float) -> Output:
        return Output(
            sample_id=sample.id,
            method=self._settings.method,
            repeat=repeat,
            error=error,
            timings={"total": _elapsed_ms(started)},
            version=self._settings.version or None,
            retrieves=self._retrieves,
        )


def read_output(raw: Mapping[str, Any], sample: Sample) -> Output:
    """A system's raw answer as an output, by the rules of a data file: without a key `answer` or `contexts` that part is not
    recorded. An output with `abstained` and no answer has the empty answer. Raises DataError."""
    faults = Faults("the system's answer has the wrong shape")
    for key, value, expected in _unstorable_values(raw, ""):
        faults.add("the system's answer", key, value, expected)
    faults.raise_all()
    output = output_of(dict(raw), sample.id, None, "the system's answer", faults)
    faults.raise_all()
    if output is None:
        raise RagpipeError("the system's answer has the wrong shape")
    silent = output.abstained and output.answer is None and output.error is None
    return output.model_copy(update={"answer": ""}) if silent else output


def _unstorable_values(value: Any, key: str) -> Iterator[tuple[str, str, str]]:
    """(key, value, what is expected) for each number or text of an answer that no file can hold: NaN, infinities, lone
    surrogates."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, str(value), "a finite number"
    elif isinstance(value, str) and _has_lone_surrogate(value):
        yield key, f"a lone surrogate (half a character) in {value[:40]!a}", "whole characters"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _unstorable_values(str(name), f"{key}.{name!a}")
            yield from _unstorable_values(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _unstorable_values(item, f"{key}[{number}]")


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _elapsed_ms(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
