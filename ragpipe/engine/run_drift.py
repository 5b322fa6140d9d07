"""Drift in a run: the check before its first question (`drift.every_run`), and when the replies came that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.comparing.judge_drift import reply_times
from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import store_folder, store_place
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.reports.console import Console
from ragpipe.store.calls.call_store import read_calls
from ragpipe.store.calls.drift_file import DriftRecord, drift_file, read_drift_record
from ragpipe.store.run.run_folder import IterationFolder
from ragpipe.store.run.run_tables import batches

_BATCH = 4_096  # rows read at once


def check_before_judging(config: RunConfig, console: Console, providers: ProviderRegistry, run_id: str) -> None:
    """Check the judge before a run asks it, where `drift.every_run` says so and the judge is a language model that is asked.

    A drifted judge is a warning: the run goes on. The check spends the budget of the run. Raises as `check_drift`.
    """
    if config.drift.every_run and isinstance(config.judge, JudgeSettings) and config.transport.kind == "live":
        from ragpipe.engine.drift_check import check_drift
        from ragpipe.reports.drift_text import say_drift

        outcome = check_drift(config, console, providers, account=run_id)
        say_drift(outcome.kind, outcome.document, outcome.baseline, config.judge.label, console)


def note_reply_times(
    config: RunConfig,
    folder: IterationFolder,
    iteration: int,
    manifest: dict[str, Any],
    *,
    source: Mapping[str, Any] | None,
    reads_store: bool,
) -> None:
    """Note in the manifest when the first and the last reply of the judge came that the run rests on (`judge_replies`), and the
    alarms about the judge so far (`judge_alarms`), and by iteration what the newest check found (`judge_drift`).

    Args:
        config: the configuration of the run.
        folder: the iteration that was judged.
        iteration: its number.
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
    if record is not None and reads_store and folder.judge_inputs.is_file():
        for batch in batches(folder.judge_inputs, ("key", "template"), size=_BATCH):
            keys = {row["key"] for row in batch.to_pylist() if row["template"] is not None}
            times += [call.created_at for call in read_calls(place, keys).values() if call.created_at]
            times = [min(times), max(times)] if times else []
    if source is not None and source["identity"].get("judge_identity") == identity and not times:
        times = list(reply_times(source))
    if record is not None and (newest := newest_check(record)) is not None:
        manifest["judge_drift"] = {**manifest.get("judge_drift", {}), str(iteration): newest}
    if times and (record is not None or source is not None):
        noted = manifest.get("judge_replies") or {"first": times[0], "last": times[-1]}
        manifest["judge_replies"] = {"first": min(noted["first"], times[0]), "last": max(noted["last"], times[-1])}
    if record is not None and record.alarms:
        manifest["judge_alarms"] = [[alarm["after"], alarm["found"]] for alarm in record.alarms]


def carry_drift(manifest: dict[str, Any], source: Mapping[str, Any] | None, iteration: int) -> None:
    """Record the drift check of the finished run that these replies come from, where the run has no check of its own."""
    number = str(iteration)
    if source is None or number in manifest.get("judge_drift", {}):
        return
    is_same = source["identity"].get("judge_identity") == manifest["identity"].get("judge_identity")
    if is_same and (check := source.get("judge_drift", {}).get(number)) is not None:
        manifest["judge_drift"] = {**manifest.get("judge_drift", {}), number: check}


def newest_check(record: DriftRecord) -> dict[str, Any] | None:
    """What the newest check against the baseline found, as `metrics.json` has it; None where none has ended."""
    baseline = record.baseline
    if baseline is None:
        return None
    number = baseline["first_repeat"]
    ended = [check for check in record.checks if check["ended_at"] is not None and check["baseline"] == number]
    if not ended:
        return None
    kept = ("verdicts", "matched", "exact_match", "right", "graded", "flips", "mcnemar_p", "drifted", "alarm", "served")
    return {
        "checked_at": ended[-1]["ended_at"],
        **{name: ended[-1][name] for name in kept},
        "baseline": {"made_at": baseline["ended_at"], "served": baseline["served"]},
    }
