"""`task=verify`: whether a run folder is what it was, and its scores follow from its cases and replies. Asks no judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.resources import code_digest
from ragpipe.core.settings import ConfigOrigins, Settings
from ragpipe.report.console import Console
from ragpipe.runs.finished_run import FinishedRun, FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.manifest import JUDGED
from ragpipe.runs.verification import Verification, verify_run

DIFFERENT = 3
"""Exit code when something differs."""


Keys = FinishedRunKeys


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[Settings]:
    """The run as it is. Raises ConfigError and DataError."""
    return open_finished_run(plain, origins, Settings, task="verify")


def run(task: FinishedRunTask[Settings], console: Console) -> int:
    """Print what differs, the cause first. Returns 0 when nothing does, else 3."""
    result = verify_run(task.finished)
    for difference in result.differences:
        console.say(f"differs  {difference}")
    for name in result.same:
        console.say(f"same     {name}")
    for name in result.sealed:
        console.say(f"sealed   {name}")
    if not result.differences:
        count = len(result.sealed)
        sealed = f"; {count} that are not made of it alone are as they were sealed" if count else ""
        console.say(
            f"verify: identical. {len(result.same)} files were made again from the frozen cases and the stored replies of "
            f"{task.finished.run_id}{sealed}"
        )
        return 0
    for line in _possible_causes(task.finished, result):
        console.say(line)
    count = len(result.differences)
    verb = "differs" if count == 1 else "differ"
    console.say(f"verify: {count} {verb}, {len(result.same)} the same; the first: {result.differences[0]}")
    return DIFFERENT


def _possible_causes(finished: FinishedRun, result: Verification) -> Iterator[str]:
    """What may explain a difference, though nobody changed the folder."""
    code = finished.manifest.get("code")
    if code != code_digest():
        yield (f"made by another state of ragpipe's code ({code or 'unknown'}, this is {code_digest()}): that alone may be why")
    if all(difference.where.startswith("report.") for difference in result.differences):
        yield "the pages alone differ: a plugin that adds a section to them may be missing here (plugins=[...], or not installed)"
    unsealed = [number for number, state in finished.manifest["iterations"].items() if state == JUDGED]
    if unsealed:
        yield (
            f"a start of this run was stopped before its end (iteration {', '.join(unsealed)} is judged, and not sealed): "
            "that alone may be why; start its command again"
        )
