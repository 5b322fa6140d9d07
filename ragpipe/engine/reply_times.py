"""What a run notes in its manifest of the drift file of its judge: the folder alone tells then which runs compare, and what the report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.comparing.judge_drift import reply_times
from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import store_folder, store_place
from ragpipe.judging.settings import JudgeSettings
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.calls.drift_file import DriftRecord, drift_file, read_drift_record
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
    """Note in the manifest when the first and the last reply of the judge came that the run rests on (`judge_replies`), the
    alarms about the judge so far (`judge_alarms`), and what the newest check found (`judge_drift`).

    Args:
        config: the configuration of the run.
        folder: the iteration that was judged.
        manifest: the manifest of the run.
        source: the manifest of the finished run whose cases these are; its replies are those of a run by the same judge, where the
            call store knows none.
        reads_store: whether the call store may be read.

    Only where the judge has a drift file, or the source has a note: nothing else reads it.
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
    if times and (record is not None or source is not None):
        noted = manifest.get("judge_replies") or {"first": times[0], "last": times[-1]}
        manifest["judge_replies"] = {"first": min(noted["first"], times[0]), "last": max(noted["last"], times[-1])}
    if record is not None and (newest := _newest_check(record)) is not None:
        manifest["judge_drift"] = newest
    if record is not None and record.alarms:
        manifest["judge_alarms"] = [[alarm["after"], alarm["found"]] for alarm in record.alarms]


def _newest_check(record: DriftRecord) -> dict[str, Any] | None:
    """What the newest check against the baseline found; None where none has ended."""
    baseline = record.baseline or {"first_repeat": None}
    ended = [c for c in record.checks if c["ended_at"] is not None and c["baseline"] == baseline["first_repeat"]]
    if not ended:
        return None
    kept = ("ended_at", "verdicts", "exact_match", "flips", "mcnemar_p", "drifted", "alarm", "served")
    return {
        "check": {name: ended[-1][name] for name in kept},
        "baseline": {name: baseline[name] for name in ("ended_at", "served")},
    }
