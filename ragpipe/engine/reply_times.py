"""What a run notes in its manifest of the times of its replies and of the drift file of its judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.comparing.judge_drift import NOTE, drift_file, read_drift_record, reply_times
from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import store_folder, store_place
from ragpipe.judging.settings import JudgeSettings
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.run.run_folder import IterationFolder
from ragpipe.store.run.run_tables import batches

_BATCH = 4_096  # rows read at once


def note_reply_times(
    config: RunConfig,
    folder: IterationFolder,
    manifest: dict[str, Any],
    *,
    source: Mapping[str, Any] | None,
    reads_store: bool,
) -> None:
    """Note in the manifest when the first and the last reply of the judge came that the run rests on, and what its drift file says
    (`judge_drift.NOTE`).

    Args:
        config: the configuration of the run.
        folder: the iteration that was judged.
        manifest: the manifest of the run.
        source: the manifest of the finished run whose cases these are; its replies are those of a run by the same judge, where the
            call store knows none.
        reads_store: whether the call store may be read.

    Only where the judge has a drift file, or there is a source: nothing else reads it.
    """
    if not isinstance(config.judge, JudgeSettings):
        return
    place, identity = store_place(config), config.judge.identity_of_judge()
    record = read_drift_record(drift_file(store_folder(config), identity)) if reads_store else None
    times: list[str] = []
    if record is not None and folder.judge_inputs.is_file():
        for batch in batches(folder.judge_inputs, ("key", "template"), size=_BATCH):
            keys = {row["key"] for row in batch.to_pylist() if row["template"] is not None}
            times += [call.created_at for call in read_calls(place, keys).values() if call.created_at]
            times = [min(times), max(times)] if times else []
    if source is not None and source["identity"].get("judge_identity") == identity and not times:
        times = list(reply_times(source))
    noted = manifest.get(NOTE, {})
    if times:
        times += [noted[name] for name in ("first", "last") if name in noted]
        noted |= {"first": min(times), "last": max(times)}
    if record is not None:
        noted |= record.note()
    if noted:
        manifest[NOTE] = noted
