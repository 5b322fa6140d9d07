"""Whether the judge drifted between the judging of two runs: the alarms of its drift file, and when the replies of each run came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ragpipe.comparing.run_differences import ChangedKey
from ragpipe.core.named_files import named_text
from ragpipe.core.yaml_files import MAX_BYTES, FastLoader
from ragpipe.store.calls.drift_file import drift_file, read_drift_record
from ragpipe.store.run.run_folder import RunFolder

DRIFT = "judge.drift"
"""The key under which a drifted judge is refused, or accepted with `compare.accept=[judge]`."""
TIMES = ("created_at", "ended_at", "judge_replies", "judge_alarms")
"""The parts of a manifest that are read here."""

Alarm = tuple[str, str]
"""When a judge was last known to be as it was, and when it was found to be another (ISO 8601, UTC)."""


def drift_differences(
    base: Mapping[str, Any], candidate: Mapping[str, Any], alarms: Iterable[Alarm] = ()
) -> list[ChangedKey]:
    """One difference of the part `judge` where one judge answered both runs and drifted between them; else none.

    Args:
        base: the manifest of the base.
        candidate: the manifest of the candidate.
        alarms: what is known beside the alarms that the manifests name (`judge_alarms`).

    A run is on one side of an alarm where all its replies came before the judge was last known to be as it was, or all after the
    drift was found. Runs that are not both on the same side differ: of replies in between nobody knows by which judge they are.
    """
    identity = base["identity"].get("judge_identity")
    if not identity or identity != candidate["identity"].get("judge_identity"):
        return []
    noted = (tuple(alarm) for manifest in (base, candidate) for alarm in manifest.get("judge_alarms", ()))
    spans = [reply_times(base), reply_times(candidate)]
    for after, found in sorted({*alarms, *noted}):
        if not (all(last <= after for _, last in spans) or all(first >= found for first, _ in spans)):
            texts = [f"judged {_words(span)}" for span in spans]
            return [ChangedKey("judge", DRIFT, texts[0], f"{texts[1]}, drifted between {_words((after, found))}")]
    return []


def reply_times(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """When the replies of a run came, from the first to the last (ISO 8601, UTC). Without a note there was no drift file when it was
    judged: then its replies are as old as the run, or older."""
    if noted := manifest.get("judge_replies"):
        return str(noted["first"]), str(noted["last"])
    created = str(manifest.get("created_at") or "")
    return created, max(created, str(manifest.get("ended_at") or ""))


def known_alarms(folder: RunFolder, manifest: Mapping[str, Any]) -> list[Alarm]:
    """The alarms in the drift file of a run's judge, beside the call store of the run: `.store` in its `output_dir`, and `store.path`
    of its configuration. Raises DataError for a damaged drift file."""
    identity = manifest["identity"].get("judge_identity")
    alarms: list[Alarm] = []
    for store in _store_folders(folder) if identity else ():
        if (record := read_drift_record(drift_file(store, identity))) is not None:
            alarms += [(str(alarm["after"]), str(alarm["found"])) for alarm in record.alarms]
    return alarms


def _store_folders(folder: RunFolder) -> list[Path]:
    folders = [folder.root.resolve().parent.parent / ".store"]
    try:
        config = yaml.load(named_text(folder.config, MAX_BYTES), Loader=FastLoader)
        named = config.get("store", {}).get("path")
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, RecursionError):
        return folders
    return [*folders, Path(named)] if isinstance(named, str) and named else folders


def _words(span: tuple[str, str]) -> str:
    first, last = (time[:19].replace("T", " ") for time in span)
    return first if first == last else f"{first} and {last}"
