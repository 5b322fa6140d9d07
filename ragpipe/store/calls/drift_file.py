"""The drift file of a judge: its baseline, the checks against it and the alarms, beside the call store.

One file per judge identity: `drift/<first 16 digits of its hash>.json` in the folder of the call store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.named_files import named_text
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.files.write_if_changed import json_unless_same

FOLDER = "drift"
_FIX = "remove the file: the next check makes a new baseline"


def drift_file(store_folder: Path, judge_identity: Mapping[str, Any]) -> Path:
    """Where the drift file of a judge is, or will be. `store_folder` is the folder of the call store."""
    return store_folder / FOLDER / f"{sha256(dict(judge_identity))[:16]}.json"


@dataclass
class DriftRecord:
    """The content of a drift file.

    `baseline` has the kept verdicts, `checks` what each check found, oldest first; either is open while its `ended_at` is null.
    `alarms` say when the judge drifted: after one time, and found at another (ISO 8601, UTC). `next_repeat` is the first repeat
    number that nothing has asked with.
    """

    judge: str
    identity: Mapping[str, Any]
    baseline: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    next_repeat: int = 1

    def write(self, path: Path) -> None:
        """Write the file, atomically. Raises OutputError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        json_unless_same(path, {"format": FORMAT, **vars(self)})


def read_drift_record(path: Path) -> DriftRecord | None:
    """The drift file; None where there is none. Raises DataError for one that is damaged or of another format."""
    try:
        content = strict_loads(named_text(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, InvalidJson) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise _damaged(path, "another format")
    try:
        record = DriftRecord(**content)
        for alarm in record.alarms:
            _ = str(alarm["after"]), str(alarm["found"])
    except (TypeError, KeyError) as error:
        raise _damaged(path, f"missing or unknown: {error}") from error
    return record


def _damaged(path: Path, what: str) -> DataError:
    return DataError("a drift file cannot be read", [Problem(str(path), "content", what, "what ragpipe wrote", _FIX)])
