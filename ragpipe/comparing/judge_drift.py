"""Whether the judge drifted between the judging of two runs: its drift file beside the call store, and when the replies of each run came.

There is one file per judge identity: `drift/<first 16 digits of its hash>.json` in the folder of the call store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ragpipe.comparing.run_differences import ChangedKey
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.named_files import named_text
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.core.yaml_files import MAX_BYTES, FastLoader
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.files.atomic import json_unless_same
from ragpipe.store.run.run_folder import RunFolder

NOTE = "judge_drift"
"""The key of a manifest under which it is noted when the replies came (`first`, `last`), and of the drift file at that time the `alarms`,
the newest `check` and its `baseline`: the folder alone tells which runs compare, and what the report shows."""
TIMES = ("created_at", "ended_at", NOTE)
"""The parts of a manifest that are read here."""
DRIFT = "judge.drift"
"""The key under which a drifted judge is refused, or accepted with `compare.accept=[judge]`."""

Alarm = tuple[str, str]
"""When a judge was last known to be as it was, and when it was found to be another (ISO 8601, UTC)."""


@dataclass
class DriftRecord:
    """The content of a drift file.

    `baseline` has the kept verdicts, `checks` what each check found, oldest first; either is open while its `ended_at` is null. A check
    with an `alarm` says `after` which time the judge drifted. `next_repeat` is the first repeat number that nothing has asked with.
    """

    judge: str
    identity: Mapping[str, Any]
    baseline: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    next_repeat: int = 1

    @property
    def alarms(self) -> list[Alarm]:
        """When the judge drifted, as far as was found."""
        return [(str(check["after"]), str(check["ended_at"])) for check in self.checks if check.get("alarm")]

    def ended_checks(self) -> list[dict[str, Any]]:
        """The checks against the baseline that holds, without one that was stopped."""
        first = self.baseline and self.baseline["first_repeat"]
        return [check for check in self.checks if check["ended_at"] is not None and check["baseline"] == first]

    def note(self) -> dict[str, Any]:
        """What a manifest notes of it."""
        noted: dict[str, Any] = {"alarms": [list(alarm) for alarm in self.alarms]} if self.alarms else {}
        if self.baseline is not None and (ended := self.ended_checks()):
            noted["check"] = {name: value for name, value in ended[-1].items() if name != "changed"}
            noted["baseline"] = {name: self.baseline[name] for name in ("ended_at", "served")}
        return noted

    def write(self, path: Path) -> None:
        """Write the file, atomically. Raises OutputError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        json_unless_same(path, {"format": FORMAT, **vars(self)})


def drift_file(store_folder: Path, judge_identity: Mapping[str, Any]) -> Path:
    """Where the drift file of a judge is, or will be. `store_folder` is the folder of the call store."""
    return store_folder / "drift" / f"{sha256(dict(judge_identity))[:16]}.json"


def read_drift_record(path: Path) -> DriftRecord | None:
    """The drift file; None where there is none. Raises DataError for one that is damaged or of another format."""
    try:
        content = strict_loads(named_text(path))
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        record = DriftRecord(**content)
        record.note()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InvalidJson) as error:
        fix = "remove the file: the next check makes a new baseline"
        found = f"missing or unknown: {error}" if isinstance(error, TypeError | KeyError) else str(error)
        problem = Problem(str(path), "content", found, "what ragpipe wrote", fix)
        raise DataError("a drift file cannot be read", [problem]) from error
    return record


def drift_differences(
    base: Mapping[str, Any], candidate: Mapping[str, Any], alarms: Iterable[Alarm] = ()
) -> list[ChangedKey]:
    """One difference of the part `judge` where one judge answered both runs and drifted between them; else none.

    Args:
        base: the manifest of the base.
        candidate: the manifest of the candidate.
        alarms: what is known beside the alarms that the manifests note.

    A run is on one side of an alarm where all its replies came before the judge was last known to be as it was, or all after the
    drift was found. Runs that are not both on the same side differ: of replies in between nobody knows by which judge they are.
    """
    identity = base["identity"].get("judge_identity")
    if not identity or identity != candidate["identity"].get("judge_identity"):
        return []
    noted = {(after, found) for run in (base, candidate) for after, found in run.get(NOTE, {}).get("alarms", ())}
    spans = [reply_times(base), reply_times(candidate)]
    for after, found in sorted(noted.union(alarms)):
        if not (all(last <= after for _, last in spans) or all(first >= found for first, _ in spans)):
            texts = [f"judged {_words(span)}" for span in spans]
            return [ChangedKey("judge", DRIFT, texts[0], f"{texts[1]}, drifted between {_words((after, found))}")]
    return []


def reply_times(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """When the replies of a run came, from the first to the last (ISO 8601, UTC). Without a note there was no drift file when it was
    judged: then its replies are as old as the run, or older."""
    if "first" in (noted := manifest.get(NOTE, {})):
        return str(noted["first"]), str(noted["last"])
    created = str(manifest.get("created_at") or "")
    return created, max(created, str(manifest.get("ended_at") or ""))


def known_alarms(folder: RunFolder, manifest: Mapping[str, Any]) -> list[Alarm]:
    """The alarms in the drift file of a run's judge, beside the call store of the run: `.store` in its `output_dir`, and `store.path`
    of its configuration. Raises DataError for a damaged drift file."""
    identity = manifest["identity"].get("judge_identity")
    files = [drift_file(store, identity) for store in _store_folders(folder)] if identity else []
    return [alarm for path in files if (record := read_drift_record(path)) is not None for alarm in record.alarms]


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
