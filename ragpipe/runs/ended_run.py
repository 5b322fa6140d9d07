"""A run that ended with nothing left to do: what it rests on is noted at its end, so that the same command finds that out first.

The note stands in `.reports.json`. It is good as long as the configuration, the prices, ragpipe's code and every file of the folder are
what they were then: anything else is for the stages of a run to tell.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragpipe.core import registry
from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import DataError
from ragpipe.core.resources import code_digest
from ragpipe.data.system_settings import LiveSystem
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.report.console import Console
from ragpipe.runs.budget import configured_rates
from ragpipe.runs.manifest import COMPLETE, all_in_state, check_formats, config_sections, derived_and_frozen, read_manifest
from ragpipe.runs.settings import RunConfig
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json


def repeat_end(config: RunConfig, folder: RunFolder, console: Console) -> int | None:
    """Say again how a run ended, where its command has nothing left to do: its warnings, since when it is complete, its verdict. Returns
    its exit code, 0 or 3; None where the stages of a run have to look. Raises FormatMismatch."""
    try:
        noted = read_json(folder.reports_made) if folder.reports_made.is_file() else {}
        if "ended" not in noted or noted["ended"]["state"] != _state(config, folder):
            return None
    except (DataError, OSError, TypeError, KeyError):  # the stages say what is wrong
        return None
    check_formats(folder, config.store.place(config.output_dir))
    for warning in noted["ended"]["warnings"]:
        console.warn(warning)
    console.folder, manifest = folder.root, read_manifest(folder)
    notice = completion_notice(config, manifest)
    if "terminal" in config.report.formats and console.shows_results:
        notice = with_verdict(
            notice, folder, page_of(folder, [folder.root / name for name in noted["written"]], str(folder.root))
        )
    for line in notice:
        console.say(line)
    folder.point_latest()
    return int(noted["ended"]["code"])


def note_end(config: RunConfig, folder: RunFolder, code: int, warnings: Sequence[str]) -> None:
    """Note how a run ended, where a new start of its command would change nothing. `warnings` are those of every start. Raises
    OutputError."""
    states = read_manifest(folder)["iterations"]
    is_asked_again = config.retry_errors or config.publish or config.report.alerts.file
    if code in (0, 3) and not is_asked_again and all_in_state(states, range(1, config.iterations + 1), (COMPLETE,)):
        ended = {"state": _state(config, folder), "code": code, "warnings": list(warnings)}
        json_unless_same(folder.reports_made, read_json(folder.reports_made) | {"ended": ended})


def _state(config: RunConfig, folder: RunFolder) -> str:
    """The digest of all that a new start could find otherwise."""
    files = [*derived_and_frozen(folder.root), folder.manifest, folder.seal]
    return sha256(
        {
            "code": code_digest(),
            "sections": plugin_sections(),
            "config": config_sections(config),
            "prices": {name: rates.document() for name, rates in configured_rates(config).items()},
            "files": {path.relative_to(folder.root).as_posix(): sha256_file(path) for path in files},
        }
    )


def plugin_sections() -> list[str]:
    """The source of each section of the report that a plugin brings. Raises ConfigError for a plugin that cannot be imported."""
    own = set(registry.own_names("section"))
    builders = (registry.find("section", name) for name in registry.names("section") if name not in own)
    return [Path(inspect.getfile(builder)).read_text("utf-8") for builder in builders]


def page_of(run: RunFolder, written: Sequence[Path], folder: str) -> str:
    """The page that a reader opens next, in the folder as it is named to the user; the folder where no page was written."""
    page = next((path for path in (run.html, run.report) if path in written), None)
    return folder if page is None else str(Path(folder) / page.name)


def with_verdict(notice: Sequence[str], run: RunFolder, page: str) -> list[str]:
    """The lines of a notice, with the verdict of the run and its page in the first."""
    run_id = read_manifest(run).get("run_id") or run.root.name
    return [f"{notice[0]}: {read_json(run.verdict)['sentence']} run {run_id}, report: {page}", *notice[1:]]


_ENDS_IN_NUMBER = re.compile(r"(.*?)(\d{1,9})\Z", re.DOTALL)


def completion_notice(config: RunConfig, manifest: Mapping[str, Any], now: datetime | None = None) -> list[str]:
    """One line, and a second with the words to add so that this command asks the system or the judge again. No line for a
    run with an iteration that is not complete: its warnings say what the same command asks."""
    if any(manifest["iterations"].get(str(number)) != COMPLETE for number in range(1, config.iterations + 1)):
        return []
    now = now or datetime.now(UTC)
    ended = datetime.fromisoformat(manifest.get("ended_at", manifest["created_at"])).astimezone()
    first = f"complete since {ended:%Y-%m-%d %H:%M}, nothing was asked"
    if collected := manifest["data"].get("collected_at"):
        first += f"; outputs collected {time_ago(now - datetime.fromisoformat(collected))}"
    options = []
    if word := _word_to_ask_system(config, manifest):
        options.append(f"to ask the system again: {word}")
    if word := _word_to_judge_again(config, manifest):
        options.append(f"to judge again: {word}")
    return [first, "; ".join(options)] if options else [first]


def _word_to_ask_system(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where the outputs are recorded, or come from another run."""
    system = config.system
    if not isinstance(system, LiveSystem) or manifest["source_run"] is not None:
        return None
    return shlex.join([f"system.version={next_name(system.version)}"])


def _word_to_judge_again(config: RunConfig, manifest: Mapping[str, Any]) -> str | None:
    """None where no judge is asked, or one in this process, which would say the same."""
    judge = config.judge
    asks = any(not isinstance(metric, Computed) for metric in config.metrics.values())
    if not (asks and isinstance(judge, JudgeSettings) and config.transport.asks):
        return None
    if manifest["source_run"] is not None:
        return shlex.join([f"judge.season={next_name(judge.season)}"])
    return f"iterations={max(map(int, manifest['iterations'])) + 1}"


def next_name(name: str) -> str:
    """The name with its last number raised by one; with a 2 at the end where it has no number."""
    if match := _ENDS_IN_NUMBER.match(name):
        return f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}"
    return f"{name}-2" if name else "2"


def time_ago(age: timedelta) -> str:
    """`12 s ago`, `3 min ago`, `5 h ago`, `4 days ago`; `0 s ago` for a negative age (the clock was set back)."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (120 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds // 86400} days ago"
