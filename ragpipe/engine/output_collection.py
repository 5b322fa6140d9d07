"""Asking a live system for its outputs, before any judging: resumable, one journal line an answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.config import RunConfig
from ragpipe.core.errors import RagpipeError
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.native_form import output_of
from ragpipe.engine.event_loop import SignalHandlers, run_async
from ragpipe.reports.render.terminal import Console
from ragpipe.schema.sample import Output, Sample
from ragpipe.stages.collect_outputs import CollectStage, collected
from ragpipe.stages.load_dataset import read_samples
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.systems.live_system import open_system
from ragpipe.systems.settings import RecordedSystem


def collect(config: RunConfig, folder: RunFolder, console: Console) -> dict[str, list[Output]]:
    """The outputs of the configured live system by sample id. A second start asks only for what is missing or failed."""
    run_async(_collect(config, folder, console))
    return collected(folder.outputs_journal)


async def _collect(config: RunConfig, folder: RunFolder, console: Console) -> None:
    settings = config.system
    if isinstance(settings, RecordedSystem):
        raise RagpipeError("a recorded system has nothing to collect")
    system = open_system(settings, config.plugins)
    stage = CollectStage(system, settings, folder.outputs_journal, read_output)
    with SignalHandlers(stage, console.warn):
        try:
            done = await stage.run(read_samples(folder.samples))
        finally:
            for note in system.notes:
                console.warn(note)
    console.say(f"collected {done:,} outputs of {settings.method}")


def read_output(raw: Mapping[str, Any], sample: Sample) -> Output:
    """A system's raw answer as an output, by the same rules as a data file's: without a key `answer` or `contexts` that
    part is not recorded. One that says `abstained` and gives no answer has answered nothing. Raises DataError."""
    faults = Faults("the system's answer has the wrong shape")
    for place, found, expected in _unwritable(raw, ""):
        faults.add("the system's answer", place, found, expected)
    faults.raise_all()
    output = output_of(dict(raw), sample.id, None, "the system's answer", faults)
    faults.raise_all()
    if output is None:
        raise RagpipeError("the system's answer has the wrong shape")
    silent = output.abstained and output.answer is None and output.error is None
    return output.model_copy(update={"answer": ""}) if silent else output


def _unwritable(value: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """(place, found, expected) of numbers and texts in an answer that no file can hold: NaN, infinities, half characters."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place, str(value), "a finite number"
    elif isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        yield place, f"a lone surrogate (half a character) in {value[:40]!a}", "whole characters"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _unwritable(str(name), f"{place}.{name!a}")
            yield from _unwritable(item, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _unwritable(item, f"{place}[{number}]")
